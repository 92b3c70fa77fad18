//! A recorded machine's workload, independent of its kernel. The model reruns it with other
//! settings.

use crate::autogroup::Autogroup;
use crate::pace::PaceRule;
use crate::policy::SpecialPolicy;
use crate::{Cpu, Nanos};

/// A machine's workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// Length of the recording.
    pub elapsed: Nanos,
    /// CPUs, in order.
    pub cpus: Vec<Cpu>,
    /// Number and cost of ticks.
    pub tick: TickLoad,
    /// Mean time of a local timer interrupt that was not a tick.
    pub timer: Nanos,
    /// The program whose frames are analysed, if any program has a periodic loop.
    pub paced: Option<PacedLoad>,
    /// All other threads, in descending order of CPU time.
    pub threads: Vec<ThreadLoad>,
    /// Interrupts, except those of the local timer.
    pub interrupts: Vec<InterruptLoad>,
    /// Assumptions that replace data missing from the recording, as complete sentences.
    pub assumed: Vec<String>,
}

/// Recorded ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickLoad {
    /// Number of ticks on all CPUs.
    pub count: u64,
    /// Mean time of a tick's interrupt.
    pub interrupt: Nanos,
    /// Mean time of the softirqs that ran when the tick's interrupt returned.
    pub softirqs: Nanos,
}

/// A program that works for one frame, then sleeps until the next frame is due.
#[derive(Clone, Debug, PartialEq)]
pub struct PacedLoad {
    /// Process name.
    pub program: String,
    /// Thread name.
    pub thread: String,
    /// Process id.
    pub pid: i32,
    /// CPU on which the thread ran, if it used only one.
    pub cpu: Option<Cpu>,
    /// Scheduling policy, if not the default.
    pub policy: Option<SpecialPolicy>,
    /// Autogroup of the process.
    pub autogroup: Option<Autogroup>,
    /// Frame period.
    pub period: Nanos,
    /// Rule that determines when frames are due, inferred from the wake-ups.
    pub rule: PaceRule,
    /// Frames, in order.
    pub frames: Vec<PacedFrame>,
}

/// A frame of a paced program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacedFrame {
    /// CPU time of the frame's work.
    pub work: Nanos,
    /// Time from the frame's due time to its start, excluding the timer interrupt and run-queue
    /// wait; `None` if the program did not sleep.
    pub late: Option<Nanos>,
}

/// A thread that alternates between waiting and working. Threads too small to model separately are
/// merged into one thread per CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadLoad {
    /// Thread name.
    pub name: String,
    /// Whether the thread is a kernel thread.
    pub kernel: bool,
    /// CPU on which the thread ran, if it used only one.
    pub cpu: Option<Cpu>,
    /// Scheduling policy, if not the default.
    pub policy: Option<SpecialPolicy>,
    /// Autogroup of the thread.
    pub autogroup: Option<Autogroup>,
    /// Waits and work, in order.
    pub bursts: Vec<Burst>,
}

impl ThreadLoad {
    /// Total CPU time of all bursts.
    pub fn work(&self) -> Nanos {
        self.bursts.iter().map(|burst| burst.work).sum()
    }
}

/// A wait followed by work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Length of the wait.
    pub away: Nanos,
    /// Whether a kernel timer ended the wait.
    pub by_timer: bool,
    /// CPU time that the thread used after the wait.
    pub work: Nanos,
}

/// An interrupt on one CPU, with the softirqs that ran when it returned.
#[derive(Clone, Debug, PartialEq)]
pub struct InterruptLoad {
    /// Interrupt name.
    pub name: String,
    /// CPU.
    pub cpu: Cpu,
    /// Cost of each occurrence: the time of the interrupt and the time of its softirqs.
    pub costs: Vec<(Nanos, Nanos)>,
}

impl InterruptLoad {
    /// Total time of all occurrences.
    pub fn time(&self) -> Nanos {
        self.costs.iter().map(|(irq, soft)| *irq + *soft).sum()
    }
}
