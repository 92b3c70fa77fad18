//! Virtual machines: attaches to KVM's tracepoints, and reads the sums of the vCPUs' threads.
//!
//! KVM is usually a module, and the kernel's BTF has no types for a module's tracepoints. The BPF
//! programs therefore read the record that the kernel makes for `perf`. Its layout is described in
//! tracefs, and a program is attached only if the layout is the expected one.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use aya::programs::{Program, ProgramError, TracePoint};
use ticktax_model::Nanos;
use ticktax_model::guests::{ExitSet, ExitSum, GuestSums, Halts, InterruptEnds, VcpuSums};
use ticktax_model::hook::Hook;

use crate::record::{
    CpuState, EXIT_HIGH_AT, EXIT_HIGH_FROM, EXIT_OTHER, SpanRecord, VcpuRecord, flag, kind, phase,
};
use crate::tracer::Tracer;

pub(crate) mod timers;

/// Group of KVM's tracepoints.
const GROUP: &str = "kvm";
/// Directories in which tracefs can be mounted.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A field of a tracepoint's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    tracepoint: &'static str,
    name: &'static str,
    /// Position and size in bytes.
    offset: usize,
    size: usize,
}

const fn field(tracepoint: &'static str, name: &'static str, offset: usize, size: usize) -> Field {
    Field {
        tracepoint,
        name,
        offset,
        size,
    }
}

/// Fields that the BPF programs read on every architecture.
const FIELDS: [Field; 2] = [
    field("kvm_vcpu_wakeup", "ns", 8, 8),
    field("kvm_vcpu_wakeup", "waited", 16, 1),
];
/// Fields that they read on x86.
const X86_FIELDS: [Field; 1] = [field("kvm_exit", "exit_reason", 8, 4)];
/// Fields that they read on arm64.
const ARM_FIELDS: [Field; 2] = [
    field("kvm_exit", "ret", 8, 4),
    field("kvm_exit", "esr_ec", 12, 4),
];

/// Loads `program` and attaches it to KVM's tracepoint `name`.
pub(crate) fn attach(program: &mut Program, name: &str) -> Result<(), ProgramError> {
    let program: &mut TracePoint = program.try_into()?;
    check(name)?;
    program.load()?;
    program.attach(GROUP, name)?;
    Ok(())
}

/// Checks the layout of a tracepoint's record.
fn check(name: &str) -> io::Result<()> {
    let file = |root: &&str| fs::read_to_string(format!("{root}/events/{GROUP}/{name}/format"));
    let mut formats = TRACEFS.iter().map(file);
    let first = formats
        .next()
        .unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
    let format = first.or_else(|error| formats.find_map(Result::ok).ok_or(error))?;
    let own: &[Field] = if cfg!(target_arch = "aarch64") {
        &ARM_FIELDS
    } else {
        &X86_FIELDS
    };
    let mut read = FIELDS
        .iter()
        .chain(own)
        .filter(|field| field.tracepoint == name);
    match read.find(|field| place(&format, field.name) != Some((field.offset, field.size))) {
        None => Ok(()),
        Some(field) => Err(io::Error::other(format!(
            "the field {} of the tracepoint {name} has an unknown layout",
            field.name
        ))),
    }
}

/// Returns the position and the size of a field, in bytes, according to a tracepoint's format.
fn place(format: &str, name: &str) -> Option<(usize, usize)> {
    let mut lines = format
        .lines()
        .filter_map(|line| line.trim().strip_prefix("field:"));
    lines.find_map(|line| {
        let mut parts = line.split(';').map(str::trim);
        let declared = parts.next()?.split_whitespace().last()?;
        let (mut offset, mut size) = (None, None);
        for part in parts {
            match part.split_once(':') {
                Some(("offset", number)) => offset = number.parse().ok(),
                Some(("size", number)) => size = number.parse().ok(),
                _ => {}
            }
        }
        (declared == name).then_some((offset?, size?))
    })
}

/// A vCPU's thread that was running when recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenVcpu {
    /// Index of the thread's sums.
    index: usize,
    /// The thread's own time that is not in the sums yet, in ns.
    rest: u64,
}

/// Returns the vCPU's thread that was running on a CPU at the end. `open` contains the spans that
/// were still open there.
pub(crate) fn open_vcpu(state: &CpuState, open: &[SpanRecord]) -> Option<OpenVcpu> {
    let index = usize::try_from(state.vcpu.checked_sub(1)?).ok()?;
    let is_thread =
        |record: &&SpanRecord| record.kind == kind::TASK && record.flags & flag::UNREPORTED == 0;
    let own: i64 = open
        .iter()
        .filter(is_thread)
        .map(|record| record.self_ns)
        .sum();
    Some(OpenVcpu {
        index,
        rest: own.cast_unsigned().wrapping_sub(state.vcpu_charged),
    })
}

/// Adds own time to the sum of the thread's phase, as `charge_vcpu` in `guests.h` does.
fn charge(vcpu: &mut VcpuRecord, time: u64) {
    let reason = vcpu.reason as usize % vcpu.exits.len();
    let sum = match vcpu.phase {
        phase::GUEST => &mut vcpu.guest_ns,
        phase::KVM => &mut vcpu.exits[reason].kvm_ns,
        phase::VMM => &mut vcpu.exits[reason].vmm_ns,
        _ => &mut vcpu.unknown_ns,
    };
    *sum = sum.wrapping_add(time);
}

/// Returns the code of the reason that has this index in a vCPU's sums, the inverse of `exit_index`
/// in `guests.h`.
fn code(index: usize, is_arm: bool) -> u32 {
    let code = match index {
        _ if is_arm => index,
        EXIT_OTHER => return ExitSet::OTHER,
        EXIT_HIGH_AT.. => index - EXIT_HIGH_AT + EXIT_HIGH_FROM,
        _ => index,
    };
    u32::try_from(code).unwrap_or(ExitSet::OTHER)
}

/// Returns the set of exit reasons on this machine, given the contents of `/proc/cpuinfo`.
fn exit_set(is_arm: bool, cpuinfo: &str) -> ExitSet {
    let has = |flag: &str| cpuinfo.split_whitespace().any(|word| word == flag);
    if is_arm {
        ExitSet::Arm64
    } else if has("svm") {
        ExitSet::Svm
    } else if has("vmx") {
        ExitSet::Vmx
    } else {
        ExitSet::Unknown
    }
}

/// Which optional figures the tracer counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    halts: bool,
    injected: bool,
    ends: bool,
}

fn nanos(time: u64) -> Nanos {
    Nanos(time.cast_signed())
}

fn sums(vcpu: &VcpuRecord, begin: Nanos, counted: Counted, is_arm: bool) -> VcpuSums {
    let exits = vcpu.exits.iter().enumerate();
    let exits = exits.map(|(index, sum)| ExitSum {
        code: code(index, is_arm),
        count: sum.count,
        kvm: nanos(sum.kvm_ns),
        vmm: nanos(sum.vmm_ns),
        elapsed: nanos(sum.elapsed),
    });
    let is_used = |sum: &ExitSum| {
        sum.count > 0
            || [sum.kvm, sum.vmm, sum.elapsed]
                .iter()
                .any(|&time| time != Nanos::ZERO)
    };
    let name = vcpu
        .comm
        .split(|&byte| byte == 0)
        .next()
        .unwrap_or_default();
    VcpuSums {
        tid: vcpu.tid.cast_signed(),
        pid: vcpu.tgid.cast_signed(),
        name: String::from_utf8_lossy(name).into_owned(),
        since: nanos(vcpu.since).max(begin),
        guest: nanos(vcpu.guest_ns),
        unknown: nanos(vcpu.unknown_ns),
        entries: vcpu.entries,
        returns: vcpu.returns,
        injected: counted.injected.then_some(vcpu.injected),
        interrupt_ends: counted.ends.then_some(InterruptEnds {
            count: vcpu.ends,
            without_exit: vcpu.pv_ends,
        }),
        halts: counted.halts.then_some(Halts {
            polled: vcpu.polled,
            polled_time: nanos(vcpu.polled_ns),
            slept: vcpu.slept,
            slept_time: nanos(vcpu.slept_ns),
        }),
        timer: timers::timer_sums(&vcpu.timer),
        exits: exits.filter(is_used).collect(),
    }
}

impl Tracer {
    /// Returns the processes whose vCPUs have been seen so far.
    pub fn guest_processes(&self) -> BTreeSet<i32> {
        let owners = (0..self.sizes.vcpu_entries()).filter_map(|index| self.vcpus.process(index));
        owners.map(u32::cast_signed).collect()
    }

    /// Returns the sums of all vCPUs, without the machines' names. `open` contains the vCPUs whose
    /// threads were running when recording ended. Returns `None` if no vCPU was seen, or if KVM was
    /// not traced.
    pub(crate) fn guest_sums(&self, open: &[OpenVcpu]) -> Option<GuestSums> {
        if !self.attached().contains(&Hook::KvmExit) {
            return None;
        }
        let is_arm = cfg!(target_arch = "aarch64");
        let counted = Counted {
            halts: self.attached().contains(&Hook::KvmVcpuWakeup),
            injected: self.attached().contains(&Hook::KvmInjVirq),
            ends: self.attached().contains(&Hook::KvmEoi),
        };
        let mut vcpus = Vec::new();
        for index in 0..self.sizes.vcpu_entries() {
            if self.vcpus.process(index).is_none() {
                continue;
            }
            let mut vcpu = self.vcpus.read(index);
            let rests = open.iter().filter(|open| open.index == index);
            rests.for_each(|open| charge(&mut vcpu, open.rest));
            vcpus.push(sums(&vcpu, self.since, counted, is_arm));
        }
        vcpus.sort_by_key(|vcpu| (vcpu.pid, vcpu.tid));
        let cpuinfo = fs::read_to_string(Path::new("/proc/cpuinfo")).unwrap_or_default();
        (!vcpus.is_empty()).then(|| GuestSums {
            exit_set: exit_set(is_arm, &cpuinfo),
            vcpus,
            machines: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
