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
    /// Returns the edge of a thread that waited from `since` and was found in `code` at `at`, as it
    /// left the kernel on `cpu`. Unlike those of other edges, its span lasts from the start of the
    /// wait until then.
    pub fn waited(cpu: Cpu, since: Nanos, at: Nanos, source: SourceId, code: Arc<str>) -> Self {
        let mut edge = Self::new(cpu, since, source, Effect::Waited(code));
        edge.span.dur = at - since;
        edge
    }

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
    /// Nothing became runnable: the source waited in this user code, which is a
    /// [`WaitCode`](super::WaitCode) in text form.
    Waited(Arc<str>),
}

impl Effect {
    /// Returns whether the edge only shows code, and made nothing runnable.
    pub fn is_sample(&self) -> bool {
        matches!(self, Self::Sampled(_) | Self::Profiled(_) | Self::Waited(_))
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
            Self::Waited(_) => EdgeKind::Waited,
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
    /// A thread waited in known user code.
    Waited,
}

impl EdgeKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Woke,
        Self::Started,
        Self::Queued,
        Self::Raised,
        Self::Sampled,
        Self::Profiled,
        Self::Waited,
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
            Self::Waited => "waited",
        }
    }

    /// Returns the kind whose [`EdgeKind::name`] is `name`; `None` if no kind has this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
