//! What a recorded machine had to do, apart from the kernel that it ran on: what a model needs to
//! run it again under other settings.

use crate::autogroup::Autogroup;
use crate::pace::PaceRule;
use crate::policy::SpecialPolicy;
use crate::{Cpu, Nanos};

/// What a machine had to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// For how long it was recorded.
    pub elapsed: Nanos,
    /// Its CPUs, in order.
    pub cpus: Vec<Cpu>,
    /// What a tick cost.
    pub tick: TickLoad,
    /// The mean time of a local timer's interrupt that was no tick.
    pub timer: Nanos,
    /// The program whose frames are asked about, where one has a rhythm.
    pub paced: Option<PacedLoad>,
    /// Threads, those that ran longest first; the paced one is not among them.
    pub threads: Vec<ThreadLoad>,
    /// What interrupted, but for the local timer.
    pub interrupts: Vec<InterruptLoad>,
    /// What could not be told, and how it was taken instead, in whole sentences.
    pub assumed: Vec<String>,
}

/// Ticks as they were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickLoad {
    /// How many came, on all CPUs.
    pub count: u64,
    /// The mean time of a tick's interrupt.
    pub interrupt: Nanos,
    /// The mean time of the softirqs that ran as it returned.
    pub softirqs: Nanos,
}

/// A program that works a frame, and sleeps until the next is due.
#[derive(Clone, Debug, PartialEq)]
pub struct PacedLoad {
    /// The name of its process.
    pub program: String,
    /// The name of the thread.
    pub thread: String,
    /// Its process id.
    pub pid: i32,
    /// The CPU that it ran on, if it was a single one.
    pub cpu: Option<Cpu>,
    /// How it was scheduled, where that was not by the ordinary rules.
    pub policy: Option<SpecialPolicy>,
    /// The kernel's group by session that it was in.
    pub autogroup: Option<Autogroup>,
    /// From one frame to the next.
    pub period: Nanos,
    /// By what rule frames are due, as its wakeups tell.
    pub rule: PaceRule,
    /// Its frames, in order.
    pub frames: Vec<PacedFrame>,
}

/// A frame of a paced program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacedFrame {
    /// CPU time of its work.
    pub work: Nanos,
    /// How much later than due it came on its CPU, without the interrupt of its timer and without
    /// waiting for others to leave the CPU; none where it did not sleep.
    pub late: Option<Nanos>,
}

/// A thread that works and waits. The threads that are too small to be kept apart are one a CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadLoad {
    /// Its name.
    pub name: String,
    /// Whether it is the kernel's.
    pub kernel: bool,
    /// The CPU that it ran on, if it was a single one.
    pub cpu: Option<Cpu>,
    /// How it was scheduled, where that was not by the ordinary rules.
    pub policy: Option<SpecialPolicy>,
    /// The kernel's group by session that it was in.
    pub autogroup: Option<Autogroup>,
    /// What it did, in order.
    pub bursts: Vec<Burst>,
}

impl ThreadLoad {
    /// CPU time of all its bursts.
    pub fn work(&self) -> Nanos {
        self.bursts.iter().map(|burst| burst.work).sum()
    }
}

/// A wait, and the work after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// For how long it waited.
    pub away: Nanos,
    /// Whether a timer of the kernel's ended that, rather than something else.
    pub by_timer: bool,
    /// CPU time that it then used.
    pub work: Nanos,
}

/// An interrupt on one CPU, with the softirqs that ran as it returned.
#[derive(Clone, Debug, PartialEq)]
pub struct InterruptLoad {
    /// Its name.
    pub name: String,
    /// Where.
    pub cpu: Cpu,
    /// Each time that it came: the time of the interrupt, and of the softirqs.
    pub costs: Vec<(Nanos, Nanos)>,
}

impl InterruptLoad {
    /// The time of all of it.
    pub fn time(&self) -> Nanos {
        self.costs.iter().map(|(irq, soft)| *irq + *soft).sum()
    }
}
