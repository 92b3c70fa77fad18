//! Wake-up edges: what made something able to run, as the kernel itself reports it.

use std::sync::Arc;

use crate::{Cpu, Nanos, SourceId, Span};

/// A wake-up edge: at one moment a source woke a thread, queued a work item or raised a softirq.
///
/// The CPU is that of the source. Where the effect runs, its own spans say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The moment, as a span of length 0 of the source that acted: the interrupt, the timer's
    /// function or the thread that the CPU was in the middle of.
    pub span: Span,
    /// What it made able to run.
    pub effect: Effect,
}

impl Edge {
    /// The edge from `source`, which acted on `cpu` at the time `at`.
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

/// What an edge made able to run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The thread of this number, which was blocked.
    Woke(i32),
    /// A work item with this function.
    Queued(Arc<str>),
    /// The softirq of this name, on the same CPU.
    Raised(Arc<str>),
}

impl Effect {
    /// Which sort of edge leads to it.
    pub fn kind(&self) -> EdgeKind {
        match self {
            Self::Woke(_) => EdgeKind::Woke,
            Self::Queued(_) => EdgeKind::Queued,
            Self::Raised(_) => EdgeKind::Raised,
        }
    }
}

/// The sorts of edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EdgeKind {
    /// A thread was woken.
    Woke,
    /// A work item was queued.
    Queued,
    /// A softirq was raised.
    Raised,
}

impl EdgeKind {
    /// Every sort.
    pub const ALL: [Self; 3] = [Self::Woke, Self::Queued, Self::Raised];

    /// The word for it, as files write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Woke => "woke",
            Self::Queued => "queued",
            Self::Raised => "raised",
        }
    }

    /// The sort that [`EdgeKind::name`] gives this word to.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
