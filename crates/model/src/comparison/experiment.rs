//! The part of a comparison that is particular to one kind of comparison.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DistributionsRecord, RecordingsRecord, Setting, TrialRecord};
use crate::kernels::GuestClock;
use crate::limitation::Limitation;
use crate::net_experiment::TrafficRecord;
use crate::pace::{Choice, PaceArm, PaceEnd};
use crate::policy::PolicyGrant;
use crate::recording::World;
use crate::{Cpu, Nanos};

/// Kind of a comparison, with the facts that apply only to this kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Experiment {
    /// A trial of settings on this machine (`try`).
    Trial(Box<TrialRecord>),
    /// Two lists of numbers measured by another tool (`compare`). The settings of each arm name the
    /// file and, if it contains several lists, the column or command.
    Numbers {
        /// Largest effect that still counts as no difference, as a share of the first list's mean.
        #[serde(rename = "difference_share")]
        difference: f64,
    },
    /// Two distributions measured by another tool (`compare`). The metrics are percentiles. A
    /// percentile without an interval has figures, but no effect.
    Distributions(Box<DistributionsRecord>),
    /// Two recordings or statements (`compare`), with an effect for each metric. The metrics of
    /// accounts come first, largest change first. Each account has two: its share of the time of
    /// all CPUs, and its number of intervals per second of wall-clock time. Processes with the same
    /// name share one account.
    Recordings(Box<RecordingsRecord>),
    /// A prediction for other settings (`sim`). If there is a measurement, it is the first arm, and
    /// its frame rate is compared with the prediction for the same settings.
    Prediction(Box<PredictionRecord>),
    /// A parameter sweep (`sweep`). The arms are the first few combinations that could not be
    /// simulated, and those with extreme values.
    Sweep(Box<SweepRecord>),
    /// Paced loops on real kernels (`lab compare`). Each loop has a measured arm, followed by the
    /// predicted one. For each metric, the predicted arm has a range that covers all phases at
    /// which the loop can start.
    Kernels(Box<KernelsRecord>),
    /// Paced loops that took turns (`pace --vary`).
    Loops(Box<LoopsRecord>),
    /// Network traffic under all combinations of several factors (`net pair --vary`). The effects
    /// are those of single factors and pairs of factors, except effects that cannot be separated
    /// from others. Each is given for the CPU time per byte, the throughput and the parts of the
    /// CPU time.
    Traffic(Box<TrafficRecord>),
}

/// Record of a prediction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionRecord {
    /// Recording or scenario that the workload was taken from.
    pub load: String,
    /// Whether `load` is a recording. If not, it is a scenario.
    pub recorded: bool,
    /// Program whose loop and CPU time the figures describe.
    pub program: Option<String>,
    /// Length of each predicted run.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Number of runs per setting, each with a newly drawn random workload.
    pub runs: u32,
    /// Probability that the figure of one more run would lie within the figure's interval.
    #[serde(rename = "interval_probability")]
    pub coverage: f64,
    /// Seed of the first run.
    pub seed: u64,
    /// Inputs of the model that were taken from the file in `load`.
    pub taken: Vec<String>,
    /// Assumptions that the prediction is based on.
    pub assumed: Vec<String>,
    /// Effects that the model ignores.
    pub left_out: Vec<String>,
}

/// Record of a sweep. The results of all combinations are in a separate table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepRecord {
    /// Scenario file.
    pub scenario: String,
    /// Name of each varied parameter (axis), with the number of its values.
    pub axes: Vec<(String, u64)>,
    /// Number of combinations.
    pub combinations: u64,
    /// Number of combinations that an earlier invocation had already computed.
    pub found: u64,
    /// Number of damaged records in the journal of results. Their combinations were simulated
    /// again.
    pub damaged: u64,
    /// Number of combinations that could not be simulated.
    pub failed: u64,
    /// Settings shared by all combinations that could not be simulated, except for axes with a
    /// single value.
    pub failed_at: Vec<Setting>,
    /// Number of events that this invocation simulated.
    pub events: u64,
    /// Wall-clock duration of this invocation.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
    /// File that contains the results of all combinations.
    pub results: String,
    /// Number of combinations with a value in the column of results that the arms are ranked by; 0
    /// if the user chose no column.
    pub ranked: u64,
    /// Number of arms listed for their high values. They come first, in descending order, followed
    /// by those with the lowest values, also in descending order.
    pub highest: usize,
}

/// Record of a comparison of kernels with their models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelsRecord {
    /// Command that ran in each lab guest, with its arguments.
    pub verb: String,
    /// Clock that the lab guests used.
    pub clock: GuestClock,
    /// Largest deviations from the model's predictions that still count as agreement.
    pub tolerance: Tolerance,
    /// Published figures for the same tick rates, highest rate first. They describe a different
    /// loop.
    pub published: Vec<PublishedLoop>,
}

/// Largest deviations from the model's range that still count as agreement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tolerance {
    /// Deviation of the frame rate, as a share of the predicted rate.
    pub rate_share: f64,
    /// Deviation of the mean delay from a frame's due time to its start, as a share of the loop's
    /// period.
    pub wait_period_share: f64,
    /// Deviation of the CPU time measured by sampling at ticks, as a share of a CPU.
    pub sampled_share: f64,
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

/// Record of paced loops that took turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopsRecord {
    /// Whether the loops ran on a real machine, in a lab guest or in the simulator.
    pub world: World,
    /// Limitations.
    pub limitations: Vec<Limitation>,
    /// CPU on which the loops ran.
    pub cpu: Cpu,
    /// Requested and granted scheduling policy; `None` if no loop ran.
    pub policy: Option<PolicyGrant>,
    /// Planned length of each turn.
    #[serde(rename = "turn_ns")]
    pub turn: Nanos,
    /// Planned number of turns per arm.
    pub rounds: u64,
    /// Results of each arm, in the order of the arms.
    pub loops: Vec<PaceArm>,
    /// The quantile of the waits that is shown and compared, 0 to 1. It is the highest one that the
    /// number of frames in every arm supports. `None` if an arm has too few frames for any
    /// quantile.
    pub quantile: Option<f64>,
    /// Recommendations, one for each combination of frame rate and work.
    pub choices: Vec<Choice>,
    /// Why the comparison stopped early; `None` if it ran to the end.
    pub ended_early: Option<PaceEnd>,
}
