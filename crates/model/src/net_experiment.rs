//! Factorial experiments with network traffic, which show what each setting costs, alone and in
//! combination with others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::comparison::Effect;
use crate::net::{Link, TrafficSpec};

/// A setting in effect, such as `timestamps` = `on`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// Name.
    pub name: String,
    /// Value, as reported by the kernel.
    pub value: String,
}

impl Fact {
    /// Returns a fact with this name and value.
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

/// State of a TCP connection when it was closed, as seen by the sender (`TCP_INFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionFacts {
    /// Number of segments received. If the other end sends no data, these are acknowledgements.
    pub acks: u32,
    /// Payload of a full segment, in bytes.
    pub segment_bytes: u32,
    /// Smoothed round-trip time, including time spent in queues.
    #[serde(rename = "round_trip_ns")]
    pub round_trip: Nanos,
    /// Minimum round-trip time in the last few minutes.
    #[serde(rename = "shortest_round_trip_ns")]
    pub shortest_round_trip: Nanos,
    /// Size of the last receive window that the other end advertised, in bytes; `None` if the
    /// kernel is too old to report it.
    pub peer_window_bytes: Option<u32>,
}

/// Where a factor's value is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FactorPlace {
    /// The generated traffic itself.
    Traffic,
    /// A socket option.
    Socket,
    /// The virtual devices.
    Device,
    /// A sysctl, set in both network namespaces.
    Namespace,
}

/// A varied factor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VariedFactor {
    /// Name of the factor, as given on the command line.
    pub name: String,
    /// Where the factor is set.
    pub place: FactorPlace,
    /// Values of the factor, at least two. All others are compared with the first.
    pub values: Vec<String>,
}

/// Plan and progress of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentPlan {
    /// Number of completed blocks. In each block, every arm (combination of values) runs twice:
    /// once in random order, then in reverse order.
    pub blocks: u64,
    /// Number of blocks planned.
    pub planned: u64,
    /// Seed for the random order within each block.
    pub seed: u64,
    /// Largest effect that still counts as no difference, relative to the figure at the factor's
    /// first value.
    #[serde(rename = "resolution_share")]
    pub resolution: f64,
    /// Number of pilot blocks, which were run first to compute how many blocks are needed. They are
    /// not included in `blocks`. `None` if there was no pilot.
    pub pilot_blocks: Option<u64>,
    /// Standard deviation of the effect measured in one block, as a share. It is the largest
    /// standard deviation of any effect in the pilot blocks or, without a pilot, in the blocks of
    /// the experiment.
    #[serde(rename = "spread_share")]
    pub spread: Option<f64>,
    /// Number of blocks needed to detect smaller effects; empty if the spread is unknown.
    pub needed: Vec<BlocksNeeded>,
    /// Duration of the traffic in each run.
    #[serde(rename = "run_ns")]
    pub run: Nanos,
    /// Wall-clock time of the experiment.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
    /// Why the experiment ended before its last block, such as Ctrl-C or a failed run; `None` if it
    /// ran to the end.
    pub ended_early: Option<String>,
}

/// Number of blocks needed to detect an effect of a given size with a probability (power) of 80 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlocksNeeded {
    /// Size of the effect, as a share.
    pub share: f64,
    /// Number of blocks needed. The significance level is corrected for the number of effects
    /// tested.
    pub blocks: u64,
}

/// CPU time in ns per payload byte: the total, and the parts used by threads and softirqs.
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

/// A factor with one of its values. A main effect has one such term, an interaction has two.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Term {
    /// Index of the factor.
    pub factor: usize,
    /// Index of the value.
    pub value: usize,
}

/// The effects that an experiment can separate from each other, given the settings in effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DesignCheck {
    /// Number of arms.
    pub arms: usize,
    /// Number of arms with different settings in effect.
    pub different: usize,
    /// Number of effects requested, including interactions.
    pub effects: usize,
    /// Number of effects that can be separated from each other, which is the rank of the model's
    /// matrix over the different arms.
    pub rank: usize,
    /// Factors that have no effect, either ever or while another factor has a certain value.
    pub idle: Vec<IdleFactor>,
    /// Effects that are zero by construction, because the arms they compare have the same settings
    /// in effect.
    pub nothing: Vec<Vec<Term>>,
    /// Effects that cannot be separated from a combination of other effects.
    pub aliases: Vec<Alias>,
}

impl DesignCheck {
    /// Returns whether all requested effects can be separated and no two arms have the same
    /// settings in effect.
    pub fn is_whole(&self) -> bool {
        self.rank == self.effects && self.different == self.arms
    }
}

/// A factor that has no effect, always or under a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleFactor {
    /// Index of the factor.
    pub factor: usize,
    /// Value of another factor at which this factor has no effect; `None` if it never has an
    /// effect.
    pub while_at: Option<Term>,
}

/// An effect that cannot be separated from others, because its column in the model's matrix is a
/// linear combination of theirs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Alias {
    /// The effect that is a linear combination of others.
    pub terms: Vec<Term>,
    /// The linear combination.
    pub is: Vec<AliasPart>,
}

/// One part of a linear combination of effects: an effect and its coefficient.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AliasPart {
    /// Coefficient of the effect.
    pub value: f64,
    /// Effect.
    pub terms: Vec<Term>,
}

/// A unit of traffic that has a CPU cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CostUnit {
    /// A payload byte.
    Byte,
    /// A sent packet.
    Packet,
    /// An acknowledgement.
    Ack,
    /// A system call, at either end.
    Call,
}

impl CostUnit {
    /// All units, in the order in which the fit determines their costs.
    pub const ALL: [Self; 4] = [Self::Byte, Self::Packet, Self::Call, Self::Ack];
}

/// CPU cost of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnitCost {
    /// Unit.
    pub unit: CostUnit,
    /// CPU time per unit, in ns; `None` with fewer than two blocks.
    pub ns: Option<Effect>,
}

/// A unit whose cost cannot be separated from the costs of other units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoundUnit {
    /// Unit whose cost is not known separately.
    pub unit: CostUnit,
    /// Units that always occur together with `unit`, so their costs include its cost.
    pub with: Vec<CostUnit>,
}

/// CPU costs of a byte, a packet, a system call and an acknowledgement, fitted to the CPU times of
/// the arms by least squares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnitCosts {
    /// Costs that could be determined; empty if these units do not explain the arms' CPU times.
    pub costs: Vec<UnitCost>,
    /// Units whose cost is not known separately, because they occur together with other units in
    /// all arms.
    pub bound: Vec<BoundUnit>,
    /// Number of equations in the fit: one for each arm with different settings in effect.
    pub equations: usize,
    /// Root mean square of the difference between fitted and measured CPU time per byte, as a share
    /// of the root mean square of the measured times. `None` if the fit has no degrees of freedom
    /// left.
    #[serde(rename = "misfit_share")]
    pub misfit: Option<f64>,
    /// Why no costs could be determined; `None` if some could.
    pub refused: Option<CostRefusal>,
}

/// Why the CPU costs of the units could not be determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum CostRefusal {
    /// There is only one block, so the variation between blocks is unknown.
    TooFewBlocks,
    /// The differences between fitted and measured times are too large, so these units do not
    /// explain the times.
    Misfit,
    /// According to the fit, a unit would have a negative cost.
    Negative {
        /// Unit with the negative cost.
        unit: CostUnit,
    },
}

/// Record of an experiment with network traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficRecord {
    /// Host name.
    pub host: String,
    /// Link that carries the traffic, excluding the settings that the experiment varies.
    pub link: Link,
    /// Specification of the traffic, excluding the settings that the experiment varies.
    pub spec: TrafficSpec,
    /// Factors that the experiment varies.
    pub factors: Vec<VariedFactor>,
    /// Plan of the experiment and its progress.
    pub plan: ExperimentPlan,
    /// Why the CPU times cover only the sending and the receiving thread, as measured by their own
    /// CPU clocks. `None` if all CPU time was traced.
    pub no_books: Option<String>,
    /// Details of each arm. There is one for each combination of the factors' values, in the order
    /// of the factors.
    pub details: Vec<TrafficArm>,
    /// The effects that the design can separate from each other.
    pub check: DesignCheck,
    /// CPU costs of the units of traffic.
    pub costs: UnitCosts,
}

/// Details of an arm of the experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficArm {
    /// Settings in effect, as read back from the kernel.
    pub facts: Vec<Fact>,
    /// Index of the first arm with the same settings in effect, which can be this arm itself.
    pub same_as: usize,
    /// Shortest round-trip time in all runs.
    #[serde(rename = "shortest_round_trip_ns")]
    pub shortest_round_trip: Option<Nanos>,
    /// Smoothed round-trip time at the end of a run, averaged over all runs.
    #[serde(rename = "round_trip_ns")]
    pub round_trip: Option<Nanos>,
}
