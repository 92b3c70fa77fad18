//! What came of a simulation, beside its rows.

use ticktax_model::{Histogram, Nanos};

use crate::task::TaskReport;

/// What a CPU can be doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    Idle,
    /// A program's own work.
    User,
    /// Work in the kernel, for a program or by a thread of the kernel.
    Kernel,
    /// An interrupt.
    Irq,
    /// A softirq.
    Softirq,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 5] = [
        Self::Idle,
        Self::User,
        Self::Kernel,
        Self::Irq,
        Self::Softirq,
    ];
}

/// What happened on a CPU, by two accountings: to the ns, and as its ticks saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuReport {
    /// Time in each mode, exactly, in the order of [`Mode::ALL`]. Its sum is the elapsed time.
    pub times: [Nanos; 5],
    /// Ticks that found it in each mode.
    pub samples: [u64; 5],
    /// Ticks that never came, because they stood still.
    pub stopped: u64,
    /// Ticks that were lost: one was still held up when the next was due.
    pub lost: u64,
    /// Ticks that were held up when the simulation ended: 0 or 1.
    pub pending: u64,
    /// Ticks that came late, held up by handlers.
    pub late: u64,
    /// Times that it fell idle.
    pub halts: u64,
    /// Times that its timer was programmed, where it is not periodic.
    pub programs: u64,
    /// Interrupts that found theirs pending already.
    pub merged: u64,
}

impl CpuReport {
    /// The time in a mode.
    pub fn time(&self, mode: Mode) -> Nanos {
        self.times[mode as usize]
    }

    /// The time in all modes.
    pub fn elapsed(&self) -> Nanos {
        self.times.iter().sum()
    }

    /// Ticks that came.
    pub fn sampled(&self) -> u64 {
        self.samples.iter().sum()
    }
}

/// What became of the packets of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkReport {
    /// Came in.
    pub arrived: u64,
    /// Dropped at the card's ring, the protocol queue, the socket buffer.
    pub dropped: [u64; 3],
    /// In these, still.
    pub queued: [u64; 3],
    /// Received by a task.
    pub delivered: u64,
}

/// What came of it all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The simulated time.
    pub elapsed: Nanos,
    /// Stands for every switch, wake-up and interrupt, with its time.
    pub hash: u64,
    /// Events that were simulated one by one.
    pub events: u64,
    /// Ticks of all CPUs, most of which need no event of their own.
    pub ticks: u64,
    /// By CPU.
    pub cpus: Vec<CpuReport>,
    /// By task.
    pub tasks: Vec<TaskReport>,
    /// By task: how late it ran, each time, after a sleep was to end or a wait ended. A sleep that
    /// was short counts as 0.
    pub lateness: Vec<Histogram>,
    /// By link.
    pub links: Vec<LinkReport>,
    /// The length of a tick on the machine's clock, rounded down.
    pub tick: Nanos,
}
