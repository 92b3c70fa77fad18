//! Virtual machines that ran on the observed machine: the CPU time of their threads, and the exits
//! of their vCPUs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

mod reasons;
mod timers;

pub use reasons::ExitSet;
pub use timers::{
    GuestTicks, GuestTimer, TickMode, TickSaving, TimeEstimate, TimerCost, TimerInterval, TimerSums,
};

/// Virtual machines according to the tracer and `/proc`, as stored in a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestSums {
    /// Names and numbers of the exit reasons.
    pub exit_set: ExitSet,
    /// Threads that ran a vCPU.
    pub vcpus: Vec<VcpuSums>,
    /// Names of the virtual machines.
    pub machines: Vec<GuestName>,
}

/// Sums of a thread that ran a vCPU. All times except `polled` and `slept` are the thread's own
/// CPU time, without interrupts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VcpuSums {
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// Name of the thread.
    pub name: String,
    /// Time on `CLOCK_MONOTONIC` from which on the thread's time is in the sums.
    #[serde(rename = "since_ns")]
    pub since: Nanos,
    /// Time between an entry into the guest and the next exit.
    #[serde(rename = "guest_ns")]
    pub guest: Nanos,
    /// Time before the first event of the vCPU, when its phase was unknown.
    #[serde(rename = "unknown_ns")]
    pub unknown: Nanos,
    /// Number of entries into the guest.
    pub entries: u64,
    /// Number of returns from KVM to the process.
    pub returns: u64,
    /// Number of interrupts injected into the guest; `None` if the kernel does not report them.
    #[serde(default)]
    pub injected: Option<u64>,
    /// Ends of interrupts at the guest's local APIC; `None` if the kernel does not report them.
    #[serde(default)]
    pub interrupt_ends: Option<InterruptEnds>,
    /// Halts of the guest; `None` if the kernel does not report them.
    #[serde(default)]
    pub halts: Option<Halts>,
    /// The guest's timer; `None` if it never expired, or if the tracer did not watch it.
    #[serde(default)]
    pub timer: Option<TimerSums>,
    /// Exits by reason.
    pub exits: Vec<ExitSum>,
}

/// Interrupts whose handling a guest ended at its local APIC (EOI), as far as KVM notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterruptEnds {
    /// Number of these interrupts.
    pub count: u64,
    /// Number of these that the guest ended without an exit (PV EOI).
    pub without_exit: u64,
}

impl InterruptEnds {
    /// Adds the interrupts of another vCPU.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.without_exit += other.without_exit;
    }
}

/// Halts of a vCPU that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Halts {
    /// Number of halts that ended while KVM was polling, so the thread never slept.
    pub polled: u64,
    /// Elapsed time of these halts. All of it was polling.
    #[serde(rename = "polled_ns")]
    pub polled_time: Nanos,
    /// Number of halts during which the thread slept.
    pub slept: u64,
    /// Elapsed time of these halts, including polling before the sleep.
    #[serde(rename = "slept_ns")]
    pub slept_time: Nanos,
}

impl Halts {
    /// Adds the halts of another vCPU.
    pub fn add(&mut self, other: &Self) {
        self.polled += other.polled;
        self.polled_time += other.polled_time;
        self.slept += other.slept;
        self.slept_time += other.slept_time;
    }
}

/// Exits of a vCPU that had the same reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExitSum {
    /// Number of the reason: on x86, the processor's exit code. On arm64, the exception class, or
    /// 64 plus KVM's code for an exit that is not a trap. [`ExitSet::OTHER`] for all codes that the
    /// tracer does not distinguish.
    pub code: u32,
    /// Number of exits.
    pub count: u64,
    /// The thread's own time in KVM from the exit to the next entry, or to the return to the
    /// process.
    #[serde(rename = "kvm_ns")]
    pub kvm: Nanos,
    /// The thread's own time in the process and its system calls, from the return to the next
    /// entry.
    #[serde(rename = "vmm_ns")]
    pub vmm: Nanos,
    /// Elapsed time from the exits to the entries that follow, including interrupts, sleep and
    /// waits for a CPU.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
}

/// Name of the virtual machine that a process runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestName {
    /// Process id.
    pub pid: i32,
    /// Name.
    pub name: String,
    /// Source of the name.
    pub named_by: GuestNamedBy,
}

/// Source of a virtual machine's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GuestNamedBy {
    /// QEMU's option `-name`, which libvirt also sets.
    Qemu,
    /// Proxmox's number of the machine, followed by its name.
    Proxmox,
    /// Namespace and name of a virtual machine in Kubernetes.
    KubeVirt,
    /// Firecracker's option `--id`.
    Firecracker,
    /// The name of the process, because its command line contains no name.
    Process,
}

/// Virtual machines, with the CPU time that each of them cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GuestStatement {
    /// Names and numbers of the exit reasons.
    pub exit_set: ExitSet,
    /// Length of the observation. All rates refer to it.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Virtual machines, largest CPU time first.
    pub machines: Vec<GuestMachine>,
    /// Timer ticks of all machines together; `None` if no timer expired.
    #[serde(default)]
    pub ticks: Option<GuestTicks>,
}

/// A virtual machine: its CPU time by activity, and the exits of its vCPUs.
///
/// `guest`, `kvm`, `vmm`, `unknown`, `other_threads`, `kernel_threads` and `unclassified` add up to
/// `time`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GuestMachine {
    /// Name.
    pub name: String,
    /// Source of the name; `None` if the process exited before its name could be read.
    pub named_by: Option<GuestNamedBy>,
    /// Id of the process that runs the machine.
    pub pid: i32,
    /// CPU time of all threads of the machine, without interrupts.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Time in which the vCPUs ran code of the guest.
    #[serde(rename = "guest_ns")]
    pub guest: Nanos,
    /// Time in which KVM handled exits.
    #[serde(rename = "kvm_ns")]
    pub kvm: Nanos,
    /// Time of the vCPUs' threads in the process, for example to emulate devices.
    #[serde(rename = "vmm_ns")]
    pub vmm: Nanos,
    /// Time of the vCPUs' threads before the first event of the vCPU.
    #[serde(rename = "unknown_ns")]
    pub unknown: Nanos,
    /// Time of the process's other threads, for example those for I/O.
    #[serde(rename = "other_threads_ns")]
    pub other_threads: Nanos,
    /// Time of kernel threads that work only for this machine (vhost, the timer chip).
    #[serde(rename = "kernel_threads_ns")]
    pub kernel_threads: Nanos,
    /// Difference between the vCPUs' threads' time and the sums of their activities. It is 0 unless
    /// events were lost.
    #[serde(rename = "unclassified_ns")]
    pub unclassified: Nanos,
    /// Number of exits.
    pub exits: u64,
    /// Number of exits per second.
    #[serde(rename = "exit_rate_hz")]
    pub exits_per_s: f64,
    /// Exits by reason, largest CPU time on the host first.
    pub reasons: Vec<GuestExits>,
    /// Number of interrupts injected into the vCPUs; `None` if the kernel does not report them.
    #[serde(default)]
    pub injected: Option<u64>,
    /// Ends of interrupts at the vCPUs' local APICs; `None` if the kernel does not report them.
    #[serde(default)]
    pub interrupt_ends: Option<InterruptEnds>,
    /// Halts of the vCPUs; `None` if the kernel does not report them.
    #[serde(default)]
    pub halts: Option<Halts>,
    /// CPU time from a halt's exit until the thread slept or the guest went on. It includes
    /// polling.
    #[serde(rename = "halting_ns")]
    pub halting: Nanos,
    /// Waits of the vCPUs' threads for a CPU; `None` if the recording does not show them.
    #[serde(default)]
    pub waits: Option<GuestWaits>,
    /// Timer ticks of all vCPUs; `None` if no timer expired.
    #[serde(default)]
    pub ticks: Option<GuestTicks>,
    /// The threads that ran vCPUs, by thread id.
    pub vcpus: Vec<GuestVcpu>,
}

/// Waits of a machine's vCPUs for a CPU. The guest sees this time as stolen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestWaits {
    /// Total time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of waits.
    pub count: u64,
    /// Longest wait.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
}

/// Exits of a machine that had the same reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GuestExits {
    /// Name of the reason, as the processor's manual abbreviates it.
    pub reason: String,
    /// The exits of all vCPUs.
    #[serde(flatten)]
    pub sum: ExitSum,
}

/// CPU time of a thread that ran a vCPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GuestVcpu {
    /// Thread id.
    pub tid: i32,
    /// Name of the thread.
    pub name: String,
    /// CPU time, without interrupts.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Time in which it ran code of the guest.
    #[serde(rename = "guest_ns")]
    pub guest: Nanos,
    /// Number of exits.
    pub exits: u64,
    /// Difference between the thread's recorded time and the sums of its activities, over the time
    /// in which both are known; `None` if this could not be compared.
    #[serde(rename = "mismatch_ns")]
    pub mismatch: Option<Nanos>,
    /// The guest's timer; `None` if it never expired, or if the tracer did not watch it.
    #[serde(default)]
    pub timer: Option<GuestTimer>,
}

impl GuestMachine {
    /// Returns the CPU time that the host spent on the machine outside the guest's own code.
    pub fn overhead(&self) -> Nanos {
        self.time - self.guest
    }
}
