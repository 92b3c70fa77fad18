//! Incidents: rare delays caught by a flight recorder, their analyses, and the index of an incident
//! directory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::beats::Periodicity;
use crate::recording::Stack;
use crate::sampled_code::SampledCode;
use crate::victim::WaitPlace;
use crate::{Cpu, Kind, Nanos};

mod index;
mod percentile;
mod trigger;

pub use index::{IncidentEntry, IncidentIndex, IndexLine, LossCause};
pub use percentile::{AbovePercentile, Percentile, PercentileError};
pub use trigger::{
    Trigger, TriggerFault, TriggerKind, TriggerLimit, TriggerSpec, TriggerSpecError, TriggerTarget,
};

/// A delay that fired a trigger, with an analysis of the rows recorded around it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Incident {
    /// When the incident was detected, in ms since 1970 by the wall clock. The delay had just ended
    /// or was still going on.
    pub at_unix_ms: i64,
    /// Kind of delay. If several triggers fired, this is the kind of the longest delay.
    pub kind: TriggerKind,
    /// Thread that was delayed. For [`TriggerKind::Stretch`], the first thread that had to wait for
    /// the long-running kernel activity, if known.
    pub thread: Option<IncidentThread>,
    /// CPU on which the delay was detected: the one where the delayed thread ran afterwards or, for
    /// [`TriggerKind::Stretch`], the one that the kernel activity ran on.
    pub cpu: Option<Cpu>,
    /// The CPU that the thread waited for at first, if the rows show that it was not `cpu`.
    pub waited_on: Option<Cpu>,
    /// Length of the delay; 0 for a signal or a mark, which are not delays.
    #[serde(rename = "lasted_ns")]
    pub lasted: Nanos,
    /// Percentile of the last hour's delays that this delay exceeded. Set only if the trigger's
    /// threshold is a percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<AbovePercentile>,
    /// Activities that ran on the CPU during the delay, largest self time first. Empty if the
    /// thread was not runnable.
    pub ran: Vec<RanInstead>,
    /// Total self time of activities not listed in `ran`.
    #[serde(rename = "others_ns")]
    pub others: Nanos,
    /// Part of the delay during which the CPU's activity is unknown because no row covers it.
    #[serde(rename = "unseen_ns")]
    pub unseen: Nanos,
    /// Part of a late frame's delay in which its thread was not runnable: asleep, blocked or
    /// throttled. Counted from the frame's due time.
    #[serde(rename = "asleep_ns", default, skip_serializing_if = "Nanos::is_zero")]
    pub asleep: Nanos,
    /// Part of a late frame's delay in which its thread was still working on the previous frame.
    /// Counted from the frame's due time, including preemptions of the thread.
    #[serde(
        rename = "overrun_ns",
        default,
        skip_serializing_if = "Nanos::is_zero",
        alias = "overran_ns"
    )]
    pub overrun: Nanos,
    /// Where in the kernel a blocked thread waited, and where its lock was released. `None` for
    /// other delays, or if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<WaitPlace>,
    /// Source that woke the thread before its wait or, if the thread was blocked, at the end of the
    /// delay. `None` if no wake-up was observed.
    pub woken_by: Option<String>,
    /// Chain of causes, starting with the first cause. It leads to the first element of `ran` or,
    /// for a blocked thread, to its wake-up. Each step woke, queued or raised the next one. Empty
    /// if no such event was observed.
    pub chain: Vec<String>,
    /// Text given with a mark; empty for other kinds of incident.
    #[serde(default, skip_serializing_if = "String::is_empty", alias = "words")]
    pub text: String,
    /// Number of triggers that fired for this incident, all within a few seconds.
    pub triggers: u64,
    /// Number of events lost while the incident was recorded.
    pub events_lost: u64,
}

/// A thread with its name and ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IncidentThread {
    /// Thread name.
    pub name: String,
    /// Name of the thread's program, or the thread's own name if it is a kernel thread.
    pub program: String,
    /// Process id of the thread; 0 if unknown.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
}

/// An activity that used a CPU while a thread waited for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RanInstead {
    /// Name of the program, kernel thread or interrupt; `idle` for a CPU that ran nothing.
    pub name: String,
    /// Kind of activity.
    pub kind: Kind,
    /// Process ids, if the activity is a program.
    pub pids: Vec<i32>,
    /// Self time of the activity, excluding its interruptions.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of intervals.
    pub count: u64,
    /// Code in which timer interrupts found the activity during the delay. `None` without samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<SampledCode>,
}

/// Signature of an incident: the properties that similar incidents have in common.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Signature {
    /// Kind of delay.
    pub kind: TriggerKind,
    /// Program that was delayed; empty if the incident did not delay a program.
    pub program: String,
    /// Main cause: the activity that used the most time or, for a blocked thread, the source that
    /// woke it. Empty if the cause is unknown, if the CPU was idle, or if a frame's own thread
    /// slept longer than any activity ran.
    pub culprit: String,
}

impl Incident {
    /// Returns an incident that one trigger detected at `at_unix_ms`. All other fields are empty.
    pub fn new(kind: TriggerKind, at_unix_ms: i64) -> Self {
        Self {
            at_unix_ms,
            kind,
            thread: None,
            cpu: None,
            waited_on: None,
            lasted: Nanos::ZERO,
            above: None,
            ran: Vec::new(),
            others: Nanos::ZERO,
            unseen: Nanos::ZERO,
            asleep: Nanos::ZERO,
            overrun: Nanos::ZERO,
            place: None,
            woken_by: None,
            chain: Vec::new(),
            text: String::new(),
            triggers: 1,
            events_lost: 0,
        }
    }

    /// Returns the signature that groups similar incidents.
    pub fn signature(&self) -> Signature {
        // Neither an idle CPU nor an activity that ran for less time than the frame's thread slept
        // is to blame.
        let to_blame = |ran: &&RanInstead| ran.kind != Kind::Idle && ran.time >= self.asleep;
        let first = self.ran.first().filter(to_blame);
        let first = first.map(|ran| ran.name.clone());
        let waker = self
            .woken_by
            .clone()
            .filter(|_| self.kind == TriggerKind::Blocked);
        Signature {
            kind: self.kind,
            program: self
                .thread
                .as_ref()
                .map_or_else(String::new, |thread| thread.program.clone()),
            culprit: first.or(waker).unwrap_or_default(),
        }
    }
}

impl Incident {
    /// Returns the code in which most samples found what ran longest; `None` if it is unknown.
    pub fn ran_stack(&self) -> Option<Stack> {
        let place = self.ran.first()?.code.as_ref()?.places.first()?;
        let function = &*place.function;
        let outer = place.called_from.as_deref().or(place.file.as_deref());
        let names = outer.into_iter().chain([function]);
        Some(if place.is_kernel {
            Stack::from_kernel(names)
        } else {
            Stack::from_user(names)
        })
    }

    /// Returns the code in which the thread was blocked; `None` if it is unknown.
    pub fn blocked_stack(&self) -> Option<Stack> {
        let place = self.place.as_ref()?;
        kernel_stack([&place.syscall, &place.caller, &place.function])
    }

    /// Returns the code that released the lock that the thread waited for; `None` if it is unknown.
    pub fn release_stack(&self) -> Option<Stack> {
        let release = self.place.as_ref()?.release.as_ref()?;
        kernel_stack([&release.syscall, &release.function])
    }
}

/// Returns the stack of the functions that are known, or `None` if all are unknown.
fn kernel_stack<const N: usize>(names: [&Option<String>; N]) -> Option<Stack> {
    let stack = Stack::from_kernel(names.into_iter().flatten().map(|name| &**name));
    (!stack.is_empty()).then_some(stack)
}

/// The incidents in a directory, grouped by similarity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IncidentList {
    /// Directory.
    pub directory: String,
    /// Start of the listed period, in ms since 1970; `None` if all incidents are listed.
    pub since_unix_ms: Option<i64>,
    /// Total time that flight recorders were watching.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// Groups of similar incidents, rarest first. They are sorted by the number of incidents
    /// rounded down to a power of two, and then by total time, longest first.
    pub groups: Vec<IncidentGroup>,
    /// Number of groups with enough incidents to be searched for a period.
    pub searched: u64,
    /// Upper limit on the probability that any of the listed periods is due to chance.
    #[serde(rename = "false_alarm_probability")]
    pub family_alarm: f64,
    /// Number of incidents, recordings and triggers that were not kept, by reason.
    pub not_kept: Vec<NotKept>,
    /// Number of incidents found in recordings but missing from the index.
    pub recovered: u64,
    /// Number of unreadable lines in the index.
    pub damaged_lines: u64,
}

/// A group of similar incidents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IncidentGroup {
    /// Properties shared by all incidents in the group.
    #[serde(flatten)]
    pub signature: Signature,
    /// Number of incidents.
    pub count: u64,
    /// Total length of the incidents.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Longest incident.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// Number of the longest incident, as `incidents show` takes it.
    pub max_number: u64,
    /// Time of the first incident in the group, in ms since 1970.
    pub first_unix_ms: i64,
    /// Time of the last incident in the group, in ms since 1970.
    pub last_unix_ms: i64,
    /// Number of the last incident in the group.
    pub last_number: u64,
    /// Times of the incidents in ms since 1970, in chronological order. Only the latest
    /// [`MAX_TIMES`](Self::MAX_TIMES) are listed.
    #[serde(default)]
    pub at_unix_ms: Vec<i64>,
    /// Chain of causes; empty unless it is the same for all incidents with a known chain.
    pub chain: Vec<String>,
    /// Number of incidents whose chain of causes is known.
    pub chain_count: u64,
    /// Periods at which the incidents recur, most certain first.
    pub beats: Vec<Periodicity>,
}

impl IncidentGroup {
    /// Maximum number of incident times listed per group.
    pub const MAX_TIMES: usize = 256;
}

/// Incidents, recordings or triggers that were not kept for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotKept {
    /// Why they were not kept.
    pub cause: LossCause,
    /// Number of items that were not kept.
    pub count: u64,
}

/// One incident, compared with similar ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IncidentSheet {
    /// Incident.
    #[serde(flatten)]
    pub entry: IncidentEntry,
    /// Path of the incident's recording; `None` if it was not kept or no longer exists.
    pub path: Option<String>,
    /// Position among the similar incidents in chronological order, starting from 1.
    pub position: u64,
    /// Number of similar incidents.
    pub similar_count: u64,
    /// Time of the first similar incident, in ms since 1970.
    pub first_unix_ms: i64,
    /// Most certain period at which the similar incidents recur; `None` unless this incident fits
    /// it.
    pub beat: Option<Periodicity>,
}
