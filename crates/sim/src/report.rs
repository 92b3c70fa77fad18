//! Results of a simulation, apart from the rows of its recording.

use ticktax_model::{Histogram, Nanos};

use crate::task::TaskReport;

/// Kind of activity that a CPU spends time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Idle.
    Idle,
    /// User code.
    User,
    /// Kernel code that runs on behalf of a program or in a kernel thread.
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

/// Results for one CPU, with its time accounted for twice: exactly, and by sampling at ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuReport {
    /// Exact time in each mode, in the order of [`Mode::ALL`]. The times add up to the elapsed
    /// time.
    pub times: [Nanos; 5],
    /// Number of ticks that found the CPU in each mode, in the order of [`Mode::ALL`].
    pub samples: [u64; 5],
    /// Number of ticks that did not occur because the tick was stopped.
    pub stopped: u64,
    /// Number of ticks lost because the previous tick was still pending when they were due.
    pub lost: u64,
    /// Number of ticks still pending at the end of the simulation: 0 or 1.
    pub pending: u64,
    /// Number of ticks that were delayed by a handler or by masked interrupts.
    pub late: u64,
    /// Number of times the CPU went idle.
    pub halts: u64,
    /// Number of times the timer was programmed, not counting periodic timers.
    pub programs: u64,
    /// Number of interrupts lost because an interrupt from the same source was already pending.
    pub merged: u64,
}

impl CpuReport {
    /// Returns the exact time in `mode`.
    pub fn time(&self, mode: Mode) -> Nanos {
        self.times[mode as usize]
    }

    /// Returns the sum of the times in all modes.
    pub fn elapsed(&self) -> Nanos {
        self.times.iter().sum()
    }

    /// Returns the number of ticks that occurred, excluding stopped and lost ones.
    pub fn sampled(&self) -> u64 {
        self.samples.iter().sum()
    }
}

/// Packet counts for one [`Link`](crate::Link).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkReport {
    /// Number of packets that arrived.
    pub arrived: u64,
    /// Number of packets dropped because a queue was full, by queue: the ring, the protocol queue,
    /// and the socket buffer.
    pub dropped: [u64; 3],
    /// Number of packets left at the end of the simulation, by queue: the ring, the protocol queue,
    /// and the socket buffer.
    pub queued: [u64; 3],
    /// Number of packets read by tasks.
    pub delivered: u64,
}

/// Results of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Simulated time.
    pub elapsed: Nanos,
    /// Hash of every switch, wake-up and interrupt, including its time and CPU.
    pub hash: u64,
    /// Number of events that were processed individually.
    pub events: u64,
    /// Number of ticks on all CPUs. Most were not processed individually.
    pub ticks: u64,
    /// Results for each CPU.
    pub cpus: Vec<CpuReport>,
    /// Results for each task.
    pub tasks: Vec<TaskReport>,
    /// Histogram of each task's lateness, which is the time from the intended end of a sleep, or
    /// the end of another kind of wait, until the task runs. A sleep that ended too early counts as
    /// 0.
    pub lateness: Vec<Histogram>,
    /// Results for each link.
    pub links: Vec<LinkReport>,
    /// Actual tick period of the simulated machine, rounded down to whole ns.
    pub tick: Nanos,
}
