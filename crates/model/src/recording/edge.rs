//! Wake-up edges, as reported by the kernel. Each one shows that a source made a thread, work item
//! or softirq runnable, or that it created a thread.

use std::sync::Arc;

use crate::{Cpu, Nanos, SourceId, Span};

/// A wake-up edge: the moment at which a source wakes or creates a thread, queues a work item or
/// raises a softirq.
///
/// The edge belongs to the CPU that the source ran on. The thread or work item may run on a
/// different CPU, which its own spans show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The moment, as a span of length 0. Its source is the interrupt, timer function or thread
    /// that was running.
    pub span: Span,
    /// The thread, work item or softirq that became runnable.
    pub effect: Effect,
}

impl Edge {
    /// Returns an edge from `source`, which was running on `cpu` at time `at`.
    pub fn new(cpu: Cpu, at: Nanos, source: SourceId, effect: Effect) -> Self {
        Self {
            span: Span {
                cpu,
                start: at,
                dur: Nanos::ZERO,
                self_time: Nanos::ZERO,
                source,
            },
            effect,
        }
    }
}

/// The thread, work item or softirq that an edge made runnable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The blocked thread with this thread id was woken.
    Woke(i32),
    /// The source created the thread with this thread id, which becomes runnable a little later.
    Started(i32),
    /// A work item with this function was queued.
    Queued(Arc<str>),
    /// The softirq with this name was raised on the same CPU.
    Raised(Arc<str>),
}

impl Effect {
    /// Returns the kind of edge with this effect.
    pub fn kind(&self) -> EdgeKind {
        match self {
            Self::Woke(_) => EdgeKind::Woke,
            Self::Started(_) => EdgeKind::Started,
            Self::Queued(_) => EdgeKind::Queued,
            Self::Raised(_) => EdgeKind::Raised,
        }
    }
}

/// Kind of edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EdgeKind {
    /// A thread was woken.
    Woke,
    /// A thread was created.
    Started,
    /// A work item was queued.
    Queued,
    /// A softirq was raised.
    Raised,
}

impl EdgeKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Woke, Self::Started, Self::Queued, Self::Raised];

    /// Returns the name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Woke => "woke",
            Self::Started => "started",
            Self::Queued => "queued",
            Self::Raised => "raised",
        }
    }

    /// Returns the kind whose [`EdgeKind::name`] is `name`; `None` if no kind has this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
