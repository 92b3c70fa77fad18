//! Incidents: rare delays that a flight recorder caught, what is known of each, and what of them a folder
//! keeps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::beats::Periodicity;
use crate::{Cpu, Kind, Nanos};

mod index;
mod percentile;
mod trigger;

pub use index::{IncidentEntry, IncidentIndex, IndexLine, LossCause};
pub use percentile::{AbovePercentile, Percentile, PercentileError};
pub use trigger::{
    Trigger, TriggerKind, TriggerLimit, TriggerSpec, TriggerSpecError, TriggerTarget,
};

/// What the rows around a trigger tell of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Incident {
    /// When it was noticed, ms since 1970 on the wall clock: what lasted too long ended then, or still went on.
    pub at_unix_ms: i64,
    /// What it is about. Where several triggers made it, that of the longest delay.
    pub kind: TriggerKind,
    /// The thread that did not run; of a stretch the first that it kept from running, where one is known.
    pub thread: Option<IncidentThread>,
    /// The CPU on which it was noticed: where the thread then ran, or where the stretch was.
    pub cpu: Option<Cpu>,
    /// Where the thread waited at first, where the rows say that it was another CPU.
    pub waited_on: Option<Cpu>,
    /// How long it lasted; 0 of a signal and of a mark.
    #[serde(rename = "lasted_ns")]
    pub lasted: Nanos,
    /// The percentile of its own last hour that it was above, where that was what it was asked to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<AbovePercentile>,
    /// What the CPU did meanwhile, the most own time first. Empty of a thread that was not able to run.
    pub ran: Vec<RanInstead>,
    /// Own time of what else it did.
    #[serde(rename = "others_ns")]
    pub others: Nanos,
    /// The part of the time of which no row tells what the CPU did.
    #[serde(rename = "unseen_ns")]
    pub unseen: Nanos,
    /// Of a frame that began late, the part of the time in which its thread was not able to run: it slept, was blocked
    /// or throttled.
    #[serde(rename = "asleep_ns", default, skip_serializing_if = "Nanos::is_zero")]
    pub asleep: Nanos,
    /// Of a frame that began late, for how long from when it was due its thread was still at the one before, on a CPU or
    /// preempted.
    #[serde(rename = "overran_ns", default, skip_serializing_if = "Nanos::is_zero")]
    pub overran: Nanos,
    /// What woke the thread: before its wait or, where it was blocked, at the end. `None` where no wake-up was
    /// seen.
    pub woken_by: Option<String>,
    /// What triggered the first of `ran` or, of a thread that was blocked, its wake-up: the first cause first,
    /// itself last. Each woke, queued or raised the next. Empty where no such edge was seen.
    pub chain: Vec<String>,
    /// The words that came with a mark.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
    /// How many triggers made it, all within some seconds.
    pub triggers: u64,
    /// How many of the recording's events were lost.
    pub events_lost: u64,
}

/// A thread by its name and numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IncidentThread {
    /// Its name.
    pub name: String,
    /// The program that it is a thread of; of a thread of the kernel its own name.
    pub program: String,
    /// Its process; 0 where that is not known.
    pub pid: i32,
    /// Its number.
    pub tid: i32,
}

/// What had a CPU while another waited for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RanInstead {
    /// The name of the program, the thread of the kernel or the interrupt; `idle` of a CPU that ran nothing.
    pub name: String,
    /// What kind of source that is.
    pub kind: Kind,
    /// Its processes, where it is a program.
    pub pids: Vec<i32>,
    /// For how long, without what interrupted it.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// In how many stretches.
    pub count: u64,
}

/// What incidents are alike by.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Signature {
    /// What they are about.
    pub kind: TriggerKind,
    /// The program that did not run; empty where there was none.
    pub program: String,
    /// What had most of the time instead, or woke a thread that was blocked; empty where that is not known, or
    /// nothing had it.
    pub by: String,
}

impl Incident {
    /// An incident of this kind that one trigger made, noticed at `at_unix_ms`, with nothing else known.
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
            overran: Nanos::ZERO,
            woken_by: None,
            chain: Vec::new(),
            words: String::new(),
            triggers: 1,
            events_lost: 0,
        }
    }

    /// What it is alike to others by.
    pub fn signature(&self) -> Signature {
        // A CPU that idled kept nobody waiting, and a frame whose thread slept for longer is not late because of
        // what ran then.
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
            by: first.or(waker).unwrap_or_default(),
        }
    }
}

/// The incidents of a folder, those that are alike as one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IncidentList {
    /// The folder.
    pub folder: String,
    /// From when on, ms since 1970, where not all were asked for.
    pub since_unix_ms: Option<i64>,
    /// For how long a recorder watched in all.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// The rarest first: by how often they came, each doubling a class of its own, and within a class by the
    /// time that they lasted.
    pub groups: Vec<IncidentGroup>,
    /// How many groups had incidents enough to be searched for beats.
    pub searched: u64,
    /// The probability that chance put any of the beats here.
    #[serde(rename = "false_alarm_probability")]
    pub family_alarm: f64,
    /// What was not kept, and why.
    pub not_kept: Vec<NotKept>,
    /// Incidents that were found in recordings of which the index does not tell.
    pub found_again: u64,
    /// Lines of the index that cannot be read.
    pub damaged: u64,
}

/// Incidents that are alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IncidentGroup {
    /// By what.
    #[serde(flatten)]
    pub signature: Signature,
    /// How many.
    pub count: u64,
    /// How long they lasted in all.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// The longest.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// Its number, for `incidents show`.
    pub max_number: u64,
    /// When the first was, ms since 1970.
    pub first_unix_ms: i64,
    /// When the last was.
    pub last_unix_ms: i64,
    /// The number of the last.
    pub last_number: u64,
    /// When each was, ms since 1970, in order; of many the latest [`MAX_TIMES`](Self::MAX_TIMES).
    #[serde(default)]
    pub at_unix_ms: Vec<i64>,
    /// What triggered what had the time, where that was the same in all of them of which it is known.
    pub chain: Vec<String>,
    /// Of how many that is known.
    pub chain_count: u64,
    /// The periods that they keep to, the surest first.
    pub beats: Vec<Periodicity>,
}

impl IncidentGroup {
    /// The most incidents of a group of which a list has the times.
    pub const MAX_TIMES: usize = 256;
}

/// What was not kept for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotKept {
    /// Why.
    pub cause: LossCause,
    /// How many.
    pub count: u64,
}

/// One incident, and what it is one of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IncidentSheet {
    /// The incident.
    #[serde(flatten)]
    pub entry: IncidentEntry,
    /// Where its recording lies, where it was kept and is still there.
    pub path: Option<String>,
    /// Its place among those that are alike, from 1 on.
    pub place: u64,
    /// How many are alike.
    pub alike: u64,
    /// When the first of these was, ms since 1970.
    pub first_unix_ms: i64,
    /// The surest period that these keep to, where it is one of it.
    pub beat: Option<Periodicity>,
}
