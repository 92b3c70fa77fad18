//! The longest delays.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ticktax_model::victim::DelayKind;
use ticktax_model::{Cpu, Nanos, SourceId, Span};

use super::interruptions::Stretch;
use super::wakers::{Waking, leads_to};
use crate::timeline::Piece;

/// A delay, with what happened in it.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) kind: DelayKind,
    /// Its source is the thread's; as a row, or as a part of one.
    pub(super) span: Span,
    /// The thread, of a wait for a CPU.
    pub(super) tid: i32,
    /// What woke the thread, of a wait that began so.
    pub(super) woken: Option<Waking>,
    /// Where it waited, where it then ran on another CPU.
    pub(super) waited_on: Option<Cpu>,
    pub(super) timeline: Vec<Episodes>,
    pub(super) more: u64,
    /// By source, all that is known of it, the costliest first.
    pub(super) sums: Vec<Episodes>,
}

/// What one source did in a delay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Episodes {
    pub(super) first: Piece,
    pub(super) time: Nanos,
    pub(super) count: u64,
}

impl Episodes {
    fn new(piece: Piece) -> Self {
        Self {
            first: piece,
            time: piece.end - piece.start,
            count: 1,
        }
    }
}

/// All episodes of each source as one, the costliest first.
fn by_source(episodes: Vec<Episodes>) -> Vec<Episodes> {
    let mut sums: BTreeMap<SourceId, Episodes> = BTreeMap::new();
    for one in episodes {
        sums.entry(one.first.source)
            .and_modify(|sum| {
                sum.time += one.time;
                sum.count += one.count;
            })
            .or_insert(one);
    }
    let mut sums: Vec<Episodes> = sums.into_values().collect();
    sums.sort_by_key(|sum| Reverse(sum.time));
    sums
}

impl Candidate {
    /// Episodes that a timeline names.
    const NAMED: usize = 6;

    fn new(kind: DelayKind, span: Span, pieces: impl Iterator<Item = Piece>, beyond: u64) -> Self {
        let mut timeline: Vec<Episodes> = Vec::new();
        for piece in pieces {
            let last = timeline.last_mut();
            let same = |last: &&mut Episodes| {
                last.first.source == piece.source && last.first.end == piece.start
            };
            if let Some(last) = last.filter(same) {
                last.first.end = piece.end;
                last.time += piece.end - piece.start;
            } else {
                timeline.push(Episodes::new(piece));
            }
        }
        let mut more = beyond;
        let sums = by_source(timeline.clone());
        if timeline.len() > Self::NAMED {
            timeline.clone_from(&sums);
            let rest = timeline.split_off(Self::NAMED.min(timeline.len()));
            more += rest.iter().map(|episodes| episodes.count).sum::<u64>();
        }
        Self {
            kind,
            span,
            tid: 0,
            woken: None,
            waited_on: None,
            timeline,
            more,
            sums,
        }
    }

    /// A wait for a CPU, and who was on it.
    pub(super) fn waiting(
        kind: DelayKind,
        span: &Span,
        pieces: impl Iterator<Item = Piece>,
    ) -> Self {
        Self::new(kind, *span, pieces, 0)
    }

    /// A stretch for which it was throttled: whoever ran meanwhile did not keep it from running.
    pub(super) fn throttled(span: &Span) -> Self {
        Self::new(DelayKind::Throttled, *span, std::iter::empty(), 0)
    }

    /// A stretch for which the thread of `base` was interrupted.
    pub(super) fn interrupted(stretch: &Stretch, base: &Span) -> Self {
        let span = Span {
            start: stretch.start(),
            dur: stretch.length(),
            ..*base
        };
        let pieces = stretch.pieces.iter().copied();
        Self::new(DelayKind::Interrupted, span, pieces, stretch.more)
    }

    pub(super) fn length(&self) -> Nanos {
        self.span.dur
    }
}

/// The longest so far, longest first.
#[derive(Debug, Default)]
pub(super) struct Worst(Vec<Candidate>);

impl Worst {
    const MAX: usize = 10;

    /// Whether a delay of this length would be among them.
    pub(super) fn wants(&self, length: Nanos) -> bool {
        self.0.len() < Self::MAX || self.0.last().is_some_and(|last| length > last.length())
    }

    /// Takes a delay, if it is long enough.
    pub(super) fn offer(&mut self, delay: Candidate) {
        if !self.wants(delay.length()) {
            return;
        }
        let at = self
            .0
            .partition_point(|other| other.length() >= delay.length());
        self.0.insert(at, delay);
        self.0.truncate(Self::MAX);
    }

    /// Takes a wake-up of thread `tid`, which may come after the wait that it led to.
    pub(super) fn woken(&mut self, tid: i32, waking: Waking) {
        let of_thread = |delay: &&mut Candidate| {
            delay.kind == DelayKind::Woken && delay.tid == tid && leads_to(waking, delay.span.start)
        };
        for delay in self.0.iter_mut().filter(of_thread) {
            delay.woken = delay.woken.max(Some(waking));
        }
    }

    pub(super) fn into_longest(self) -> Vec<Candidate> {
        self.0
    }
}
