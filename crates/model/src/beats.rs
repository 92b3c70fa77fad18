//! Beats: the periodic sources in a statement.

mod sample;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use sample::{EventSample, PeriodSpectrum};

use crate::limitation::Limitation;
use crate::recording::ProbeKind;
use crate::{CpuList, Lengths, Nanos};

/// The periodic sources in a recording, and the extent of the search for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BeatStatement {
    /// Periodic sources, costliest first. A source's cost is its self time or the time of the probe
    /// gaps that contain its events. Programs may have run in those gaps after the probe yielded.
    pub beats: Vec<BeatLine>,
    /// Number of sources with enough events to be searched.
    pub searched: u64,
    /// Time over which sources were observed. Periods up to a quarter of it can be found.
    #[serde(rename = "window_ns")]
    pub window: Nanos,
    /// Probability that any of the listed sources is due to chance. Each source had to stay below
    /// this limit divided by the number of sources searched.
    #[serde(rename = "false_alarm_probability")]
    pub family_alarm: f64,
    /// Limitations of the search.
    #[serde(alias = "unknown")]
    pub limitations: Vec<Limitation>,
    /// Periods that stand out among the sampled sources' events; `None` if no source was sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spectrum: Option<PeriodSpectrum>,
}

/// Kind of periodic source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BeatKind {
    /// An interrupt or softirq, or a function within one.
    Interrupt,
    /// A work item.
    Work,
    /// A thread.
    Thread,
    /// Intervals in which a thread was off its CPU for the same reason.
    OffCpu,
    /// The starts of threads with the same name.
    #[serde(alias = "starts")]
    ThreadStarts,
    /// Probe gaps that no source explains.
    Gaps,
}

/// A period, with its uncertainty and significance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Periodicity {
    /// Period, in ns.
    #[serde(rename = "period_ns")]
    pub period: f64,
    /// Lower end of the 95 % interval of the period, in ns.
    #[serde(rename = "period_low_ns")]
    pub low: f64,
    /// Upper end of the 95 % interval of the period, in ns.
    #[serde(rename = "period_high_ns")]
    pub high: f64,
    /// Upper bound on the probability that chance alone produces a period this strong.
    #[serde(rename = "false_alarm_probability")]
    pub false_alarm: f64,
    /// Number of observed periods that contain an event.
    pub seen: u64,
    /// Number of periods in the observed time.
    pub expected: u64,
    /// Standard deviation of the events from the period's grid. If `rearmed`, standard deviation of
    /// the intervals between events.
    #[serde(rename = "jitter_ns")]
    pub jitter: Nanos,
    /// Whether each interval starts at the previous event, so that delays accumulate.
    pub rearmed: bool,
    /// Number of times that the phase jumped.
    #[serde(alias = "restarts")]
    pub phase_jumps: u32,
}

/// A periodic source with its cause and effects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BeatLine {
    /// Name of the interrupt, timer function, work item or thread; `gaps` for gaps without a known
    /// cause.
    pub name: String,
    /// Kind of source.
    pub kind: BeatKind,
    /// Process id, if the source is a thread of a program.
    pub pid: Option<i32>,
    /// Ids of the threads that share the period, if the source consists of threads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tids: Vec<i32>,
    /// CPUs on which the source was observed.
    pub cpus: CpuList,
    /// Whether ticktax itself causes the events.
    #[serde(default, alias = "own")]
    pub by_ticktax: bool,
    /// Period and significance. Events are counted over all of the source's CPUs. The false-alarm
    /// probability covers all sources searched.
    #[serde(flatten)]
    pub rhythm: Periodicity,
    /// Phase: time when the first event was due, relative to the start of the observation.
    #[serde(rename = "first_ns")]
    pub first: Nanos,
    /// Start and end of the time in which the source was periodic, relative to the start of the
    /// observation; `None` if it was periodic the entire time.
    #[serde(rename = "active_range_ns", default, alias = "during_ns")]
    pub active_range: Option<(Nanos, Nanos)>,
    /// Events per period.
    #[serde(alias = "events_per_beat")]
    pub events_per_period: f64,
    /// Lengths of the source's events.
    #[serde(flatten)]
    pub lengths: Lengths,
    /// Total time of the events as a share of the time of `cpus`.
    pub share: f64,
    /// Chain of causes, from the first cause to the source itself. Each step woke, queued or raised
    /// the next at least 80 % of the time. Empty if the kernel reported no such edges.
    pub chain: Vec<String>,
    /// Evidence that the source follows the kernel's tick, for recordings without wake-ups.
    #[serde(default)]
    pub follows_tick: Option<FollowsTick>,
    /// Probe gaps that the source explains, or its own gaps if it consists of unexplained gaps.
    pub gaps: Option<BeatGaps>,
    /// Activities that ran in most of the gaps, if the gaps have no periodic cause.
    #[serde(default, alias = "held")]
    pub ran_in_gaps: Vec<String>,
    /// The two periodic sources whose coincidence produces this period, if any.
    pub alias: Option<AliasLine>,
    /// Sources on the same CPU that have the same period; only for gaps that no source explains.
    #[serde(default)]
    pub same_period: Vec<SamePeriod>,
    /// Likely cause of gaps in which the kernel ran nothing, if every kernel entry was watched.
    #[serde(default, alias = "outside")]
    pub hypervisor_or_firmware: Option<HypervisorOrFirmware>,
    /// A sample of the source's events for plotting phases; `None` except for the most costly
    /// sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<EventSample>,
}

/// Evidence that a periodic source follows the kernel's tick: its events start just after ticks
/// rather than half a tick later, and no other interrupt or thread in the recording could be the
/// cause.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FollowsTick {
    /// Number of events examined.
    pub events: u64,
    /// Events that start soon after a tick.
    pub after: u64,
    /// Limit for "soon after".
    #[serde(rename = "within_ns")]
    pub within: Nanos,
    /// Probability of chance by Fisher's exact test over ticks, multiplied by the number of sources
    /// tested.
    #[serde(rename = "false_alarm_probability")]
    pub false_alarm: f64,
}

/// A cause outside the kernel: the hypervisor, its host or the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HypervisorOrFirmware {
    /// Tick rate of a host that would produce the same period, if the machine is virtual.
    pub host_hz: Option<u32>,
}

/// A source with the same period as gaps that it does not explain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SamePeriod {
    /// Name of the source.
    pub name: String,
    /// Delay of the gaps after the source's events, if it is constant. `None` if it varies, if
    /// other gaps are mixed in, or if the source has events on other CPUs. Even then, some of the
    /// gaps can be the source's.
    #[serde(rename = "offset_ns", alias = "locked_at_ns")]
    pub offset: Option<Nanos>,
}

/// The probe gaps that recur with a periodic source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BeatGaps {
    /// Kind of probe.
    pub probe: ProbeKind,
    /// Minimum length of the gaps.
    #[serde(rename = "threshold_ns", alias = "from_ns")]
    pub threshold: Nanos,
    /// Number of gaps that contain an event of the source. If no source explains the gaps, number
    /// of gaps in the periodic source. `lengths` covers only these gaps.
    pub count: u64,
    /// Lengths of the gaps. Other activities may also have run in the longest gaps.
    #[serde(flatten)]
    pub lengths: Lengths,
    /// Time of the gaps as a share of the observed time.
    pub share: f64,
    /// Share of the source's events that lie in such gaps, 0 to 1.
    #[serde(rename = "inside_share")]
    pub inside: f64,
}

/// Two periodic sources whose coincidence recurs with the period 1/|k/P₁ − n/P₂|.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AliasLine {
    /// Name of the first source.
    pub first: String,
    /// Period P₁ of the first source, in ns.
    #[serde(rename = "first_period_ns")]
    pub first_period: f64,
    /// Harmonic k of the first source.
    pub k: u32,
    /// Name of the second source.
    pub second: String,
    /// Period P₂ of the second source, in ns.
    #[serde(rename = "second_period_ns")]
    pub second_period: f64,
    /// Harmonic n of the second source.
    pub n: u32,
    /// Period of the coincidence, in ns.
    #[serde(rename = "period_ns")]
    pub period: f64,
}
