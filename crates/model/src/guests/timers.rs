//! Timers of guests: what the tracer counted, and what follows from it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Expiries of the timers that KVM emulated for a vCPU: that of the local APIC, and the timer chip.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimerSums {
    /// Number of expiries.
    pub ticks: u64,
    /// Number of these that were the timer chip's (PIT).
    pub pit_ticks: u64,
    /// Number of times that the vCPU's thread started the timer of the local APIC.
    pub armed: u64,
    /// When the first expiry was due.
    #[serde(rename = "first_ns")]
    pub first: Nanos,
    /// When the last expiry was due.
    #[serde(rename = "last_ns")]
    pub last: Nanos,
    /// Number of intervals between successive expiries of the same timer.
    pub intervals: u64,
    /// Frequent intervals, the most frequent first. Rare ones may be missing.
    pub frequent: Vec<TimerInterval>,
    /// Cost of the expiries that woke the vCPU, if it had few exits before it slept again.
    pub cost: TimerCost,
    /// Number of expiries in wake-ups that are not in `cost`, because of many exits, or because the
    /// thread then slept without a halt.
    pub busy_ticks: u64,
}

/// Similar intervals between two expiries of a timer. They differ by less than 2 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimerInterval {
    /// Number of intervals.
    pub count: u64,
    /// Their sum.
    #[serde(rename = "total_ns")]
    pub total: Nanos,
}

impl TimerInterval {
    /// Returns the mean interval.
    pub fn mean(&self) -> Nanos {
        Nanos(self.total.0 / self.count.max(1).cast_signed())
    }
}

/// Activity of a vCPU's thread from a wake-up by the guest's timer until the thread slept again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimerCost {
    /// Number of wake-ups.
    pub wakeups: u64,
    /// Number of expiries from these wake-ups until the thread slept again.
    pub ticks: u64,
    /// Number of exits.
    pub exits: u64,
    /// The thread's own time in KVM and in the process.
    #[serde(rename = "host_ns")]
    pub host: Nanos,
    /// The thread's own time in the guest.
    #[serde(rename = "guest_ns")]
    pub guest: Nanos,
    /// Sum of the squares of each wake-up's part of `host`, in units of (16 ns)².
    pub squares_16ns: u64,
}

impl TimerCost {
    /// Returns the mean number of exits per tick, or `None` if there were no ticks.
    pub fn exits_per_tick(&self) -> Option<f64> {
        (self.ticks > 0).then(|| self.exits as f64 / self.ticks as f64)
    }

    /// Adds the cost of another vCPU's timer.
    pub fn add(&mut self, other: &Self) {
        self.wakeups += other.wakeups;
        self.ticks += other.ticks;
        self.exits += other.exits;
        self.host += other.host;
        self.guest += other.guest;
        self.squares_16ns += other.squares_16ns;
    }
}

/// The timer of a vCPU's guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GuestTimer {
    /// Number of expiries.
    pub ticks: u64,
    /// Expiries per second, over the entire observation.
    #[serde(rename = "tick_rate_hz")]
    pub ticks_per_s: f64,
    /// Whether most expiries were those of the emulated timer chip (PIT).
    pub is_pit: bool,
    /// Whether the guest starts the timer anew for each expiry. Otherwise, the timer is periodic.
    pub is_one_shot: bool,
    /// Rate of the guest's regular tick while it ticks; `None` if the intervals are not regular.
    #[serde(rename = "regular_rate_hz")]
    pub regular: Option<f64>,
    /// The guest kernel's `HZ`, inferred from `regular_rate_hz`; `None` if it is not a usual value.
    #[serde(rename = "inferred_hz")]
    pub hz: Option<u32>,
    /// Whether the tick goes on while the vCPU is idle.
    pub mode: TickMode,
}

/// Whether a guest's tick goes on while the vCPU is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TickMode {
    /// The tick is not regular, or the vCPU was rarely idle.
    #[default]
    Unknown,
    /// The tick goes on, as with `nohz=off`.
    KeepsTicking,
    /// The tick stops, or becomes slower.
    StopsWhenIdle,
}

/// Timer ticks of one or more vCPUs, and their cost on the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GuestTicks {
    /// Number of expiries of the guests' timers.
    pub ticks: u64,
    /// Expiries per second, over the entire observation.
    #[serde(rename = "tick_rate_hz")]
    pub ticks_per_s: f64,
    /// Wake-ups from which the cost per tick follows.
    pub cost: TimerCost,
    /// CPU time of the vCPUs' threads per tick, outside the guest; `None` if there were too few
    /// wake-ups.
    #[serde(rename = "host_per_tick")]
    pub each: Option<TimeEstimate>,
    /// CPU time per day if all ticks cost the same.
    #[serde(rename = "host_per_day")]
    pub per_day: Option<TimeEstimate>,
    /// Predicted savings per day with other settings of the guests. They assume that the cost is
    /// proportional to the number of ticks.
    pub savings: Vec<TickSaving>,
}

/// CPU time of the host that another setting of the guests would save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TickSaving {
    /// The guest kernel's `HZ`; `None` for a tick that stops while the vCPU is idle.
    pub hz: Option<u32>,
    /// Ticks per second that would not happen.
    #[serde(rename = "avoided_rate_hz")]
    pub avoided_per_s: f64,
    /// CPU time that would be saved per day.
    #[serde(rename = "saved_per_day")]
    pub per_day: TimeEstimate,
}

/// A mean time, and its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimeEstimate {
    /// Mean.
    #[serde(rename = "mean_ns")]
    pub mean: Nanos,
    /// Lower end of the interval.
    #[serde(rename = "low_ns")]
    pub low: Nanos,
    /// Upper end of the interval.
    #[serde(rename = "high_ns")]
    pub high: Nanos,
}

impl TimeEstimate {
    /// Returns the estimate with each time changed by `change`.
    #[must_use]
    pub fn map(self, change: impl Fn(Nanos) -> Nanos) -> Self {
        Self {
            mean: change(self.mean),
            low: change(self.low),
            high: change(self.high),
        }
    }

    /// Returns the sum of two estimates. The true interval of a sum is at most as wide.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            mean: self.mean + other.mean,
            low: self.low + other.low,
            high: self.high + other.high,
        }
    }
}
