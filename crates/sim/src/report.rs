//! The results of a simulation, except for its rows.

use ticktax_model::{Histogram, Nanos};

use crate::task::TaskReport;

/// The kind of activity that a CPU spends time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Idle.
    Idle,
    /// User code.
    User,
    /// Kernel code, either on behalf of a program or in a kernel thread.
    Kernel,
    /// An interrupt handler.
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

/// Results for one CPU. Its time is accounted for twice: exactly, and by sampling at ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuReport {
    /// Exact time in each mode, in the order of [`Mode::ALL`]. The sum is the elapsed time.
    pub times: [Nanos; 5],
    /// Number of ticks that found the CPU in each mode.
    pub samples: [u64; 5],
    /// Number of ticks skipped while the tick was stopped.
    pub stopped: u64,
    /// Number of ticks lost because the previous tick was still pending when they were due.
    pub lost: u64,
    /// Number of ticks still pending at the end of the simulation: 0 or 1.
    pub pending: u64,
    /// Number of ticks that were delayed by a handler or by masked interrupts.
    pub late: u64,
    /// Number of times that the CPU went idle.
    pub halts: u64,
    /// Number of times that the timer was programmed, if it is not a periodic one.
    pub programs: u64,
    /// Number of interrupts lost because an interrupt from the same source was already pending.
    pub merged: u64,
}

impl CpuReport {
    /// Returns the exact time in `mode`.
    pub fn time(&self, mode: Mode) -> Nanos {
        self.times[mode as usize]
    }

    /// Returns the total of all modes.
    pub fn elapsed(&self) -> Nanos {
        self.times.iter().sum()
    }

    /// Returns the number of ticks that occurred.
    pub fn sampled(&self) -> u64 {
        self.samples.iter().sum()
    }
}

/// Packet counts for one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkReport {
    /// Number of packets that arrived.
    pub arrived: u64,
    /// Number of packets dropped because the ring, the protocol queue, or the socket buffer was
    /// full.
    pub dropped: [u64; 3],
    /// Number of packets that were left in each of these three queues at the end.
    pub queued: [u64; 3],
    /// Number of packets read by tasks.
    pub delivered: u64,
}

/// The results of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Simulated time.
    pub elapsed: Nanos,
    /// Hash of every switch, wake-up and interrupt, including its time and CPU.
    pub hash: u64,
    /// Number of events that were processed individually.
    pub events: u64,
    /// Number of ticks on all CPUs. Most of them were not processed individually.
    pub ticks: u64,
    /// Results for each CPU.
    pub cpus: Vec<CpuReport>,
    /// Results for each task.
    pub tasks: Vec<TaskReport>,
    /// Histogram of each task's lateness: the time from the intended end of a sleep, or the end of
    /// another wait, until the task runs. A sleep that ended too early counts as 0.
    pub lateness: Vec<Histogram>,
    /// Results for each link.
    pub links: Vec<LinkReport>,
    /// Tick period by the machine's clock, rounded down to whole ns.
    pub tick: Nanos,
}
