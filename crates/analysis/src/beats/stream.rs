//! The events of one source, and its identity.

use std::sync::Arc;

use ticktax_model::beats::BeatKind;
use ticktax_model::recording::ProbeKind;
use ticktax_model::victim::OffCpuReason;
use ticktax_model::{Cpu, CpuList, Kind, Nanos, Owner, Source};

use super::BLOCK;
use ticktax_beats::BeatCollector;

/// Maximum number of events held back for sorting when a source runs on several CPUs.
const WAITING: usize = 512;

/// Identifies a source, regardless of its CPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    /// An interrupt or softirq, or a function within it.
    Frame {
        kind: Kind,
        name: Arc<str>,
        function: Arc<str>,
    },
    /// A work item's function.
    Work {
        worker: Arc<str>,
        function: Arc<str>,
    },
    /// A thread's runs or, if `why` is not empty, its waits.
    Thread {
        name: Arc<str>,
        pid: Option<i32>,
        tid: i32,
        why: Arc<str>,
        owner: Owner,
    },
    /// The first runs of all threads with this name.
    Starts { name: Arc<str> },
    /// A probe's gaps of at least `min`.
    Gaps { probe: ProbeKind, min: Nanos },
}

impl Identity {
    pub(super) fn of_frame(source: &Source) -> Self {
        Self::Frame {
            kind: source.kind,
            name: source.name.clone(),
            function: source.detail.clone(),
        }
    }

    pub(super) fn of_work(source: &Source) -> Self {
        let stem = source
            .name
            .split_once('/')
            .map_or(&*source.name, |(stem, _)| stem);
        Self::Work {
            worker: stem.into(),
            function: source.detail.clone(),
        }
    }

    pub(super) fn of_thread(source: &Source) -> Self {
        let program = source.owner != Owner::Kernel;
        let thread = source.thread.as_ref();
        Self::Thread {
            name: source.name.clone(),
            pid: thread.filter(|_| program).map(|thread| thread.pid),
            tid: thread.map_or(0, |thread| thread.tid),
            why: match OffCpuReason::from_detail(&source.detail) {
                Some((reason, _)) if source.kind == Kind::Wait => reason.name().into(),
                _ if source.kind == Kind::Wait => source.detail.clone(),
                _ => "".into(),
            },
            owner: source.owner,
        }
    }

    pub(super) fn of_starts(source: &Source) -> Self {
        Self::Starts {
            name: source.name.clone(),
        }
    }

    /// Returns the name shown to users.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Frame {
                kind,
                name,
                function,
            } => match (kind, function.is_empty()) {
                (Kind::Softirq, true) => format!("softirq {name}"),
                (_, true) => name.to_string(),
                (Kind::Softirq, false) => format!("softirq {name} {function}"),
                (_, false) => format!("{name} {function}"),
            },
            Self::Work { worker, function } => format!("{worker} {function}"),
            Self::Thread { name, why, .. } if why.is_empty() => name.to_string(),
            Self::Thread { name, why, .. } => format!("{name} {why}"),
            Self::Starts { name } => format!("a new {name}"),
            Self::Gaps { .. } => "gaps".to_owned(),
        }
    }

    pub(super) fn kind(&self) -> BeatKind {
        match self {
            Self::Frame { .. } => BeatKind::Interrupt,
            Self::Work { .. } => BeatKind::Work,
            Self::Thread { why, .. } if !why.is_empty() => BeatKind::OffCpu,
            Self::Thread { .. } => BeatKind::Thread,
            Self::Starts { .. } => BeatKind::ThreadStarts,
            Self::Gaps { .. } => BeatKind::Gaps,
        }
    }

    pub(super) fn pid(&self) -> Option<i32> {
        match self {
            Self::Thread { pid, .. } => *pid,
            _ => None,
        }
    }

    pub(super) fn tid(&self) -> Option<i32> {
        match self {
            Self::Thread { tid, .. } => Some(*tid).filter(|&tid| tid != 0),
            _ => None,
        }
    }

    pub(super) fn is_own(&self) -> bool {
        matches!(
            self,
            Self::Thread {
                owner: Owner::Tool | Owner::Probe,
                ..
            }
        )
    }

    /// Returns whether `self` is the interrupt or softirq that contains the function `other`.
    pub(super) fn is_frame_of(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Frame {
                    kind,
                    name,
                    function,
                },
                Self::Frame {
                    kind: k,
                    name: n,
                    function: f,
                },
            ) => kind == k && name == n && function.is_empty() && !f.is_empty(),
            _ => false,
        }
    }

    pub(super) fn gaps(&self) -> Option<(ProbeKind, Nanos)> {
        match self {
            Self::Gaps { probe, min } => Some((*probe, *min)),
            _ => None,
        }
    }

    /// Returns whether the source can begin or cease to exist during the observation. Only threads
    /// can.
    pub(super) fn is_mortal(&self) -> bool {
        matches!(self, Self::Thread { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) identity: Identity,
    /// The stream's CPU, or `None` if the source has a single stream for all CPUs.
    pub(super) cpu: Option<Cpu>,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) key: Key,
    pub(super) collector: BeatCollector,
    pub(super) count: u64,
    pub(super) time: Nanos,
    pub(super) first: Nanos,
    pub(super) last: Nanos,
    /// Number of events that arrived too late to be sorted in.
    pub(super) late: u64,
    /// Windows in which the source had events at unknown times.
    pub(super) untimed: Vec<(Nanos, Nanos)>,
    /// Whether the stream needed more than one block of events but could not get it, or has too
    /// many windows without times. A stunted stream is not searched.
    pub(super) stunted: bool,
    may_grow: bool,
    seen_on: Vec<Cpu>,
    waiting: Vec<(Nanos, Nanos)>,
    newest: Nanos,
}

impl Stream {
    pub(super) fn new(key: Key, begin: Nanos) -> Self {
        Self {
            key,
            collector: BeatCollector::small(begin, BLOCK),
            count: 0,
            time: Nanos::ZERO,
            first: Nanos::MAX,
            last: Nanos(i64::MIN),
            late: 0,
            untimed: Vec::new(),
            stunted: false,
            may_grow: false,
            seen_on: Vec::new(),
            waiting: Vec::new(),
            newest: Nanos(i64::MIN),
        }
    }

    pub(super) fn push(&mut self, cpu: Cpu, start: Nanos, dur: Nanos) {
        self.count += 1;
        self.time += dur;
        self.first = self.first.min(start);
        self.last = self.last.max(start + dur);
        if !self.seen_on.contains(&cpu) && self.seen_on.len() < 64 {
            self.seen_on.push(cpu);
        }
        if self.stunted {
            return;
        }
        if self.key.cpu.is_some() {
            self.take(start, dur);
            return;
        }
        let later = self.waiting.iter().rev();
        let later = later.take_while(|(other, _)| *other > start).count();
        let at = self.waiting.len() - later;
        self.waiting.insert(at, (start, dur));
        if self.waiting.len() >= WAITING {
            let ready: Vec<_> = self.waiting.drain(..WAITING / 2).collect();
            for (start, dur) in ready {
                self.take(start, dur);
            }
        }
    }

    fn take(&mut self, start: Nanos, dur: Nanos) {
        if start < self.newest {
            self.late += 1;
            return;
        }
        self.newest = start;
        self.collector.push(start, dur);
    }

    /// Adds the events still held back.
    pub(super) fn settle(&mut self) {
        let rest = std::mem::take(&mut self.waiting);
        for (start, dur) in rest {
            self.take(start, dur);
        }
    }

    pub(super) fn wants_to_grow(&self) -> bool {
        !self.may_grow && self.collector.count() >= BLOCK as u64
    }

    pub(super) fn grow(&mut self) {
        self.may_grow = true;
    }

    pub(super) fn cpus(&self) -> CpuList {
        self.seen_on.iter().copied().collect()
    }

    pub(super) fn only_cpu(&self) -> Option<Cpu> {
        match self.seen_on[..] {
            [cpu] => Some(cpu),
            _ => None,
        }
    }
}
