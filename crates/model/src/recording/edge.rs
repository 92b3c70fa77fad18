//! Edges: moments at which a source made a thread, work item or softirq runnable, created a thread,
//! or was sampled.

use std::sync::Arc;

use crate::{Cpu, Nanos, SourceId, Span};

/// The moment at which a source wakes or creates a thread, queues a work item, raises a softirq, or
/// is sampled.
///
/// The edge belongs to the CPU that the source ran on. The thread or work item may run on a
/// different CPU, which its own spans show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The moment, as a span of length 0. Its source is the interrupt, timer function or thread
    /// that was running.
    pub span: Span,
    /// The thread, work item or softirq that became runnable, or the sampled code.
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

/// The thread, work item or softirq that an edge made runnable, or the sampled code.
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
    /// Nothing became runnable: a timer interrupt interrupted the source in this code, which is a
    /// [`Stack`](super::Stack) in folded form, or empty if it is unknown.
    Sampled(Arc<str>),
    /// Nothing became runnable: a profile's clock interrupted the source in this code, in the same
    /// form. Unlike [`Effect::Sampled`], such samples are taken at a constant rate.
    Profiled(Arc<str>),
}

impl Effect {
    /// Returns whether the edge is a sample, which made nothing runnable.
    pub fn is_sample(&self) -> bool {
        matches!(self, Self::Sampled(_) | Self::Profiled(_))
    }

    /// Returns the kind of edge with this effect.
    pub fn kind(&self) -> EdgeKind {
        match self {
            Self::Woke(_) => EdgeKind::Woke,
            Self::Started(_) => EdgeKind::Started,
            Self::Queued(_) => EdgeKind::Queued,
            Self::Raised(_) => EdgeKind::Raised,
            Self::Sampled(_) => EdgeKind::Sampled,
            Self::Profiled(_) => EdgeKind::Profiled,
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
    /// A softirq or thread was sampled.
    Sampled,
    /// A softirq or thread was sampled for a profile.
    Profiled,
}

impl EdgeKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Woke,
        Self::Started,
        Self::Queued,
        Self::Raised,
        Self::Sampled,
        Self::Profiled,
    ];

    /// Returns the name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Woke => "woke",
            Self::Started => "started",
            Self::Queued => "queued",
            Self::Raised => "raised",
            Self::Sampled => "sampled",
            Self::Profiled => "profiled",
        }
    }

    /// Returns the kind whose [`EdgeKind::name`] is `name`; `None` if no kind has this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
