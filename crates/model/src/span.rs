//! Spans: intervals on a CPU, each with its start, its duration and its source.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Cpu, Nanos};

/// Kind of activity on a CPU, in ascending order: an activity can be interrupted only by one of a
/// higher kind.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Idle time: the CPU had nothing to run.
    Idle,
    /// A thread of a program or of the kernel.
    Task,
    /// Interrupt work that the kernel deferred (`NET_RX`, `TIMER`, …), in any context.
    Softirq,
    /// A hardware interrupt, including the local timer and inter-processor interrupts.
    Irq,
    /// A non-maskable interrupt.
    Nmi,
    /// Time that the hypervisor reports as stolen.
    Steal,
    /// Time that a probe's loop did not run, for any reason.
    Gap,
    /// Time that a thread was off its CPU because it waited for the CPU, was throttled or was
    /// blocked. This is not CPU time, because the CPU ran something else or was idle.
    Wait,
    /// A frame of a paced loop, from its start to the end of its work. Other rows show what ran on
    /// the CPU during that time.
    Frame,
    /// Delay of a timer interrupt, counted from the time its timer was due. This is not CPU time.
    /// Other rows show what the CPU ran during that time, as far as the kernel knows.
    Late,
}

impl Kind {
    /// All kinds, in ascending order.
    pub const ALL: [Self; 10] = [
        Self::Idle,
        Self::Task,
        Self::Softirq,
        Self::Irq,
        Self::Nmi,
        Self::Steal,
        Self::Gap,
        Self::Wait,
        Self::Frame,
        Self::Late,
    ];

    /// Returns the name used in files and statements.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Task => "task",
            Self::Softirq => "softirq",
            Self::Irq => "irq",
            Self::Nmi => "nmi",
            Self::Steal => "steal",
            Self::Gap => "gap",
            Self::Wait => "wait",
            Self::Frame => "frame",
            Self::Late => "late",
        }
    }

    /// Returns the kind whose [`Kind::name`] is `name`; `None` if no kind has this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Owner of an activity on a CPU.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// The kernel: its threads, and every activity that is not a thread.
    Kernel,
    /// A user's program.
    Program,
    /// ticktax itself: its collector, and its other threads except probes.
    Tool,
    /// One of ticktax's probes, which deliberately use up CPU time to measure how much is left.
    Probe,
}

impl Owner {
    /// All owners.
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Program, Self::Tool, Self::Probe];

    /// Returns the name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Program => "program",
            Self::Tool => "tool",
            Self::Probe => "probe",
        }
    }

    /// Returns the owner whose [`Owner::name`] is `name`; `None` if no owner has this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|owner| owner.name() == name)
    }
}

/// The thread that ran during a span.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Process id (the kernel's `tgid`).
    pub pid: i32,
    /// Thread id (the kernel's `pid`).
    pub tid: i32,
    /// Name of the thread's process.
    pub program: Arc<str>,
}

/// The activity that a CPU spent a span's time on, under a name that users know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Kind of activity.
    pub kind: Kind,
    /// Owner of the activity.
    pub owner: Owner,
    /// Name, such as `local_timer`, `virtio0-req.0`, `NET_RX`, `kworker/0:1` or a thread's name.
    pub name: Arc<str>,
    /// Function or cause within the source, such as a timer's or work item's function. May be
    /// empty.
    pub detail: Arc<str>,
    /// The thread that ran; `None` if the source is not a thread.
    pub thread: Option<Thread>,
}

impl Source {
    /// Returns a source of the kernel that is not a thread: an interrupt, a softirq or idle time.
    pub fn kernel(kind: Kind, name: &str, detail: &str) -> Self {
        Self {
            kind,
            owner: Owner::Kernel,
            name: name.into(),
            detail: detail.into(),
            thread: None,
        }
    }

    /// Returns the source of idle time.
    pub fn idle() -> Self {
        Self::kernel(Kind::Idle, "idle", "")
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if !self.detail.is_empty() {
            write!(f, " {}", self.detail)?;
        }
        Ok(())
    }
}

/// Index of a [`Source`] in a [`SourceTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

/// Table of the distinct sources in a recording. Spans refer to a source by its index in the table,
/// which keeps them small.
///
/// A live session adds thousands of sources per second if processes are started that fast. When a
/// hash table grows, it usually hashes all of its keys again, which took up to 5 ms here, and the
/// watched program can be left waiting in the meantime. This table therefore keeps the hashes.
#[derive(Clone, Debug, Default)]
pub struct SourceTable {
    sources: Vec<Source>,
    ids: HashTable<Hashed>,
    hasher: RandomState,
}

/// Entry of the hash table of a [`SourceTable`].
#[derive(Clone, Copy, Debug)]
struct Hashed {
    hash: u64,
    id: SourceId,
}

impl SourceTable {
    /// Creates an empty table with room for `capacity` sources.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            sources: Vec::with_capacity(capacity),
            ..Self::default()
        }
    }

    /// Returns the id of `source`, adding it to the table if it is new.
    pub fn intern(&mut self, source: Source) -> SourceId {
        let hash = self.hasher.hash_one(&source);
        let is_same =
            |known: &Hashed| known.hash == hash && self.sources[known.id.0 as usize] == source;
        if let Some(known) = self.ids.find(hash, is_same) {
            return known.id;
        }
        let id = SourceId(u32::try_from(self.sources.len()).expect("fewer than 2^32 sources"));
        self.ids
            .insert_unique(hash, Hashed { hash, id }, |known| known.hash);
        self.sources.push(source);
        id
    }

    /// Returns the source with this `id`.
    ///
    /// # Panics
    /// Panics if `id` does not belong to this table.
    pub fn get(&self, id: SourceId) -> &Source {
        &self.sources[id.0 as usize]
    }

    /// Number of sources.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Returns all sources with their ids, in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = (SourceId, &Source)> {
        (0u32..).map(SourceId).zip(&self.sources)
    }
}

/// One interval of activity on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// CPU on which the activity ran.
    pub cpu: Cpu,
    /// Start, on `CLOCK_MONOTONIC`.
    pub start: Nanos,
    /// Wall-clock duration.
    pub dur: Nanos,
    /// Self time, which is `dur` minus all interruptions. It can be negative by a few ns if an
    /// interrupt arrives while a softirq's start or end is being recorded, but the sum over a CPU
    /// is still exact.
    pub self_time: Nanos,
    /// Activity that the CPU spent the interval on.
    pub source: SourceId,
}

impl Span {
    /// End, on `CLOCK_MONOTONIC`.
    pub fn end(&self) -> Nanos {
        self.start + self.dur
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Owner, Source, SourceTable};

    #[test]
    fn names_of_kinds_and_owners_round_trip() {
        assert!(
            Kind::ALL
                .iter()
                .all(|&kind| Kind::from_name(kind.name()) == Some(kind))
        );
        assert!(
            Owner::ALL
                .iter()
                .all(|&owner| Owner::from_name(owner.name()) == Some(owner))
        );
        assert_eq!(Kind::from_name("quark"), None);
    }

    #[test]
    fn ids_stay_the_same_while_the_table_grows() {
        let mut table = SourceTable::with_capacity(10);
        let source = |number: usize| Source::kernel(Kind::Task, &format!("kworker/{number}"), "");
        for number in 0..5_000 {
            let id = table.intern(source(number));
            assert_eq!(id.0 as usize, number);
        }
        for number in [0, 1, 6, 7, 4_999] {
            assert_eq!(table.intern(source(number)).0 as usize, number);
        }
        assert_eq!(table.len(), 5_000);
    }

    #[test]
    fn interning_a_source_twice_returns_the_same_id() {
        let mut table = SourceTable::default();
        let idle = table.intern(Source::idle());
        let rx = table.intern(Source::kernel(Kind::Softirq, "NET_RX", ""));
        assert_eq!(table.intern(Source::idle()), idle);
        assert_ne!(idle, rx);
        assert_eq!(table.len(), 2);
        assert_eq!(table.get(rx).to_string(), "NET_RX");
    }
}
