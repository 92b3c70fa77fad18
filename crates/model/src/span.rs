//! Spans: who held a CPU, from when, for how long.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Cpu, Nanos};

/// What a CPU was doing, in the order of who may interrupt whom, lowest first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Nothing to run.
    Idle,
    /// A thread, of a program or of the kernel.
    Task,
    /// Deferred interrupt work (`NET_RX`, `TIMER`, …), wherever it ran.
    Softirq,
    /// A hardware interrupt, the local timer's and those from other CPUs included.
    Irq,
    /// A non-maskable interrupt.
    Nmi,
    /// Time that the hypervisor says it took.
    Steal,
    /// A loss that a probe saw, whatever its cause.
    Gap,
    /// Time that a thread wanted to run and was not allowed to. It is no CPU's time: others run
    /// meanwhile, or nobody.
    Wait,
    /// A frame of a paced loop, from when it began until its work was done: who had the CPU
    /// meanwhile is a matter of other rows.
    Frame,
}

impl Kind {
    /// Every kind, lowest first.
    pub const ALL: [Self; 9] = [
        Self::Idle,
        Self::Task,
        Self::Softirq,
        Self::Irq,
        Self::Nmi,
        Self::Steal,
        Self::Gap,
        Self::Wait,
        Self::Frame,
    ];

    /// The word for it, as files and statements write it.
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
        }
    }

    /// The kind that [`Kind::name`] gives this word to.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Whose a thread is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// The kernel: its threads, and everything that is not a thread.
    Kernel,
    /// A program of the user's.
    Program,
    /// ticktax: its collector and its own work.
    Tool,
    /// A probe of ticktax: time that it spends on purpose to see what is left.
    Probe,
}

impl Owner {
    /// Every owner.
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Program, Self::Tool, Self::Probe];

    /// The word for it, as files write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Program => "program",
            Self::Tool => "tool",
            Self::Probe => "probe",
        }
    }

    /// The owner that [`Owner::name`] gives this word to.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|owner| owner.name() == name)
    }
}

/// The thread behind a span.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Process id (the kernel's `tgid`).
    pub pid: i32,
    /// Thread id (the kernel's `pid`).
    pub tid: i32,
    /// Name of the process that it belongs to.
    pub program: Arc<str>,
}

/// Where a span's time went, in the words that a person would use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// What the CPU was doing.
    pub kind: Kind,
    /// Whose doing it was.
    pub owner: Owner,
    /// `local_timer`, `virtio0-req.0`, `NET_RX`, `kworker/0:1`, a thread's name.
    pub name: Arc<str>,
    /// The function or the cause within it: a timer's, a work item's; empty where there is none.
    pub detail: Arc<str>,
    /// The thread, where the time was a thread's.
    pub thread: Option<Thread>,
}

impl Source {
    /// A source in the kernel that is no thread: an interrupt, a softirq, idling.
    pub fn kernel(kind: Kind, name: &str, detail: &str) -> Self {
        Self {
            kind,
            owner: Owner::Kernel,
            name: name.into(),
            detail: detail.into(),
            thread: None,
        }
    }

    /// A CPU with nothing to run.
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

/// A [`Source`] by its place in a [`SourceTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

/// The sources of a recording, each once. Spans point into it, so that a span stays small.
#[derive(Clone, Debug, Default)]
pub struct SourceTable {
    sources: Vec<Source>,
    ids: HashMap<Source, SourceId>,
}

impl SourceTable {
    /// The id of `source`, which is added when it is new.
    pub fn intern(&mut self, source: Source) -> SourceId {
        if let Some(&id) = self.ids.get(&source) {
            return id;
        }
        let id = SourceId(u32::try_from(self.sources.len()).expect("fewer than 2^32 sources"));
        self.sources.push(source.clone());
        self.ids.insert(source, id);
        id
    }

    /// The source that `id` was given for.
    ///
    /// # Panics
    /// When `id` is another table's.
    pub fn get(&self, id: SourceId) -> &Source {
        &self.sources[id.0 as usize]
    }

    /// How many sources there are.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether there is no source yet.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// All sources with their ids, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (SourceId, &Source)> {
        (0u32..).map(SourceId).zip(&self.sources)
    }
}

/// One interval on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where.
    pub cpu: Cpu,
    /// When it began, on `CLOCK_MONOTONIC`.
    pub start: Nanos,
    /// How long it lasted on the wall.
    pub dur: Nanos,
    /// `dur` without what interrupted it. It can be negative by the few ns of a race between a
    /// softirq's bookkeeping and an interrupt; the sum over a CPU is exact all the same.
    pub self_time: Nanos,
    /// Whose time it was.
    pub source: SourceId,
}

impl Span {
    /// When it ended.
    pub fn end(&self) -> Nanos {
        self.start + self.dur
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Owner, Source, SourceTable};

    #[test]
    fn a_word_reads_back_as_what_it_was_written_for() {
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
    fn a_source_is_kept_once() {
        let mut table = SourceTable::default();
        let idle = table.intern(Source::idle());
        let rx = table.intern(Source::kernel(Kind::Softirq, "NET_RX", ""));
        assert_eq!(table.intern(Source::idle()), idle);
        assert_ne!(idle, rx);
        assert_eq!(table.len(), 2);
        assert_eq!(table.get(rx).to_string(), "NET_RX");
    }
}
