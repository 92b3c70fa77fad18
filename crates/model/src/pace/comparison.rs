//! Results of the variants (arms) of a paced loop.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CpuReading, Distribution, Figures, LoopSpec};
use crate::Nanos;
use crate::comparison::{Arm, Figure, Measure, Origin, Setting};

/// One arm of the comparison: a loop with one combination of the varied parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PaceArm {
    /// Specification of the loop.
    #[serde(flatten)]
    pub spec: LoopSpec,
    /// Number of turns completed.
    pub turns: u64,
    /// Frame statistics over all turns; `None` if no frame ran.
    pub figures: Option<Figures>,
    /// CPU time over all turns, according to the thread's own CPU clock.
    #[serde(rename = "cpu_time_ns")]
    pub cpu_time: Nanos,
    /// Wall-clock time of all turns together.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// CPU time over all turns, according to each available clock.
    #[serde(default)]
    pub readings: Vec<CpuReading>,
    /// Time that [`SleepMethod::Hybrid`](super::SleepMethod::Hybrid) spun before each frame was
    /// due, averaged over the turns. Each turn is calibrated separately.
    #[serde(default, rename = "margin_ns")]
    pub margin: Option<Nanos>,
    /// Results of each turn, which show whether differences between arms are due to chance.
    #[serde(default)]
    pub by_turn: Vec<PaceTurn>,
}

/// Results of one turn of an arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PaceTurn {
    /// Number of slots that no frame served in time: dropped slots, slipped slots, and slots whose
    /// frame started late.
    pub late: u64,
    /// Number of slots in this turn.
    pub wanted: u64,
    /// Distribution of the times from a frame's due time to its start; `None` if there were no
    /// frames.
    pub wait: Option<Distribution>,
    /// CPU time of the turn, according to the thread's CPU clock.
    #[serde(rename = "cpu_time_ns")]
    pub cpu_time: Nanos,
    /// Wall-clock time of the turn.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
}

impl PaceTurn {
    /// Returns the results of a turn, given its frame statistics and times.
    pub fn new(figures: Option<&Figures>, cpu_time: Nanos, elapsed: Nanos) -> Self {
        Self {
            late: figures.map_or(0, Figures::untimely),
            wanted: figures.map_or(0, wanted),
            wait: figures.and_then(|figures| figures.wait.clone()),
            cpu_time,
            elapsed,
        }
    }
}

fn wanted(figures: &Figures) -> u64 {
    figures.expected.unwrap_or(figures.frames)
}

impl PaceArm {
    /// Returns the arm of a comparison for this loop, and its figures. `q` is the quantile of the
    /// waits to include.
    pub fn arm(&self, q: Option<f64>) -> (Arm, Vec<(Measure, Figure)>) {
        let settings = vec![
            Setting::new("rate", self.spec.rate),
            Setting::new("work", self.spec.work),
            Setting::new("sleep", self.spec.sleep),
            Setting::new("rule", self.spec.rule),
        ];
        let arm = Arm {
            runs: self.turns,
            ..Arm::new(Origin::Measured, settings)
        };
        let Some(figures) = &self.figures else {
            return (arm, Vec::new());
        };
        let late = match q {
            Some(q) if q > 0.95 => Measure::LateP99,
            Some(q) if q > 0.75 => Measure::LateP90,
            _ => Measure::LateMedian,
        };
        let wait = figures.wait.as_ref().zip(q);
        let wait = wait.and_then(|(wait, q)| wait.quantile(q));
        let lost = figures.dropped + figures.slipped.unwrap_or_default();
        let known = [
            (Measure::Fps, figures.average_fps),
            (Measure::Lost, Some(lost as f64)),
            (Measure::Late, Some(figures.late as f64)),
            (late, wait.map(|wait| wait.0 as f64)),
            (Measure::Cpu, Some(self.cpu_time.share_of(self.elapsed))),
        ];
        let known = known.into_iter();
        let known = known.filter_map(|(measure, value)| Some((measure, value?.into())));
        (arm, known.collect())
    }

    /// Returns the number of slots that no frame served in time, over all turns: dropped slots,
    /// slipped slots, and slots whose frame started late.
    pub fn late(&self) -> u64 {
        self.figures.as_ref().map_or(0, Figures::untimely)
    }

    /// Returns the number of slots over all turns.
    pub fn wanted(&self) -> u64 {
        self.figures.as_ref().map_or(0, wanted)
    }
}

/// Recommendation for one combination of frame rate and work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Choice {
    /// Frames per second.
    #[serde(rename = "rate_hz")]
    pub rate: f64,
    /// CPU time of each frame's work.
    #[serde(rename = "work_ns")]
    pub work: Nanos,
    /// Indices of the best arms. There are several if the measurements do not show which one is
    /// best.
    pub best: Vec<usize>,
    /// Criterion that excluded the last arms from `best`; `None` if all arms are listed there.
    pub by: Option<Criterion>,
}

/// Criteria for recommending an arm, most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// The arm has fewer slots that no frame served in time.
    LateFrames,
    /// Shorter waits.
    Lateness,
    /// Less CPU time.
    Cpu,
}
