//! What repeats: the part of a statement that is about beats.

mod sample;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use sample::{EventSample, PeriodSpectrum};

use crate::limitation::Limitation;
use crate::recording::ProbeKind;
use crate::{CpuList, Lengths, Nanos};

/// The periodic events of a recording, and what was looked at to find them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BeatStatement {
    /// The beats, the costliest first: by their own time, or by that of the gaps that hold an event of theirs, which
    /// a probe may have yielded to programs.
    pub beats: Vec<BeatLine>,
    /// How many sources had events enough to be searched.
    pub searched: u64,
    /// The time over which they were observed; a period is found up to a quarter of it.
    #[serde(rename = "window_ns")]
    pub window: Nanos,
    /// The probability that chance put any of the beats here: each passed this limit divided by
    /// the number of sources searched.
    #[serde(rename = "false_alarm_probability")]
    pub family_alarm: f64,
    /// What could not be searched, and why.
    pub unknown: Vec<Limitation>,
    /// The periods that stand out among the events of the sources that were sampled; `None` where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spectrum: Option<PeriodSpectrum>,
}

/// What kind of source beats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BeatKind {
    /// An interrupt or softirq, or a function within one.
    Interrupt,
    /// A work item.
    Work,
    /// A thread.
    Thread,
    /// The times in which a thread was off its CPU, for one reason.
    OffCpu,
    /// The starts of threads of one name.
    Starts,
    /// A probe's gaps that no source explains.
    Gaps,
}

/// A period that events keep to, and how surely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Periodicity {
    /// The period, ns.
    #[serde(rename = "period_ns")]
    pub period: f64,
    /// The lower end of its 95 % interval, ns.
    #[serde(rename = "period_low_ns")]
    pub low: f64,
    /// The upper end of its 95 % interval, ns.
    #[serde(rename = "period_high_ns")]
    pub high: f64,
    /// A bound on the probability that chance shows as much.
    #[serde(rename = "false_alarm_probability")]
    pub false_alarm: f64,
    /// Beats that were seen.
    pub seen: u64,
    /// Beats that there was time for.
    pub expected: u64,
    /// Standard deviation of a beat around its grid, or of an interval where each starts anew.
    #[serde(rename = "jitter_ns")]
    pub jitter: Nanos,
    /// Whether each interval starts from the last event, so that delays add up.
    pub rearmed: bool,
    /// How often the phase jumped.
    pub restarts: u32,
}

/// One beat, with everything that was tied to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BeatLine {
    /// What beats: an interrupt's or a timer's function, a work item, a thread; for gaps without a
    /// named cause `gaps`.
    pub name: String,
    /// What kind of source that is.
    pub kind: BeatKind,
    /// The process, where it is a program's thread.
    pub pid: Option<i32>,
    /// The threads whose beat it is, where it is one of threads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tids: Vec<i32>,
    /// The CPUs that it was seen on.
    pub cpus: CpuList,
    /// Whether it is ticktax's own doing.
    #[serde(default)]
    pub own: bool,
    /// Its period, and how surely that is one. Beats are counted on all its CPUs, and a false alarm
    /// is one in any of the sources searched.
    #[serde(flatten)]
    pub rhythm: Periodicity,
    /// When the first beat was due, since the observation began (the phase).
    #[serde(rename = "first_ns")]
    pub first: Nanos,
    /// From when to when it was found, since the observation began, where not all the time.
    #[serde(default, rename = "during_ns")]
    pub during: Option<(Nanos, Nanos)>,
    /// Events to a beat.
    #[serde(rename = "events_per_beat")]
    pub burst: f64,
    /// Of its events.
    #[serde(flatten)]
    pub lengths: Lengths,
    /// Its events' time as a share of its CPUs' time.
    pub share: f64,
    /// What makes it run, first cause first, its own name last: each step woke, queued or raised the
    /// next in at least four of five. Empty where the kernel reported no such edges.
    pub chain: Vec<String>,
    /// That it follows the kernel's tick, where a recording has no wake-ups and a test says so.
    #[serde(default)]
    pub follows_tick: Option<FollowsTick>,
    /// The probes' gaps that it explains, or that are the beat where no source explains them.
    pub gaps: Option<BeatGaps>,
    /// What ran in most of the gaps, where no source's own beat explains them.
    #[serde(default)]
    pub held: Vec<String>,
    /// The two beats that together make this rhythm, where two do.
    pub alias: Option<AliasLine>,
    /// Of gaps that no source explains: sources on the same CPU that have the same period.
    #[serde(default)]
    pub same_period: Vec<SamePeriod>,
    /// What makes gaps in which the kernel ran nothing, where every way into it was watched.
    #[serde(default)]
    pub outside: Option<Outside>,
    /// Some of its source's events, of which phases can be drawn; `None` of all but the costliest beats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<EventSample>,
}

/// How surely a beat follows the kernel's tick: its events begin just after ticks, rather than half a
/// tick later, and no other interrupt or thread in these recordings' rows may be the cause.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FollowsTick {
    /// Events of the beat that were looked at.
    pub events: u64,
    /// Of these, how many begin soon after a tick.
    pub after: u64,
    /// How soon.
    #[serde(rename = "within_ns")]
    pub within: Nanos,
    /// The probability of chance by Fisher's exact test over ticks, times the number of beats tested.
    #[serde(rename = "false_alarm_probability")]
    pub false_alarm: f64,
}

/// Something outside the kernel: the hypervisor, its machine, or the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Outside {
    /// The tick rate of a host that would make the same period, where the machine is virtual.
    pub host_hz: Option<u32>,
}

/// A source with the period of gaps that it does not explain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SamePeriod {
    /// The source.
    pub name: String,
    /// How long after its events the gaps begin, where that stays the same; `None` where it does not, or where among
    /// the gaps are others, or the source has events on other CPUs, so that its own may be among them all the same.
    #[serde(rename = "locked_at_ns")]
    pub locked_at: Option<Nanos>,
}

/// The gaps of a probe that repeat with a beat.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BeatGaps {
    /// Which probe.
    pub probe: ProbeKind,
    /// Gaps from this length on.
    #[serde(rename = "from_ns")]
    pub from: Nanos,
    /// How many gaps hold an event of the source; of gaps that no source explains, how many are in
    /// the beat. The lengths are of these alone.
    pub count: u64,
    /// In the longest, something else may have run besides.
    #[serde(flatten)]
    pub lengths: Lengths,
    /// Their time as a share of the time watched.
    pub share: f64,
    /// The share of the source's events that lie in such gaps.
    #[serde(rename = "inside_share")]
    pub inside: f64,
}

/// Two beats whose coincidence is a third: 1/|k/P₁ − n/P₂|.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AliasLine {
    /// Name of the first beat.
    pub first: String,
    /// Its period P₁, ns.
    #[serde(rename = "first_period_ns")]
    pub first_period: f64,
    /// Its harmonic k.
    pub k: u32,
    /// Name of the second beat.
    pub second: String,
    /// Its period P₂, ns.
    #[serde(rename = "second_period_ns")]
    pub second_period: f64,
    /// Its harmonic n.
    pub n: u32,
    /// The rhythm that follows, ns.
    #[serde(rename = "period_ns")]
    pub period: f64,
}
