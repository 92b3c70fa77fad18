//! A virtual machine whose guest exits a known number of times, for a host with KVM.
//!
//! The guest is a few dozen instructions in real mode. It executes `cpuid`, writes to a port that
//! only this process handles, and halts until an interrupt wakes it. The interrupts come from a
//! timer at a known rate, from another thread of this process at irregular times, or from both. KVM
//! emulates the interrupt controllers and the timers.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_pit_config, kvm_regs};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use crate::error::InjectError;
use crate::sys::guest_memory::GuestMemory;

/// Instructions of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmPlan {
    /// Number of `cpuid` instructions.
    pub cpuids: u16,
    /// Number of writes to a port that this process handles.
    pub writes: u16,
    /// Number of halts.
    pub halts: u16,
    /// Timer that wakes the guest.
    pub timer: VmTimer,
    /// Number of timer interrupts per second, at least 19.
    pub hz: u32,
    /// Whether another thread also interrupts the guest, at irregular times.
    pub irregular: bool,
    /// ID that the vCPU's thread must have, or 0 for any.
    pub tid: i32,
}

/// Timer of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VmTimer {
    /// No timer.
    None,
    /// The timer chip (PIT).
    Chip,
    /// The timer of the local APIC in its periodic mode.
    Periodic,
    /// The timer of the local APIC, started by the guest again after each interrupt.
    OneShot,
}

/// Exits of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmTruth {
    /// ID of the vCPU's thread.
    pub tid: i32,
    /// Number of writes to the port that this process handled.
    pub writes: u64,
    /// Number of times that KVM returned to this process.
    pub returns: u64,
    /// CPU time of the vCPU's thread according to the scheduler, in ns.
    pub run_ns: u64,
    /// KVM's own counters, by name.
    pub counters: BTreeMap<String, u64>,
}

/// Port of the writes that are counted, and the port that ends the guest.
const WRITTEN: u16 = 0x99;
const END: u16 = 0xf4;
/// Addresses of the program and of the handler of the timer's interrupt.
const PROGRAM: u16 = 0x7c00;
const HANDLER: u16 = 0x7e00;
const APIC_HANDLER: u16 = 0x7f00;
/// Interrupt vectors of the timer chip, the thread that interrupts and the local APIC's timer.
const VECTOR: u8 = 0x20;
const THREAD_VECTOR: u8 = VECTOR + 1;
const APIC_VECTOR: u8 = 0x30;
/// Registers of the local APIC in its x2APIC mode.
const APIC_BASE: u32 = 0x1b;
const APIC_EOI: u32 = 0x80b;
const APIC_SPURIOUS: u32 = 0x80f;
const APIC_TIMER: u32 = 0x832;
const APIC_COUNT: u32 = 0x838;
const APIC_DIVIDER: u32 = 0x83e;
/// Frequency of the local APIC's timer in KVM, in Hz.
const APIC_HZ: u32 = 1_000_000_000;
/// Frequency of the timer chip's input, in Hz.
const TIMER_HZ: u32 = 1_193_182;
/// File with the thread ID that the kernel gave last.
const LAST_TID: &str = "/proc/sys/kernel/ns_last_pid";
/// Number of tries to get a thread with a certain ID.
const TRIES: usize = 20;
/// Size of the guest's memory in bytes.
const MEMORY: usize = 1 << 20;

/// Machine code under construction.
#[derive(Default)]
struct Code(Vec<u8>);

impl Code {
    fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Writes a byte to a port: `mov $value,%al; out %al,$port`.
    fn write(&mut self, port: u8, value: u8) {
        self.add(&[0xb0, value, 0xe6, port]);
    }

    /// Writes a model-specific register: `mov`, `mov`, `xor %edx,%edx; wrmsr`.
    fn write_register(&mut self, register: u32, value: u32) {
        self.add(&[0x66, 0xb9]);
        self.add(&register.to_le_bytes());
        self.add(&[0x66, 0xb8]);
        self.add(&value.to_le_bytes());
        self.add(&[0x66, 0x31, 0xd2, 0x0f, 0x30]);
    }

    /// Repeats `body` with a counter in the register `si`.
    fn repeat(&mut self, times: u16, body: &[u8]) {
        if times == 0 {
            return;
        }
        let [low, high] = times.to_le_bytes();
        self.add(&[0xbe, low, high]);
        self.add(body);
        // `dec %si; jnz` to the start of the body.
        let back = u8::try_from(body.len() + 3).unwrap_or(0).wrapping_neg();
        self.add(&[0x4e, 0x75, back]);
    }
}

/// Returns the guest's program.
fn program(plan: &VmPlan) -> Vec<u8> {
    let mut code = Code::default();
    // `cli`, then set up the interrupt controllers: only the lines of the timer chip and of the
    // thread are enabled.
    code.add(&[0xfa]);
    let masked = if plan.timer == VmTimer::Chip {
        0xfc
    } else {
        0xfd
    };
    for (port, value) in [
        (0x20, 0x11),
        (0x21, VECTOR),
        (0x21, 0x04),
        (0x21, 0x01),
        (0x21, masked),
        (0xa1, 0xff),
    ] {
        code.write(port, value);
    }
    // `xor %eax,%eax; cpuid`.
    code.repeat(plan.cpuids, &[0x66, 0x31, 0xc0, 0x0f, 0xa2]);
    // `mov $0,%al; out %al,$WRITTEN`.
    code.repeat(plan.writes, &[0xb0, 0x00, 0xe6, 0x99]);
    if plan.halts > 0 {
        start_timer(&mut code, plan);
        // `sti`, the halts, `cli`.
        code.add(&[0xfb]);
        code.repeat(plan.halts, &[0xf4]);
        code.add(&[0xfa]);
    }
    code.write(0xf4, 0);
    code.add(&[0xf4]);
    code.0
}

/// Starts the guest's timer.
fn start_timer(code: &mut Code, plan: &VmPlan) {
    let mode = match plan.timer {
        VmTimer::None => return,
        VmTimer::Chip => {
            let divisor = (TIMER_HZ / plan.hz.max(19)).to_le_bytes();
            for (port, value) in [(0x43, 0x34), (0x40, divisor[0]), (0x40, divisor[1])] {
                code.write(port, value);
            }
            return;
        }
        VmTimer::Periodic => 1 << 17,
        VmTimer::OneShot => 0,
    };
    // `mov $APIC_BASE,%ecx; rdmsr; or $0xc00,%eax; wrmsr` turns on the x2APIC mode.
    code.add(&[0x66, 0xb9]);
    code.add(&APIC_BASE.to_le_bytes());
    code.add(&[0x0f, 0x32, 0x66, 0x0d, 0x00, 0x0c, 0x00, 0x00, 0x0f, 0x30]);
    code.write_register(APIC_SPURIOUS, 0x1ff);
    code.write_register(APIC_DIVIDER, 0xb);
    code.write_register(APIC_TIMER, mode | u32::from(APIC_VECTOR));
    code.write_register(APIC_COUNT, APIC_HZ / plan.hz.max(19));
}

/// Returns the handler of the interrupts of the local APIC's timer.
fn apic_handler(plan: &VmPlan) -> Vec<u8> {
    let mut code = Code::default();
    // `push %eax; push %ecx; push %edx`.
    code.add(&[0x66, 0x50, 0x66, 0x51, 0x66, 0x52]);
    code.write_register(APIC_EOI, 0);
    if plan.timer == VmTimer::OneShot {
        code.write_register(APIC_COUNT, APIC_HZ / plan.hz.max(19));
    }
    // `pop %edx; pop %ecx; pop %eax; iret`.
    code.add(&[0x66, 0x5a, 0x66, 0x59, 0x66, 0x58, 0xcf]);
    code.0
}

/// Acknowledges an interrupt: `push %ax; mov $0x20,%al; out %al,$0x20; pop %ax; iret`.
const ACKNOWLEDGE: [u8; 7] = [0x50, 0xb0, 0x20, 0xe6, 0x20, 0x58, 0xcf];

fn failed(tried: &'static str) -> impl Fn(kvm_ioctls::Error) -> InjectError {
    move |error| InjectError::system(tried, Errno::from_raw(error.errno()), "use a host with KVM")
}

/// Runs the guest in a thread with the name that QEMU gives such threads.
///
/// # Errors
/// Returns an error if KVM refuses a request, if the guest behaves differently, or if the thread
/// cannot have the planned ID.
pub fn run(plan: &VmPlan) -> Result<VmTruth, InjectError> {
    for _ in 0..TRIES {
        if plan.tid > 0 {
            let last = (plan.tid - 1).to_string();
            fs::write(LAST_TID, last).map_err(|error| {
                InjectError::io(format!("write {LAST_TID}"), &error, "run this as root")
            })?;
        }
        let plan = *plan;
        let thread = thread::Builder::new()
            .name("CPU 0/KVM".to_owned())
            .spawn(move || {
                let tid = nix::unistd::gettid().as_raw();
                (plan.tid == 0 || plan.tid == tid).then(|| run_here(&plan, tid))
            })
            .map_err(|error| {
                InjectError::io("start a thread", &error, "raise the limit of threads")
            })?;
        if let Some(truth) = thread.join().map_err(|_| InjectError::Panicked)? {
            return truth;
        }
    }
    Err(InjectError::Refused {
        kind: "vm",
        why: format!("no thread got the ID {}: end its thread first", plan.tid),
    })
}

fn run_here(plan: &VmPlan, tid: i32) -> Result<VmTruth, InjectError> {
    let kvm = Kvm::new().map_err(failed("open /dev/kvm"))?;
    let vm = kvm
        .create_vm()
        .map_err(failed("create a virtual machine"))?;
    vm.create_irq_chip()
        .map_err(failed("create interrupt controllers"))?;
    vm.create_pit2(kvm_pit_config::default())
        .map_err(failed("create a timer chip"))?;
    let mut memory = GuestMemory::new(MEMORY)?;
    memory.write(PROGRAM.into(), &program(plan));
    memory.write(HANDLER.into(), &ACKNOWLEDGE);
    memory.write(APIC_HANDLER.into(), &apic_handler(plan));
    let handlers = [
        (VECTOR, HANDLER),
        (THREAD_VECTOR, HANDLER),
        (APIC_VECTOR, APIC_HANDLER),
    ];
    for (vector, handler) in handlers {
        let [low, high] = handler.to_le_bytes();
        memory.write(usize::from(vector) * 4, &[low, high, 0, 0]);
    }
    memory
        .give_to(&vm)
        .map_err(failed("give memory to a guest"))?;
    let mut vcpu = vm.create_vcpu(0).map_err(failed("create a vCPU"))?;
    // The guest needs the x2APIC.
    let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES);
    let cpuid = cpuid.map_err(failed("read the features of KVM"))?;
    vcpu.set_cpuid2(&cpuid)
        .map_err(failed("set the features of a vCPU"))?;
    start_at(&vcpu, PROGRAM)?;
    let is_over = AtomicBool::new(false);
    let served = thread::scope(|threads| {
        if plan.irregular {
            threads.spawn(|| interrupt(&vm, &is_over));
        }
        let served = serve(&mut vcpu);
        is_over.store(true, Ordering::Relaxed);
        served
    });
    let mut truth = served?;
    truth.tid = tid;
    truth.counters = counters(&vm)?;
    // Closing the files takes the thread a while.
    drop((vcpu, vm, kvm));
    truth.run_ns = run_time()?;
    Ok(truth)
}

/// Interrupts the guest at irregular times, 1 to 14 ms apart, until `is_over`.
fn interrupt(vm: &VmFd, is_over: &AtomicBool) {
    let mut state = 1_u32;
    while !is_over.load(Ordering::Relaxed) {
        // A linear congruential generator, so that each run has the same times.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        thread::sleep(Duration::from_micros(
            1_000 + u64::from(state >> 8) % 13_000,
        ));
        for level in [true, false] {
            // If KVM refuses, the guest's interrupts are too few, which the test notices.
            let _ = vm.set_irq_line(u32::from(THREAD_VECTOR - VECTOR), level);
        }
    }
}

/// Returns the CPU time of the calling thread, in ns.
fn run_time() -> Result<u64, InjectError> {
    const FILE: &str = "/proc/thread-self/schedstat";
    let failed = |error| InjectError::io(format!("read {FILE}"), &error, "mount /proc");
    let text = fs::read_to_string(FILE).map_err(failed)?;
    let first = text
        .split_whitespace()
        .next()
        .and_then(|time| time.parse().ok());
    Ok(first.unwrap_or(0))
}

/// Sets the registers so that the vCPU starts in real mode at `address`.
fn start_at(vcpu: &VcpuFd, address: u16) -> Result<(), InjectError> {
    let failed = failed("set the registers of a vCPU");
    let mut segments = vcpu.get_sregs().map_err(&failed)?;
    (segments.cs.base, segments.cs.selector) = (0, 0);
    vcpu.set_sregs(&segments).map_err(&failed)?;
    let registers = kvm_regs {
        rip: address.into(),
        rsp: 0x7000,
        rflags: 2,
        ..kvm_regs::default()
    };
    vcpu.set_regs(&registers).map_err(&failed)
}

/// Runs the guest until it writes to [`END`].
fn serve(vcpu: &mut VcpuFd) -> Result<VmTruth, InjectError> {
    let mut truth = VmTruth::default();
    loop {
        match vcpu.run() {
            Ok(VcpuExit::IoOut(END, _)) => {
                truth.returns += 1;
                return Ok(truth);
            }
            Ok(VcpuExit::IoOut(port, _)) => {
                truth.returns += 1;
                truth.writes += u64::from(port == WRITTEN);
            }
            Ok(VcpuExit::Intr) => truth.returns += 1,
            Ok(other) => {
                return Err(InjectError::Refused {
                    kind: "vm",
                    why: format!("stopped with {other:?}: use another kernel"),
                });
            }
            Err(error) if error.errno() == libc::EINTR => truth.returns += 1,
            Err(error) => return Err(failed("run a guest")(error)),
        }
    }
}

/// Reads KVM's own counters of a virtual machine.
fn counters(vm: &VmFd) -> Result<BTreeMap<String, u64>, InjectError> {
    // The kernel names the folder after the thread that created the machine.
    let name = format!("{}-{}", nix::unistd::gettid(), vm.as_raw_fd());
    let folder: PathBuf = ["/sys/kernel/debug/kvm", &name].iter().collect();
    let tried = || format!("list {}", folder.display());
    let files =
        fs::read_dir(&folder).map_err(|error| InjectError::io(tried(), &error, "mount debugfs"))?;
    let counter = |file: fs::DirEntry| {
        let value = fs::read_to_string(file.path()).ok()?.trim().parse().ok()?;
        Some((file.file_name().into_string().ok()?, value))
    };
    Ok(files.flatten().filter_map(counter).collect())
}

#[cfg(test)]
mod tests {
    use super::{VmPlan, VmTimer, apic_handler, program};

    #[test]
    fn the_program_repeats_what_was_planned() {
        let plan = VmPlan {
            cpuids: 3,
            writes: 0x102,
            halts: 1,
            timer: VmTimer::Chip,
            hz: 100,
            irregular: false,
            tid: 0,
        };
        let code = program(&plan);
        let has = |bytes: &[u8]| code.windows(bytes.len()).any(|window| window == bytes);
        assert!(has(&[
            0xbe, 3, 0, 0x66, 0x31, 0xc0, 0x0f, 0xa2, 0x4e, 0x75, 0xf8
        ]));
        assert!(has(&[0xbe, 2, 1, 0xb0, 0, 0xe6, 0x99, 0x4e, 0x75, 0xf9]));
        assert!(has(&[0xfb, 0xbe, 1, 0, 0xf4, 0x4e, 0x75, 0xfc, 0xfa]));
        assert!(code.ends_with(&[0xb0, 0, 0xe6, 0xf4, 0xf4]));
        let one_shot = VmPlan {
            timer: VmTimer::OneShot,
            ..plan
        };
        // The handler starts the timer again: 10 ms.
        let handler = apic_handler(&one_shot);
        let again = [0x66, 0xb8, 0x80, 0x96, 0x98, 0x00];
        assert!(handler.windows(again.len()).any(|window| window == again));
        let periodic = VmPlan {
            timer: VmTimer::Periodic,
            ..plan
        };
        assert!(apic_handler(&periodic).len() < handler.len());
        let nothing = VmPlan {
            cpuids: 0,
            writes: 0,
            halts: 0,
            ..plan
        };
        assert!(!program(&nothing).contains(&0x4e));
    }
}
