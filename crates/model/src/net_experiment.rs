//! Factorial experiments with traffic: what each setting costs, alone and with others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::net::{Link, TrafficSpec};
use crate::trial::{Effect, Verdict};

/// Something that is in effect: `timestamps`, `on`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// What it is of.
    pub name: String,
    /// As the kernel says it.
    pub value: String,
}

impl Fact {
    /// A fact in these words.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "most callers make the value for this call"
    )]
    pub fn new(name: &str, value: impl ToString) -> Self {
        Self {
            name: name.to_owned(),
            value: value.to_string(),
        }
    }
}

/// What the kernel says of a TCP connection at its end, at the sender (`TCP_INFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionFacts {
    /// Segments that came back: acknowledgements, where the other end sends no data.
    pub acks: u32,
    /// The data of a full segment, in bytes.
    pub segment_bytes: u32,
    /// How long an answer takes, as the kernel smooths it: with what waits in queues.
    #[serde(rename = "round_trip_ns")]
    pub round_trip: Nanos,
    /// The shortest answer of the last minutes.
    #[serde(rename = "shortest_round_trip_ns")]
    pub shortest_round_trip: Nanos,
    /// The window that the receiver offered last, in bytes; older kernels do not tell.
    pub peer_window_bytes: Option<u32>,
}

/// Where a factor is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FactorPlace {
    /// What is sent, and how.
    Traffic,
    /// An option of the sockets.
    Socket,
    /// The virtual devices.
    Device,
    /// A sysctl of both network namespaces.
    Namespace,
}

/// What was varied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VariedFactor {
    /// Its name, as it was typed.
    pub name: String,
    /// Where it is set.
    pub place: FactorPlace,
    /// Its values, two at least; the others stand beside the first.
    pub values: Vec<String>,
}

/// How it was planned, and how far it came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentPlan {
    /// Blocks that are whole. Each has every cell twice, in a drawn order and back again.
    pub blocks: u64,
    /// Blocks that were to be.
    pub planned: u64,
    /// Of what the order within each block was drawn.
    pub seed: u64,
    /// The largest effect that counts as none, as a share of the first level.
    #[serde(rename = "resolution_share")]
    pub resolution: f64,
    /// By how many blocks of a pilot the number of blocks was chosen; they are none of those above.
    pub pilot_blocks: Option<u64>,
    /// The standard deviation of a block's effect, as a share: the largest of what the pilot, or else the blocks, show.
    #[serde(rename = "spread_share")]
    pub spread: Option<f64>,
    /// Blocks that it takes to find smaller effects; empty where no spread is known.
    pub needed: Vec<BlocksNeeded>,
    /// How long each run sends.
    #[serde(rename = "run_ns")]
    pub run: Nanos,
    /// How long all of it took.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
    /// Ctrl-C, or a run that failed, ended it before its last block: why.
    pub ended_early: Option<String>,
}

/// How many blocks find an effect in four of five experiments, by the spread of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlocksNeeded {
    /// The effect, as a share.
    pub share: f64,
    /// Blocks, at the level at which all effects are judged together.
    pub blocks: u64,
}

/// CPU time by who used it, in ns a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuCost {
    /// All of it.
    pub ns_per_byte: f64,
    /// The sender's thread.
    pub sender_ns_per_byte: f64,
    /// The receiver's thread.
    pub receiver_ns_per_byte: f64,
    /// Softirqs that are the network's; 0 where nothing was traced.
    pub softirq_ns_per_byte: f64,
}

/// One combination of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentCell {
    /// Which value of each factor, by their places.
    pub values: Vec<usize>,
    /// What was in effect, as it was read back.
    pub facts: Vec<Fact>,
    /// The first cell in which the same was in effect; itself, where none was before.
    pub same_as: usize,
    /// Runs in whole blocks.
    pub runs: u64,
    /// Bits of the user's data a second, on average.
    #[serde(rename = "bits_hz")]
    pub rate: f64,
    /// CPU time, on average.
    pub cpu: CpuCost,
    /// Packets that were sent, a byte of data; of TCP, segments.
    pub packets_per_byte: f64,
    /// Acknowledgements, a byte of data; `None` of datagrams.
    pub acks_per_byte: Option<f64>,
    /// System calls of both ends, a byte of data.
    pub calls_per_byte: f64,
    /// The shortest round trip of all runs.
    #[serde(rename = "shortest_round_trip_ns")]
    pub shortest_round_trip: Option<Nanos>,
    /// The round trip at their ends, as the kernel smooths it, on average.
    #[serde(rename = "round_trip_ns")]
    pub round_trip: Option<Nanos>,
}

/// A factor at one of its values: an effect is of one beside the first, an interaction of two.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Term {
    /// Which factor, by its place.
    pub factor: usize,
    /// Which value, by its place.
    pub value: usize,
}

/// What a value changes beside the first one of its factor, on average over all other factors; or by how much more it
/// does so together with a value of another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FactorEffect {
    /// One of an effect, two of an interaction.
    pub terms: Vec<Term>,
    /// Of CPU time a byte.
    pub cpu: MeasuredEffect,
    /// Of the throughput.
    pub rate: MeasuredEffect,
    /// Of CPU time a byte, by who used it: what it adds.
    pub added: CpuCost,
}

/// An effect on one of the measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredEffect {
    /// As a share; `None` of fewer than two blocks.
    pub share: Option<Effect>,
    /// In the measure's own unit: ns a byte, or bits a second.
    pub amount: Option<Effect>,
    /// The probability that chance alone sets the values so far apart, all effects and both measures together.
    #[serde(rename = "corrected_probability")]
    pub chance: Option<f64>,
    /// What follows.
    pub verdict: Verdict,
}

/// What the factors can tell, by what was in effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DesignCheck {
    /// Cells that were set.
    pub cells: usize,
    /// Cells that differ in effect.
    pub different: usize,
    /// Effects and interactions that were asked for.
    pub effects: usize,
    /// Of those, as many as can be told apart: the rank of the model's matrix over the cells that differ.
    pub rank: usize,
    /// Factors that change nothing while another has a value, or nothing at all.
    pub idle: Vec<IdleFactor>,
    /// Effects that change nothing, because the cells that they compare are the same.
    pub nothing: Vec<Vec<Term>>,
    /// Effects that are no more than others together.
    pub aliases: Vec<Alias>,
}

impl DesignCheck {
    /// Whether all that was asked for can be told.
    pub fn is_whole(&self) -> bool {
        self.rank == self.effects && self.different == self.cells
    }
}

/// A factor that changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleFactor {
    /// Which, by its place.
    pub factor: usize,
    /// Only while another factor has this value; `None`: ever.
    pub while_at: Option<Term>,
}

/// An effect whose column is a sum of others'.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Alias {
    /// Which.
    pub terms: Vec<Term>,
    /// The others.
    pub is: Vec<AliasPart>,
}

/// An effect that is part of another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AliasPart {
    /// How often it counts.
    pub value: f64,
    /// Which.
    pub terms: Vec<Term>,
}

/// What CPU time is spent by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CostUnit {
    /// A byte of data.
    Byte,
    /// A packet that is sent.
    Packet,
    /// An acknowledgement.
    Ack,
    /// A system call of either end.
    Call,
}

impl CostUnit {
    /// Every unit, in the order in which they are fitted.
    pub const ALL: [Self; 4] = [Self::Byte, Self::Packet, Self::Call, Self::Ack];
}

/// The cost of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnitCost {
    /// Of what.
    pub unit: CostUnit,
    /// CPU time, in ns; `None` of fewer than two blocks.
    pub ns: Option<Effect>,
}

/// A unit whose cost cannot be told from others'.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoundUnit {
    /// Which.
    pub unit: CostUnit,
    /// Those that it comes with: their costs have it in them.
    pub with: Vec<CostUnit>,
}

/// What a byte, a packet, a call and an acknowledgement cost, by least squares over the cells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnitCosts {
    /// Those that can be told; empty where the cells do not follow from them.
    pub costs: Vec<UnitCost>,
    /// Those that come with others in all cells.
    pub bound: Vec<BoundUnit>,
    /// Cells that differ in effect: that many equations.
    pub equations: usize,
    /// What is left of a cell's CPU time a byte, root mean square, as a share; `None` where nothing is left over.
    #[serde(rename = "misfit_share")]
    pub misfit: Option<f64>,
    /// Why there are no costs.
    pub refused: Option<CostRefusal>,
}

/// Why no costs are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum CostRefusal {
    /// One block has no spread.
    TooFewBlocks,
    /// The cells are off by too much: their time does not follow from these units.
    Misfit,
    /// A unit would cost less than nothing.
    Negative {
        /// Which.
        unit: CostUnit,
    },
}

/// What is printed by `ticktax net pair --vary`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetExperiment {
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// The name of this host.
    pub host: String,
    /// What the traffic goes over, as far as it is not varied.
    pub link: Link,
    /// The traffic, as far as it is not varied.
    pub spec: TrafficSpec,
    /// What is varied.
    pub factors: Vec<VariedFactor>,
    /// How.
    pub plan: ExperimentPlan,
    /// Why CPU time is only that of the two threads, by their own clocks; `None` where it was traced.
    pub no_books: Option<String>,
    /// Every combination, in the order of the factors.
    pub cells: Vec<ExperimentCell>,
    /// What the design can tell.
    pub check: DesignCheck,
    /// Effects, then interactions of two, as far as they can be told apart.
    pub effects: Vec<FactorEffect>,
    /// The costs of units.
    pub costs: UnitCosts,
}
