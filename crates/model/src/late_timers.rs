//! Late timer interrupts, which show stolen time without a probe.
//!
//! A kernel does not notice that the hypervisor or the firmware has taken the CPU, but its next
//! timer interrupt comes late. The kernel itself can cause the same delay by disabling interrupts,
//! but not while a program runs in user mode or the CPU is idle. Delays in user mode or idle time
//! are therefore *stops*, in which something else had taken the CPU.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel_words::Interrupted;
use crate::{Moment, Nanos};

/// Delays of timer interrupts, divided by what they prove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LateTimers {
    /// Intervals in which a CPU provably ran neither a program nor the kernel, summed over all
    /// CPUs: a lower bound on the time of the hypervisor or firmware. The accounts are not changed
    /// by it, so they contain this time as that of the interrupted program or as idle time.
    pub stops: Delays,
    /// The longest of these intervals, longest first, at most [`LateTimers::LISTED`].
    pub longest: Vec<Stop>,
    /// Delays in which the kernel may have disabled interrupts. They prove nothing.
    pub unproven: Delays,
    /// Minimum length of the delays above.
    #[serde(rename = "from_ns")]
    pub from: Nanos,
}

impl LateTimers {
    /// Maximum number of stops that are listed.
    pub const LISTED: usize = 32;
}

/// Number of intervals, and their total and maximum length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delays {
    /// Number of intervals.
    pub count: u64,
    /// Total length.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Maximum length; 0 if `count` is 0.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
}

impl Delays {
    /// Adds an interval.
    pub fn add(&mut self, length: Nanos) {
        self.count += 1;
        self.time += length;
        self.max = self.max.max(length);
    }

    /// Adds the intervals of `other`.
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.time += other.time;
        self.max = self.max.max(other.max);
    }
}

/// An interval in which a CPU provably ran neither a program nor the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stop {
    /// The interval. It ends with the late timer interrupt, and starts when the first of that
    /// interrupt's timers was due. The hypervisor or the firmware may have taken the CPU earlier.
    #[serde(flatten)]
    pub at: Moment,
    /// Context that the late interrupt interrupted. This is the proof: the kernel can delay an
    /// interrupt of neither a program in user mode nor an idle CPU.
    pub interrupted: Interrupted,
}
