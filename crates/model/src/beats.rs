//! Beats: periodic sources of CPU activity, such as a timer function or a thread that runs every 10
//! ms.

mod sample;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use sample::{EventSample, PeriodSpectrum};

use crate::limitation::Limitation;
use crate::recording::ProbeKind;
use crate::{CpuList, Lengths, Nanos};

/// Periodic sources in a recording, and the extent of the search for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BeatStatement {
    /// Periodic sources, costliest first. The cost of a source is the larger of two times: its self
    /// time, and the total time of the probe gaps that contain its events. Programs may have run in
    /// those gaps after the probe yielded the CPU.
    pub beats: Vec<BeatLine>,
    /// Number of sources that had enough events to be searched.
    pub searched: u64,
    /// Length of the observation. The longest period that can be found is a quarter of it.
    #[serde(rename = "window_ns")]
    pub window: Nanos,
    /// Upper limit on the probability that any of the listed periods is due to chance. A period is
    /// listed only if its own false-alarm probability is below this limit divided by the number of
    /// sources searched.
    #[serde(rename = "false_alarm_probability")]
    pub family_alarm: f64,
    /// Limitations of the search.
    #[serde(alias = "unknown")]
    pub limitations: Vec<Limitation>,
    /// Periods that stand out among the events of the sampled sources; `None` if no source was
    /// sampled.
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
    /// Intervals in which a thread was off its CPU for one particular reason, such as sleeping.
    OffCpu,
    /// The first run of each thread with a given name.
    #[serde(alias = "starts")]
    ThreadStarts,
    /// Gaps in a probe's loop that no known source explains.
    Gaps,
}

/// A period, with its uncertainty and significance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Periodicity {
    /// Period, in ns.
    #[serde(rename = "period_ns")]
    pub period: f64,
    /// Lower end of the 95 % confidence interval of the period, in ns.
    #[serde(rename = "period_low_ns")]
    pub low: f64,
    /// Upper end of the 95 % confidence interval of the period, in ns.
    #[serde(rename = "period_high_ns")]
    pub high: f64,
    /// Upper bound on the probability that events without any period would, by chance, show one as
    /// strong as this.
    #[serde(rename = "false_alarm_probability")]
    pub false_alarm: f64,
    /// Number of periods in which an event occurred, out of `expected`.
    pub seen: u64,
    /// Total number of periods in the observed time.
    pub expected: u64,
    /// Standard deviation of the events' start times from the nearest point on the period's grid.
    /// If `rearmed`, the standard deviation of the intervals between events.
    #[serde(rename = "jitter_ns")]
    pub jitter: Nanos,
    /// Whether each interval is timed from the previous event, so that delays accumulate. If not,
    /// the events stay on a fixed grid.
    pub rearmed: bool,
    /// Number of times the events moved to a different phase of the period.
    #[serde(alias = "restarts")]
    pub phase_jumps: u32,
}

/// A periodic source with its cause and effects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BeatLine {
    /// Name of the interrupt, timer function, work item or thread. For probe gaps without a known
    /// cause, the name is `gaps`.
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
    /// Whether the source is ticktax itself.
    #[serde(default, alias = "own")]
    pub by_ticktax: bool,
    /// The period and its significance. Event counts are summed over the source's CPUs, and the
    /// false-alarm probability accounts for the number of sources searched.
    #[serde(flatten)]
    pub rhythm: Periodicity,
    /// When the first event was due, relative to the start of the observation. It defines the
    /// phase.
    #[serde(rename = "first_ns")]
    pub first: Nanos,
    /// When the source started and stopped being periodic, relative to the start of the
    /// observation; `None` if it was periodic throughout.
    #[serde(rename = "active_range_ns", default, alias = "during_ns")]
    pub active_range: Option<(Nanos, Nanos)>,
    /// Events per period.
    #[serde(alias = "events_per_beat")]
    pub events_per_period: f64,
    /// Number and lengths of the source's events.
    #[serde(flatten)]
    pub lengths: Lengths,
    /// Total time of the events as a share of the time of `cpus`.
    pub share: f64,
    /// Chain of causes, from the first cause to the source itself. Each step woke, queued or raised
    /// the next one in at least 80 % of cases. Empty if the kernel reported no wake-ups that lead
    /// to the source.
    pub chain: Vec<String>,
    /// Evidence that the source follows the kernel's tick. Present only in recordings that contain
    /// no wake-ups.
    #[serde(default)]
    pub follows_tick: Option<FollowsTick>,
    /// Probe gaps that the source explains. If the source itself consists of unexplained gaps, this
    /// describes those gaps.
    pub gaps: Option<BeatGaps>,
    /// Activities that ran in most of the gaps. Listed only for gaps that no periodic source
    /// explains.
    #[serde(default, alias = "held")]
    pub ran_in_gaps: Vec<String>,
    /// The two periodic sources whose coincidence produces this period, if that explains it.
    pub alias: Option<AliasLine>,
    /// Sources on the same CPU that have the same period. Listed only for gaps that no source
    /// explains.
    #[serde(default)]
    pub same_period: Vec<SamePeriod>,
    /// Likely cause if the source consists of probe gaps in which the kernel ran nothing. It is
    /// known only if every kernel entry was watched.
    #[serde(default, alias = "outside")]
    pub hypervisor_or_firmware: Option<HypervisorOrFirmware>,
    /// A sample of the source's events, for plots of their phases. Only the costliest sources have
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<EventSample>,
}

/// Evidence that a periodic source follows the kernel's tick. Its events start shortly after ticks,
/// and rarely half a tick period later. No other interrupt or thread in the recording can be the
/// cause.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FollowsTick {
    /// Number of events examined.
    pub events: u64,
    /// Number of these events that start no later than `within` after a tick.
    pub after: u64,
    /// The longest time between a tick and an event that counts as following it.
    #[serde(rename = "within_ns")]
    pub within: Nanos,
    /// Probability that the events follow the tick only by chance (Fisher's exact test over the
    /// ticks), multiplied by the number of sources tested.
    #[serde(rename = "false_alarm_probability")]
    pub false_alarm: f64,
}

/// A cause outside the kernel: the hypervisor, its host or the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HypervisorOrFirmware {
    /// Host tick rate that would produce the same period, in Hz. `None` if the machine is not
    /// virtual or no usual tick rate fits.
    pub host_hz: Option<u32>,
}

/// A source that has the same period as some probe gaps but does not explain them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SamePeriod {
    /// Name of the source that has the same period.
    pub name: String,
    /// Constant delay between the source's events and the gaps. `None` if the delay varies, if
    /// unrelated gaps are mixed in, or if the source also has events on other CPUs. The source may
    /// have caused some of the gaps even if the delay varies.
    #[serde(rename = "offset_ns", alias = "locked_at_ns")]
    pub offset: Option<Nanos>,
}

/// Probe gaps that a periodic source explains, or that form a periodic source themselves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BeatGaps {
    /// Kind of probe.
    pub probe: ProbeKind,
    /// Minimum length of a gap for it to count.
    #[serde(rename = "threshold_ns", alias = "from_ns")]
    pub threshold: Nanos,
    /// Number of gaps that contain one of the source's events. If the source itself consists of
    /// unexplained gaps, the number of those gaps. `lengths` covers only the gaps counted here.
    pub count: u64,
    /// Lengths of the gaps. The longest gaps may also contain other activity.
    #[serde(flatten)]
    pub lengths: Lengths,
    /// Total time of the gaps as a share of the observed time, 0 to 1.
    pub share: f64,
    /// Share of the source's events that lie within one of these gaps, 0 to 1.
    #[serde(rename = "inside_share")]
    pub inside: f64,
}

/// Two periodic sources whose events coincide regularly. Harmonic k of period P₁ and harmonic n of
/// period P₂ coincide with the period 1/|k/P₁ − n/P₂|.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AliasLine {
    /// Name of the first source.
    pub first: String,
    /// Period P₁ of the first source, in ns.
    #[serde(rename = "first_period_ns")]
    pub first_period: f64,
    /// Harmonic number k of the first period.
    pub k: u32,
    /// Name of the second source.
    pub second: String,
    /// Period P₂ of the second source, in ns.
    #[serde(rename = "second_period_ns")]
    pub second_period: f64,
    /// Harmonic number n of the second period.
    pub n: u32,
    /// Period of the coincidence, in ns.
    #[serde(rename = "period_ns")]
    pub period: f64,
}
