//! Paced loops measured on several kernels, compared with the model's prediction for each kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GuestClock;
use crate::Nanos;
use crate::pace::{PaceRule, SleepMethod};

/// Paced loops as measured on real kernels and as predicted by the model. Each arm of the
/// comparison is one loop on one kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelComparison {
    /// Command that ran in each lab guest, with its arguments.
    pub verb: String,
    /// Clock that the lab guests used.
    pub clock: GuestClock,
    /// Largest deviations from the model's predictions that still count as agreement.
    pub tolerance: Tolerance,
    /// Arms, in the order in which they were measured.
    pub arms: Vec<KernelArm>,
    /// Published figures for the same tick rates, highest rate first. They describe a different
    /// loop.
    pub published: Vec<PublishedLoop>,
}

/// Largest deviations from the model's range that still count as agreement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tolerance {
    /// Deviation of the frame rate, as a share of the predicted rate.
    pub rate_share: f64,
    /// Deviation of the mean delay between a frame's due time and its start, as a share of the
    /// loop's period.
    pub wait_period_share: f64,
    /// Deviation of the CPU time according to samples at ticks, as a share of a CPU.
    pub sampled_share: f64,
}

/// One arm of the comparison: a loop on a kernel.
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
    /// CPU time of each frame's work.
    #[serde(rename = "work_ns")]
    pub work: Nanos,
    /// Figures measured on the kernel.
    pub measured: LoopFigures,
    /// The model's prediction; `None` if the model does not cover this loop.
    pub predicted: Option<PredictedLoop>,
    /// Measured figures that deviate from the prediction by more than the tolerance.
    pub differs: Vec<Difference>,
}

/// Figures that were measured for a loop on a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopFigures {
    /// Frames per second.
    pub rate_hz: f64,
    /// Mean time from a frame's due time to its start.
    pub wait_ns: f64,
    /// Steps of the loop's fixed schedule that no frame reached in time, per second. The module
    /// [`pace`](crate::pace) defines schedules and steps.
    pub overshot_hz: f64,
    /// Share of a CPU that the loop used, 0 to 1.
    pub used_share: f64,
    /// Share of a CPU that the loop used according to samples at ticks; `None` if the kernel did
    /// not report its sampled CPU time.
    pub sampled_share: Option<f64>,
}

/// The model's prediction for a loop. The prediction depends on the phase at which the loop starts,
/// so each figure is a range: the minimum and the maximum over all phases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedLoop {
    /// Frames per second.
    pub rate_hz: (f64, f64),
    /// Mean time from a frame's due time to its start.
    pub wait_ns: (f64, f64),
    /// Steps of the loop's fixed schedule that no frame reaches in time, per second.
    pub overshot_hz: (f64, f64),
    /// Share of a CPU that the loop uses according to samples at ticks, 0 to 1.
    pub sampled_share: (f64, f64),
    /// Whether the predicted range of `wait_ns` or of `sampled_share` is wider than twice the
    /// tolerance, so that a measurement within it proves little.
    pub wide: bool,
}

/// A figure that deviates from the model's prediction by more than the tolerance.
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
    /// Returns the name of the figure.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Wait => "wait",
            Self::Sampled => "sampled",
        }
    }
}

/// Published results of a loop at one tick rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedLoop {
    /// Tick rate, in Hz.
    pub hz: u32,
    /// Frames per second.
    pub rate_hz: f64,
    /// Share of a CPU that the loop used, as shown by `top`.
    pub shown_share: f64,
}

impl KernelComparison {
    /// Returns whether the model covers every arm and no figure deviates by more than the
    /// tolerance.
    pub fn agrees(&self) -> bool {
        let agrees = |arm: &KernelArm| arm.predicted.is_some() && arm.differs.is_empty();
        !self.arms.is_empty() && self.arms.iter().all(agrees)
    }
}
