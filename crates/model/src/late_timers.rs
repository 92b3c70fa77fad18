//! Late timer interrupts, which reveal stolen time without a probe.
//!
//! A kernel does not notice when the hypervisor or the firmware takes the CPU, but its next timer
//! interrupt comes late. The kernel can cause the same delay itself by disabling interrupts, but
//! not while a program runs in user mode or the CPU is idle. Delays in user mode or idle time are
//! therefore *stops*: something else had taken the CPU.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel_words::Interrupted;
use crate::{Moment, Nanos};

/// Delays of timer interrupts, divided by what they prove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LateTimers {
    /// Intervals in which a CPU provably ran neither a program nor the kernel, summed over all
    /// CPUs. This is a lower bound on the time that the hypervisor or firmware took. The accounts
    /// are not corrected for it: they count this time as idle time or as that of the interrupted
    /// program.
    pub stops: Delays,
    /// The longest of these intervals, longest first. There are at most [`LateTimers::LISTED`].
    pub longest: Vec<Stop>,
    /// Delays during which the kernel may have disabled interrupts, so they prove nothing.
    pub unproven: Delays,
    /// Minimum length of the delays counted here.
    #[serde(rename = "from_ns")]
    pub from: Nanos,
}

impl LateTimers {
    /// Maximum number of stops listed.
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
    /// The interval. It starts when the first of the late interrupt's timers was due, and ends with
    /// that interrupt. The hypervisor or the firmware may have taken the CPU earlier.
    #[serde(flatten)]
    pub at: Moment,
    /// Context that the late interrupt interrupted. This is the proof, because the kernel cannot
    /// delay an interrupt of a program in user mode or of an idle CPU.
    pub interrupted: Interrupted,
}
