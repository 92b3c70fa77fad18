//! Variants of a paced loop, side by side.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CpuReading, Distribution, Figures, LoopSpec, PaceEnd};
use crate::limitation::Limitation;
use crate::machine::Machine;
use crate::policy::PolicyGrant;
use crate::recording::World;
use crate::{Cpu, Nanos};

/// Variants of a loop, each run several times in turns, and which to choose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PaceComparison {
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// Which world it is of.
    #[serde(default)]
    pub world: World,
    /// What could not be seen, and why.
    #[serde(default)]
    pub limitations: Vec<Limitation>,
    /// The machine.
    pub machine: Machine,
    /// Start, as seconds since 1970 on the wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// Where the loops ran.
    pub cpu: Cpu,
    /// The scheduling policy that the loops asked for and got; `None` where none ran.
    pub policy: Option<PolicyGrant>,
    /// How long one turn was to last.
    #[serde(rename = "turn_ns")]
    pub turn: Nanos,
    /// How many turns each was to have.
    pub rounds: u64,
    /// The variants, in the order in which they were named.
    pub rows: Vec<PaceVariant>,
    /// The quantile of the waits that is told and compared: the highest that every row has enough
    /// frames for; `None` where one has none to speak of.
    pub quantile: Option<f64>,
    /// The choice for each rate and work.
    pub choices: Vec<Choice>,
    /// What ended it early, if anything did.
    pub ended_early: Option<PaceEnd>,
}

/// One variant: a combination of what is varied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PaceVariant {
    /// What it was asked for.
    #[serde(flatten)]
    pub spec: LoopSpec,
    /// Turns that it had.
    pub turns: u64,
    /// What became of the frames of all turns; `None` where there was none.
    pub figures: Option<Figures>,
    /// CPU time of all turns, by the thread's own clock.
    #[serde(rename = "cpu_time_ns")]
    pub cpu_time: Nanos,
    /// How long all turns took.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// What each clock said of all turns.
    #[serde(default)]
    pub readings: Vec<CpuReading>,
    /// How long before a frame was due [`SleepMethod::Hybrid`](super::SleepMethod::Hybrid) began to spin: the mean of its turns,
    /// each of which measured its own.
    #[serde(default, rename = "margin_ns")]
    pub margin: Option<Nanos>,
    /// What each turn brought, by which differences are told from chance.
    #[serde(default)]
    pub by_turn: Vec<PaceTurn>,
}

/// What one turn of a variant brought.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PaceTurn {
    /// Slots without a frame in time: dropped, slipped, or begun late.
    pub late: u64,
    /// Slots that there were.
    pub wanted: u64,
    /// How long frames waited to begin; `None` where there was none.
    pub wait: Option<Distribution>,
    /// CPU time, by the thread's own clock.
    #[serde(rename = "cpu_time_ns")]
    pub cpu_time: Nanos,
    /// How long it took.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
}

impl PaceTurn {
    /// The turn in which frames did this.
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
    figures.wanted.unwrap_or(figures.frames)
}

impl PaceVariant {
    /// Slots without a frame in time: dropped, slipped, or begun late.
    pub fn late(&self) -> u64 {
        self.figures.as_ref().map_or(0, Figures::untimely)
    }

    /// Slots that there were.
    pub fn wanted(&self) -> u64 {
        self.figures.as_ref().map_or(0, wanted)
    }
}

/// Which of the rows of one rate and one work to choose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Choice {
    /// Frames a second.
    #[serde(rename = "rate_hz")]
    pub rate: f64,
    /// CPU time of each frame's work.
    #[serde(rename = "work_ns")]
    pub work: Nanos,
    /// The best, by their places among the rows; several where nothing tells them apart.
    pub best: Vec<usize>,
    /// By what the last of the others was ruled out; `None` where nothing was.
    pub by: Option<Criterion>,
}

/// What speaks for a choice, the weightiest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// Fewer slots without a frame in time.
    LateFrames,
    /// Shorter waits.
    Lateness,
    /// Less CPU time.
    Cpu,
}
