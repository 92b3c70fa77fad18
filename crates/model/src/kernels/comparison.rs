//! Paced loops on several kernels, compared with the model of each kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GuestClock;
use crate::Nanos;
use crate::pace::{PaceRule, SleepMethod};

/// Loops measured on kernels and predicted by the model. Each arm is one loop on one kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelComparison {
    /// Command that ran in each guest, with its arguments.
    pub verb: String,
    /// Clock of the guests.
    pub clock: GuestClock,
    /// Largest allowed deviation from the model.
    pub tolerance: Tolerance,
    /// Arms, in the order in which they were measured.
    pub arms: Vec<KernelArm>,
    /// Published figures of a different loop at the same tick rates, highest rate first.
    pub published: Vec<PublishedLoop>,
}

/// Largest allowed deviations from the model's range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tolerance {
    /// Deviation of the frame rate, as a share of the predicted rate.
    pub rate_share: f64,
    /// Deviation of the mean wait, as a share of the period.
    pub wait_period_share: f64,
    /// Deviation of the sampled CPU time, as a share of a CPU.
    pub sampled_share: f64,
}

/// One loop on one kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelArm {
    /// Name of the kernel.
    pub kernel: String,
    /// Tick rate, in Hz, if known.
    pub hz: Option<u32>,
    /// Boot parameters.
    pub cmdline: String,
    /// Method by which the loop sleeps until its next frame.
    pub sleep: SleepMethod,
    /// Rule that sets when frames are due.
    pub rule: PaceRule,
    /// Requested frame period.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// CPU time per frame.
    #[serde(rename = "work_ns")]
    pub work: Nanos,
    /// Figures measured on the kernel.
    pub measured: LoopFigures,
    /// The model's prediction; `None` if the model does not cover this loop.
    pub predicted: Option<PredictedLoop>,
    /// Figures that differ by more than the tolerance.
    pub differs: Vec<Difference>,
}

/// The figures of a loop on a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopFigures {
    /// Frames per second.
    pub rate_hz: f64,
    /// Mean time from a frame's due time to its start.
    pub wait_ns: f64,
    /// Steps per second of a fixed schedule that no frame reached in time (see
    /// [`pace`](crate::pace)).
    pub overshot_hz: f64,
    /// Share of a CPU that the loop used, 0 to 1.
    pub used_share: f64,
    /// Share of a CPU that the loop used according to samples at ticks; `None` if the kernel did
    /// not report it.
    pub sampled_share: Option<f64>,
}

/// The model's prediction for a loop: minimum and maximum over all phases at which it can start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedLoop {
    /// Frames per second.
    pub rate_hz: (f64, f64),
    /// Mean time from a frame's due time to its start.
    pub wait_ns: (f64, f64),
    /// Steps per second of a fixed schedule that no frame reaches in time.
    pub overshot_hz: (f64, f64),
    /// Share of a CPU that the loop uses according to samples at ticks.
    pub sampled_share: (f64, f64),
    /// Whether the predicted range of the wait or of the sampled share is wider than twice the
    /// tolerance.
    pub wide: bool,
}

/// A figure that differs from the model by more than the tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// Frame rate.
    Rate,
    /// Mean wait.
    Wait,
    /// Sampled CPU time.
    Sampled,
}

impl Difference {
    /// Name of the figure.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Wait => "wait",
            Self::Sampled => "sampled",
        }
    }
}

/// Published figures for one tick rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedLoop {
    /// Tick rate, in Hz.
    pub hz: u32,
    /// Frames per second.
    pub rate_hz: f64,
    /// Share of a CPU, as shown by `top`.
    pub shown_share: f64,
}

impl KernelComparison {
    /// Whether the model covers every arm and every arm agrees with it.
    pub fn agrees(&self) -> bool {
        let agrees = |arm: &KernelArm| arm.predicted.is_some() && arm.differs.is_empty();
        !self.arms.is_empty() && self.arms.iter().all(agrees)
    }
}
