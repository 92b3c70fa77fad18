//! Comparisons: the result of every verb that compares settings, kernels, recordings or numbers.
//!
//! A [`Comparison`] consists of arms, metrics and effects. Each [`Arm`] has a [`Figure`] for each
//! [`Metric`], and an [`ArmEffect`] is the difference between two arms in one metric. The
//! [`Experiment`] holds what is particular to one kind of comparison. Text, plots and JSON are
//! built the same way for all kinds.

mod arm;
mod distributions;
mod effect;
mod experiment;
mod fail_if;
mod metric;
mod recordings;
mod trial;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;

pub use arm::{Arm, ArmFigures, Figure, Origin, Setting, tabulate};
pub use distributions::{ComparedDistribution, DistributionsRecord, NoInterval, WithoutInterval};
pub use effect::{ArmEffect, Check, Contrast, Effect, Predicted, Scale, Verdict};
pub use experiment::{
    Experiment, KernelsRecord, LoopsRecord, PredictionRecord, PublishedLoop, SweepRecord, Tolerance,
};
pub use fail_if::{Bound, FailIf, FailIfError, FailIfResult, Outcome, Relation};
pub use metric::{Better, Measure, Metric, Unit};
pub use recordings::{BeatChange, ComparedRecording, RecordingsRecord};
pub use trial::{Design, ResourceEffect, RunPurpose, StoppedEarly, Trial, TrialRecord, TrialRun};

/// A comparison of several arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Version of ticktax that wrote the document.
    pub tool_version: String,
    /// The machine; `None` if the arms do not come from a single known machine.
    pub machine: Option<Machine>,
    /// Start, in seconds since 1970 by the wall clock; `None` if nothing was measured.
    #[serde(rename = "began_unix_s")]
    pub began_unix: Option<i64>,
    /// Kind of the comparison, with the facts that apply only to this kind.
    pub experiment: Experiment,
    /// Arms.
    pub arms: Vec<Arm>,
    /// Metrics that at least one arm has a figure for.
    pub metrics: Vec<Metric>,
    /// Differences between arms, sorted by arm and then by metric.
    pub effects: Vec<ArmEffect>,
}

impl Comparison {
    /// Returns an empty comparison without a machine.
    pub fn new(tool_version: &str, experiment: Experiment) -> Self {
        Self {
            tool_version: tool_version.to_owned(),
            machine: None,
            began_unix: None,
            experiment,
            arms: Vec::new(),
            metrics: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Returns the index of the metric called `id`.
    pub fn metric(&self, id: &str) -> Option<usize> {
        self.metrics.iter().position(|metric| metric.id == id)
    }

    /// Returns an arm's figure for a measure; `None` if it is unknown.
    pub fn figure<'a>(&self, arm: &'a Arm, measure: Measure) -> Option<&'a Figure> {
        arm.figure(self.metric(measure.id())?)
    }

    /// Returns an arm's value of a measure; `None` if it is unknown.
    pub fn value(&self, arm: &Arm, measure: Measure) -> Option<f64> {
        self.figure(arm, measure)?.value
    }

    /// Returns the unit of an effect's metric.
    pub fn unit(&self, effect: &ArmEffect) -> Unit {
        let metric = self.metrics.get(effect.metric);
        metric.map_or(Unit::None, |metric| metric.unit)
    }

    /// Returns whether no effect exceeds its tolerance and every measured arm is compared with a
    /// predicted one.
    pub fn agrees(&self) -> bool {
        let is_compared = |index: usize| self.effects.iter().any(|effect| effect.arm == index);
        let mut measured = (0..self.arms.len())
            .filter(|&index| self.arms[index].origin == Origin::Measured)
            .peekable();
        measured.peek().is_some()
            && measured.all(is_compared)
            && !self
                .effects
                .iter()
                .any(|effect| effect.contrast.verdict.differs())
    }
}
