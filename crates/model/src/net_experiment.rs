//! Factorial experiments with traffic: what each setting costs, alone and in combination.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::net::{Link, TrafficSpec};
use crate::trial::{Contrast, Effect};

/// A setting in effect, such as `timestamps` = `on`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// Name.
    pub name: String,
    /// Value, as reported by the kernel.
    pub value: String,
}

impl Fact {
    /// A fact with this name and value.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "most callers create the value for this call"
    )]
    pub fn new(name: &str, value: impl ToString) -> Self {
        Self {
            name: name.to_owned(),
            value: value.to_string(),
        }
    }
}

/// State of a TCP connection at its end, as seen by the sender (`TCP_INFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionFacts {
    /// Segments received: acknowledgements, if the other end sends no data.
    pub acks: u32,
    /// Payload of a full segment, in bytes.
    pub segment_bytes: u32,
    /// Smoothed round-trip time, including queueing.
    #[serde(rename = "round_trip_ns")]
    pub round_trip: Nanos,
    /// Minimum round-trip time in the last few minutes.
    #[serde(rename = "shortest_round_trip_ns")]
    pub shortest_round_trip: Nanos,
    /// Receive window most recently advertised by the other end, in bytes; `None` on older kernels.
    pub peer_window_bytes: Option<u32>,
}

/// Where a factor is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FactorPlace {
    /// The generated traffic itself.
    Traffic,
    /// A socket option.
    Socket,
    /// The virtual devices.
    Device,
    /// A sysctl in both network namespaces.
    Namespace,
}

/// A varied factor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VariedFactor {
    /// Name, as given on the command line.
    pub name: String,
    /// Where the factor is set.
    pub place: FactorPlace,
    /// Values, at least two. The first is the baseline for all others.
    pub values: Vec<String>,
}

/// The plan and the progress of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentPlan {
    /// Number of completed blocks. Each block runs every arm twice: once in random order, then in
    /// reverse.
    pub blocks: u64,
    /// Number of planned blocks.
    pub planned: u64,
    /// Seed for the random order within each block.
    pub seed: u64,
    /// Largest effect that still counts as no difference, as a share of the figure at the factor's
    /// first value.
    #[serde(rename = "resolution_share")]
    pub resolution: f64,
    /// Number of pilot blocks, from which the planned number was computed. They are not part of
    /// `blocks`.
    pub pilot_blocks: Option<u64>,
    /// Standard deviation of a block's effect, as a share: the largest one in the pilot blocks or,
    /// if there was no pilot, in the blocks.
    #[serde(rename = "spread_share")]
    pub spread: Option<f64>,
    /// Number of blocks needed to detect smaller effects; empty if the spread is unknown.
    pub needed: Vec<BlocksNeeded>,
    /// Sending time of each run.
    #[serde(rename = "run_ns")]
    pub run: Nanos,
    /// Wall-clock time of the experiment.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
    /// Why the experiment ended before its last block, such as Ctrl-C or a failed run.
    pub ended_early: Option<String>,
}

/// Number of blocks needed to detect an effect with a power of 80 %, given the spread of the
/// blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlocksNeeded {
    /// Size of the effect, as a share.
    pub share: f64,
    /// Number of blocks, at a significance level corrected for all effects.
    pub blocks: u64,
}

/// CPU time in ns per byte, in total and by user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuCost {
    /// Total CPU time.
    pub ns_per_byte: f64,
    /// CPU time of the sender's thread.
    pub sender_ns_per_byte: f64,
    /// CPU time of the receiver's thread.
    pub receiver_ns_per_byte: f64,
    /// CPU time of network softirqs; 0 if nothing was traced.
    pub softirq_ns_per_byte: f64,
}

/// One combination of the factors' values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentArm {
    /// Index of the value of each factor.
    pub values: Vec<usize>,
    /// Settings in effect, as read back from the kernel.
    pub facts: Vec<Fact>,
    /// Index of the first arm with the same settings in effect, which may be this arm.
    pub same_as: usize,
    /// Number of runs in completed blocks.
    pub runs: u64,
    /// Mean payload rate, in bits per second.
    #[serde(rename = "bits_hz")]
    pub rate: f64,
    /// Mean CPU cost.
    pub cpu: CpuCost,
    /// Packets sent per payload byte. For TCP, segments.
    pub packets_per_byte: f64,
    /// Acknowledgements per payload byte; `None` for UDP.
    pub acks_per_byte: Option<f64>,
    /// System calls by both ends per payload byte.
    pub calls_per_byte: f64,
    /// Minimum round-trip time over all runs.
    #[serde(rename = "shortest_round_trip_ns")]
    pub shortest_round_trip: Option<Nanos>,
    /// Mean over all runs of the smoothed round-trip time at the end of the run.
    #[serde(rename = "round_trip_ns")]
    pub round_trip: Option<Nanos>,
}

/// A factor at one of its values. A main effect has one term, an interaction has two.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Term {
    /// Index of the factor.
    pub factor: usize,
    /// Index of the value.
    pub value: usize,
}

/// The effect of a value relative to its factor's first value, averaged over all other factors. For
/// an interaction, the additional effect of combining two values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FactorEffect {
    /// One term for a main effect, two for an interaction.
    pub terms: Vec<Term>,
    /// Effect on CPU time per byte.
    pub cpu: MeasuredEffect,
    /// Effect on the throughput.
    pub rate: MeasuredEffect,
    /// Additional CPU time per byte.
    pub added: CpuCost,
}

/// An effect on one measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredEffect {
    /// Relative effect and conclusion. The probability is corrected for all effects and both
    /// measures.
    #[serde(flatten)]
    pub contrast: Contrast,
    /// Absolute effect in the measure's unit: ns per byte, or bits per second.
    pub amount: Option<Effect>,
}

/// Which effects the design can separate, given the settings in effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DesignCheck {
    /// Number of arms.
    pub arms: usize,
    /// Number of arms with different settings in effect.
    pub different: usize,
    /// Number of effects and interactions requested.
    pub effects: usize,
    /// Number of effects that can be separated: the rank of the model's matrix over the different
    /// arms.
    pub rank: usize,
    /// Factors that have no effect, either ever or while another factor has a certain value.
    pub idle: Vec<IdleFactor>,
    /// Effects that are zero by construction, because they compare identical arms.
    pub nothing: Vec<Vec<Term>>,
    /// Effects that are combinations of others.
    pub aliases: Vec<Alias>,
}

impl DesignCheck {
    /// Whether all requested effects can be separated.
    pub fn is_whole(&self) -> bool {
        self.rank == self.effects && self.different == self.arms
    }
}

/// A factor that has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleFactor {
    /// Index of the factor.
    pub factor: usize,
    /// Value of another factor at which this factor has no effect; `None` if it never has an
    /// effect.
    pub while_at: Option<Term>,
}

/// An effect whose column in the model's matrix is a linear combination of others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Alias {
    /// The effect that is a combination of others.
    pub terms: Vec<Term>,
    /// The linear combination.
    pub is: Vec<AliasPart>,
}

/// A term of a linear combination of effects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AliasPart {
    /// Coefficient of the effect.
    pub value: f64,
    /// Effect.
    pub terms: Vec<Term>,
}

/// A unit of traffic that costs CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CostUnit {
    /// A payload byte.
    Byte,
    /// A sent packet.
    Packet,
    /// An acknowledgement.
    Ack,
    /// A system call by either end.
    Call,
}

impl CostUnit {
    /// All units, in the order in which they are fitted.
    pub const ALL: [Self; 4] = [Self::Byte, Self::Packet, Self::Call, Self::Ack];
}

/// The CPU cost of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnitCost {
    /// Unit.
    pub unit: CostUnit,
    /// CPU time per unit, in ns; `None` if there are fewer than two blocks.
    pub ns: Option<Effect>,
}

/// A unit whose cost cannot be separated from the cost of other units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoundUnit {
    /// Unit without a separate cost.
    pub unit: CostUnit,
    /// Units that always occur together with `unit`. Their costs include its cost.
    pub with: Vec<CostUnit>,
}

/// CPU costs of a byte, a packet, a system call and an acknowledgement, fitted to the arms by
/// least squares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnitCosts {
    /// Costs that could be determined; empty if they do not explain the arms' CPU times.
    pub costs: Vec<UnitCost>,
    /// Units that have no separate cost, because they occur together with others in all arms.
    pub bound: Vec<BoundUnit>,
    /// Number of equations: arms with different settings in effect.
    pub equations: usize,
    /// Root mean square of the residual CPU time per byte, as a share; `None` if no degrees of
    /// freedom remain.
    #[serde(rename = "misfit_share")]
    pub misfit: Option<f64>,
    /// Why no costs could be determined.
    pub refused: Option<CostRefusal>,
}

/// Why the costs of units could not be determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum CostRefusal {
    /// There is only one block, so the spread is unknown.
    TooFewBlocks,
    /// The residuals are too large: these units do not explain the arms' times.
    Misfit,
    /// A unit would have a negative cost.
    Negative {
        /// Unit with the negative cost.
        unit: CostUnit,
    },
}

/// The result of `ticktax net pair --vary`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetExperiment {
    /// Version of ticktax that wrote the document.
    pub tool_version: String,
    /// Host name.
    pub host: String,
    /// Link, without the settings that are varied.
    pub link: Link,
    /// Traffic, without the settings that are varied.
    pub spec: TrafficSpec,
    /// Varied factors.
    pub factors: Vec<VariedFactor>,
    /// Plan of the experiment and its progress.
    pub plan: ExperimentPlan,
    /// Why CPU time covers only the two threads, measured by their own clocks; `None` if CPU time
    /// was traced.
    pub no_books: Option<String>,
    /// All combinations, in the order of the factors.
    pub arms: Vec<ExperimentArm>,
    /// Effects that the design can separate.
    pub check: DesignCheck,
    /// Main effects, followed by two-factor interactions. Effects that cannot be separated are
    /// omitted.
    pub effects: Vec<FactorEffect>,
    /// Costs of the units.
    pub costs: UnitCosts,
}
