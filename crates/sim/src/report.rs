//! Results of a simulation, besides its rows.

use ticktax_model::{Histogram, Nanos};

use crate::task::TaskReport;

/// Modes of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Idle.
    Idle,
    /// A program's own work.
    User,
    /// Work in the kernel, for a program or in a kernel thread.
    Kernel,
    /// An interrupt.
    Irq,
    /// A softirq.
    Softirq,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 5] = [
        Self::Idle,
        Self::User,
        Self::Kernel,
        Self::Irq,
        Self::Softirq,
    ];
}

/// Report on a CPU, with two kinds of accounting: exact, and sampled at the ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuReport {
    /// Exact time in each mode, in the order of [`Mode::ALL`]. The sum is the elapsed time.
    pub times: [Nanos; 5],
    /// Number of ticks that found the CPU in each mode.
    pub samples: [u64; 5],
    /// Number of ticks that did not happen because they were stopped.
    pub stopped: u64,
    /// Number of lost ticks: a delayed one was still pending when the next was due.
    pub lost: u64,
    /// Number of delayed ticks at the end of the simulation: 0 or 1.
    pub pending: u64,
    /// Number of ticks delayed by handlers.
    pub late: u64,
    /// Number of times that the CPU became idle.
    pub halts: u64,
    /// Number of times that its timer was programmed, if it is not periodic.
    pub programs: u64,
    /// Number of interrupts merged with one that was already pending.
    pub merged: u64,
}

impl CpuReport {
    /// Exact time in a mode.
    pub fn time(&self, mode: Mode) -> Nanos {
        self.times[mode as usize]
    }

    /// Exact time in all modes.
    pub fn elapsed(&self) -> Nanos {
        self.times.iter().sum()
    }

    /// Number of ticks that happened.
    pub fn sampled(&self) -> u64 {
        self.samples.iter().sum()
    }
}

/// Fate of the packets of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkReport {
    /// Number of packets that arrived.
    pub arrived: u64,
    /// Number of packets dropped at the card's ring, the protocol queue and the socket buffer.
    pub dropped: [u64; 3],
    /// Number of packets still in these queues.
    pub queued: [u64; 3],
    /// Number of packets received by a task.
    pub delivered: u64,
}

/// Results of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The simulated time.
    pub elapsed: Nanos,
    /// Hash of every switch, wakeup and interrupt with its time.
    pub hash: u64,
    /// Number of events that were simulated individually.
    pub events: u64,
    /// Number of ticks of all CPUs. Most of them need no individual event.
    pub ticks: u64,
    /// Reports by CPU.
    pub cpus: Vec<CpuReport>,
    /// Reports by task.
    pub tasks: Vec<TaskReport>,
    /// Lateness by task: the times from the intended end of a sleep, or the end of a wait, until it
    /// ran. A sleep that was too short counts as 0.
    pub lateness: Vec<Histogram>,
    /// Reports by link.
    pub links: Vec<LinkReport>,
    /// Length of a tick on the machine's clock, rounded down.
    pub tick: Nanos,
}
