//! Paced loops on several kernels, beside the model of each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GuestClock;
use crate::Nanos;
use crate::pace::{PaceRule, SleepMethod};

/// Loops on kernels and in the model, cell by cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelComparison {
    /// What was run in each guest, with its arguments.
    pub verb: String,
    /// What the guests' time was.
    pub clock: GuestClock,
    /// By how much the model may differ.
    pub tolerance: Tolerance,
    /// A loop on a kernel each, in the order in which they were run.
    pub cells: Vec<KernelCell>,
    /// What was published of another loop at the same tick rates, the highest first.
    pub published: Vec<PublishedLoop>,
}

/// By how much a figure may lie outside the model's range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tolerance {
    /// The rate of frames, as a share of itself.
    pub rate_share: f64,
    /// The mean wait, as a share of the period.
    pub wait_period_share: f64,
    /// The sampled CPU time, as a share of a CPU.
    pub sampled_share: f64,
}

/// One loop on one kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelCell {
    /// The kernel.
    pub kernel: String,
    /// Its tick rate, in Hz, where it tells it.
    pub hz: Option<u32>,
    /// The parameters that it was booted with.
    pub cmdline: String,
    /// How the loop waits for its next frame.
    pub sleep: SleepMethod,
    /// When its frames are due.
    pub rule: PaceRule,
    /// From one frame to the next, as asked for.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// The CPU time of a frame.
    #[serde(rename = "work_ns")]
    pub work: Nanos,
    /// What the kernel did.
    pub measured: CellFigures,
    /// What the model gives; `None` where it has nothing for this loop.
    pub predicted: Option<PredictedCell>,
    /// Where the two differ by more than they may.
    pub differs: Vec<Difference>,
}

/// What became of a loop on a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellFigures {
    /// Frames a second.
    pub rate_hz: f64,
    /// The mean wait of a frame from when it was due.
    pub wait_ns: f64,
    /// Steps of the rate that no frame was in time for (overshot), a second.
    pub overshot_hz: f64,
    /// The share of a CPU that it used, from 0 to 1.
    pub used_share: f64,
    /// The share that sampling at ticks found; `None` where the kernel did not tell.
    pub sampled_share: Option<f64>,
}

/// What the model gives for a loop: the least and the most over the moments at which it can begin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedCell {
    /// Frames a second.
    pub rate_hz: (f64, f64),
    /// The mean wait.
    pub wait_ns: (f64, f64),
    /// Steps of the rate that no frame is in time for, a second.
    pub overshot_hz: (f64, f64),
    /// The share of a CPU that sampling at ticks finds.
    pub sampled_share: (f64, f64),
    /// Whether the range of waits or samples is wider than twice what they may differ by.
    pub wide: bool,
}

/// Where the model and a kernel differ by more than they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// In the rate of frames.
    Rate,
    /// In the mean wait.
    Wait,
    /// In the sampled CPU time.
    Sampled,
}

impl Difference {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Wait => "wait",
            Self::Sampled => "sampled",
        }
    }
}

/// What was published of a tick rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedLoop {
    /// The tick rate, in Hz.
    pub hz: u32,
    /// Frames a second.
    pub rate_hz: f64,
    /// The share of a CPU, as `top` showed it.
    pub shown_share: f64,
}

impl KernelComparison {
    /// Whether the model agrees with every cell, and has something to say of each.
    pub fn agrees(&self) -> bool {
        let agrees = |cell: &KernelCell| cell.predicted.is_some() && cell.differs.is_empty();
        !self.cells.is_empty() && self.cells.iter().all(agrees)
    }
}
