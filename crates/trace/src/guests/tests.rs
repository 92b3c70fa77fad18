use ticktax_model::Nanos;
use ticktax_model::guests::{ExitSet, Halts, InterruptEnds};

use super::{Counted, charge, code, exit_set, open_vcpu, place, sums};
use crate::record::{
    CpuState, EXIT_REASONS, ExitSum, SpanRecord, VcpuRecord, VcpuTimer, flag, kind, phase,
};

/// The format of `kvm_exit` in Debian's Linux 6.1.
const FORMAT: &str = "name: kvm_exit
ID: 1463
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned int exit_reason;\toffset:8;\tsize:4;\tsigned:0;
\tfield:unsigned long guest_rip;\toffset:16;\tsize:8;\tsigned:0;
\tfield:u32 isa;\toffset:24;\tsize:4;\tsigned:0;

print fmt: \"vcpu %u reason %s%s%s rip 0x%lx\", REC->vcpu_id
";

fn record() -> VcpuRecord {
    VcpuRecord {
        tid: 41,
        tgid: 40,
        phase: phase::UNKNOWN,
        reason: 0,
        since: 1_000,
        exited: 0,
        unknown_ns: 0,
        guest_ns: 0,
        entries: 0,
        returns: 0,
        injected: 7,
        ends: 6,
        pv_ends: 5,
        polled: 1,
        polled_ns: 20,
        slept: 2,
        slept_ns: 300,
        started: 900,
        timer: VcpuTimer::default(),
        comm: *b"CPU 0/KVM\0\0\0\0\0\0\0",
        exits: [ExitSum::default(); EXIT_REASONS],
    }
}

#[test]
fn fields_are_found_in_a_format() {
    assert_eq!(place(FORMAT, "exit_reason"), Some((8, 4)));
    assert_eq!(place(FORMAT, "guest_rip"), Some((16, 8)));
    assert_eq!(place(FORMAT, "esr_ec"), None);
    assert_eq!(place("", "ns"), None);
}

#[test]
fn codes_are_the_processors() {
    assert_eq!(code(0x78, false), 0x78);
    assert_eq!(code(0xf0, false), 0x400);
    assert_eq!(code(0xf3, false), 0x403);
    assert_eq!(code(0xff, false), ExitSet::OTHER);
    assert_eq!(code(0xff, true), 0xff);
}

#[test]
fn the_processors_flags_tell_the_exit_set() {
    let set = |text| exit_set(false, text);
    assert_eq!(set("flags : fpu svm lm"), ExitSet::Svm);
    assert_eq!(set("flags : fpu vmx lm\nvmx flags : vnmi"), ExitSet::Vmx);
    assert_eq!(set("flags : fpu lm"), ExitSet::Unknown);
    assert_eq!(exit_set(true, ""), ExitSet::Arm64);
}

#[test]
fn the_end_of_a_run_belongs_to_the_phase() {
    let mut vcpu = record();
    charge(&mut vcpu, 3);
    (vcpu.phase, vcpu.reason) = (phase::GUEST, 0x7b);
    charge(&mut vcpu, 50);
    vcpu.phase = phase::KVM;
    charge(&mut vcpu, 600);
    vcpu.phase = phase::VMM;
    charge(&mut vcpu, 7_000);
    assert_eq!((vcpu.unknown_ns, vcpu.guest_ns), (3, 50));
    let sum = vcpu.exits[0x7b];
    assert_eq!((sum.kvm_ns, sum.vmm_ns), (600, 7_000));
}

#[test]
fn only_the_uncharged_part_of_a_run_is_open() {
    let task = |self_ns, flags| SpanRecord {
        self_ns,
        flags,
        kind: kind::TASK,
        ..SpanRecord::default()
    };
    let irq = SpanRecord {
        self_ns: 5,
        kind: kind::IRQ,
        ..SpanRecord::default()
    };
    let open = [irq, task(300, 0), task(400, 0), task(9, flag::UNREPORTED)];
    let mut state = CpuState::default();
    assert_eq!(open_vcpu(&state, &open), None);
    (state.vcpu, state.vcpu_charged) = (3, 250);
    let found = open_vcpu(&state, &open).unwrap();
    assert_eq!((found.index, found.rest), (2, 450));
}

#[test]
fn sums_keep_what_was_counted() {
    let mut vcpu = record();
    vcpu.exits[0x78].count = 4;
    let counted = Counted {
        halts: true,
        injected: false,
        ends: true,
    };
    let sums = sums(&vcpu, Nanos(2_000), counted, false);
    assert_eq!((sums.tid, sums.pid, &*sums.name), (41, 40, "CPU 0/KVM"));
    assert_eq!((sums.since, sums.injected), (Nanos(2_000), None));
    let ends = InterruptEnds {
        count: 6,
        without_exit: 5,
    };
    assert_eq!(sums.interrupt_ends, Some(ends));
    assert_eq!(sums.timer, None);
    let halts = Halts {
        polled: 1,
        polled_time: Nanos(20),
        slept: 2,
        slept_time: Nanos(300),
    };
    assert_eq!(sums.halts, Some(halts));
    assert_eq!(sums.exits.len(), 1);
    assert_eq!((sums.exits[0].code, sums.exits[0].count), (0x78, 4));
}
