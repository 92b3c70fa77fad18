//! The workload of a recorded machine, without the effects of its kernel's settings. The model runs
//! it again with different settings.

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
    /// Number of ticks, and the time they took.
    pub tick: TickLoad,
    /// Mean time of a local timer interrupt that was not a tick.
    pub timer: Nanos,
    /// The program whose frames are analysed; `None` if no program runs a periodic loop.
    pub paced: Option<PacedLoad>,
    /// All other threads, sorted by CPU time, longest first.
    pub threads: Vec<ThreadLoad>,
    /// All interrupts except those of the local timer.
    pub interrupts: Vec<InterruptLoad>,
    /// Assumptions that replace data missing from the recording, each as a complete sentence.
    pub assumed: Vec<String>,
}

/// Recorded ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickLoad {
    /// Number of ticks on all CPUs.
    pub count: u64,
    /// Mean time of the interrupt that runs a tick.
    pub interrupt: Nanos,
    /// Mean time of the softirqs that ran when the tick's interrupt returned.
    pub softirqs: Nanos,
}

/// A program that works on a frame and then sleeps until the next one is due.
#[derive(Clone, Debug, PartialEq)]
pub struct PacedLoad {
    /// Process name.
    pub program: String,
    /// Thread name.
    pub thread: String,
    /// Process id.
    pub pid: i32,
    /// CPU on which the thread ran; `None` if it used several.
    pub cpu: Option<Cpu>,
    /// Scheduling policy of the thread; `None` if it is the default.
    pub policy: Option<SpecialPolicy>,
    /// Autogroup of the process; `None` if it is unknown or autogroups are off.
    pub autogroup: Option<Autogroup>,
    /// Frame period.
    pub period: Nanos,
    /// Rule that determines when frames are due, inferred from the wake-ups.
    pub rule: PaceRule,
    /// Frames, in order.
    pub frames: Vec<PacedFrame>,
}

/// One frame of a paced program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacedFrame {
    /// CPU time of the frame's work.
    pub work: Nanos,
    /// Time from the frame's due time to its start, excluding the timer interrupt and the run-queue
    /// wait; `None` if the program did not sleep before the frame.
    pub late: Option<Nanos>,
}

/// A thread that alternates between waiting and working. Threads too small to be modelled
/// separately are merged into one thread per CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadLoad {
    /// Thread name.
    pub name: String,
    /// Whether the thread is a kernel thread.
    pub kernel: bool,
    /// CPU on which the thread ran; `None` if it used several.
    pub cpu: Option<Cpu>,
    /// Scheduling policy of the thread; `None` if it is the default.
    pub policy: Option<SpecialPolicy>,
    /// Autogroup of the thread's process; `None` if it is unknown or autogroups are off.
    pub autogroup: Option<Autogroup>,
    /// Pairs of a wait and the work after it, in chronological order.
    pub bursts: Vec<Burst>,
}

impl ThreadLoad {
    /// Returns the total CPU time of all bursts of work.
    pub fn work(&self) -> Nanos {
        self.bursts.iter().map(|burst| burst.work).sum()
    }
}

/// A wait, followed by a burst of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Length of the wait.
    pub away: Nanos,
    /// Whether a kernel timer ended the wait.
    pub by_timer: bool,
    /// CPU time that the thread used between this wait and the next.
    pub work: Nanos,
}

/// All occurrences of one interrupt on one CPU, with the softirqs that ran when it returned.
#[derive(Clone, Debug, PartialEq)]
pub struct InterruptLoad {
    /// Interrupt name.
    pub name: String,
    /// CPU.
    pub cpu: Cpu,
    /// Time of the interrupt and time of its softirqs, for each occurrence.
    pub costs: Vec<(Nanos, Nanos)>,
}

impl InterruptLoad {
    /// Returns the total time of all occurrences, including softirqs.
    pub fn time(&self) -> Nanos {
        self.costs.iter().map(|(irq, soft)| *irq + *soft).sum()
    }
}
