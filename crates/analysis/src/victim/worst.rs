//! Keeps the longest delays.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ticktax_model::victim::{DelayKind, HoldUp};
use ticktax_model::{Cpu, Nanos, SourceId, Span};

use super::interruptions::Burst;
use super::wakers::{Waking, leads_to};
use crate::timeline::Piece;

/// A delay with its causes.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) kind: DelayKind,
    /// The delay's interval: a row of the thread, or part of one.
    pub(super) span: Span,
    /// Thread id if the delay is a wait for a CPU, and 0 otherwise.
    pub(super) tid: i32,
    /// The wake-up that began the wait, if known.
    pub(super) woken: Option<Waking>,
    /// CPU that the thread waited for, if it then ran on another CPU.
    pub(super) waited_on: Option<Cpu>,
    /// At most [`Self::NAMED`] episodes: in order of time or, if there are more, summed by source.
    pub(super) timeline: Vec<Episodes>,
    /// Number of episodes not in `timeline`.
    pub(super) more: u64,
    /// All known episodes, summed by source, costliest first.
    pub(super) sums: Vec<Episodes>,
    /// Kind of stall, if the thread did not just wait for a CPU.
    pub(super) stall: Option<HoldUp>,
}

/// One or more episodes of a delay in which the same source ran.
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

fn by_source(episodes: Vec<Episodes>) -> Vec<Episodes> {
    let mut sums: BTreeMap<SourceId, Episodes> = BTreeMap::new();
    for episode in episodes {
        sums.entry(episode.first.source)
            .and_modify(|sum| {
                sum.time += episode.time;
                sum.count += episode.count;
            })
            .or_insert(episode);
    }
    let mut sums: Vec<Episodes> = sums.into_values().collect();
    sums.sort_by_key(|sum| Reverse(sum.time));
    sums
}

impl Candidate {
    /// Maximum number of entries in a timeline.
    const NAMED: usize = 6;

    fn new(
        kind: DelayKind,
        span: Span,
        pieces: impl Iterator<Item = Piece>,
        mut more: u64,
    ) -> Self {
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
            stall: None,
        }
    }

    /// Creates a delay that is a stall of this kind. `ran` is the source that the thread waited for
    /// and the time that it ran, if known.
    pub(super) fn stalled(
        kind: HoldUp,
        span: &Span,
        woken: Option<Waking>,
        ran: Option<(SourceId, Nanos)>,
    ) -> Self {
        let delay_kind = match kind {
            HoldUp::OwnWork | HoldUp::SystemCall => DelayKind::OwnWork,
            _ => DelayKind::Blocked,
        };
        let ran = ran.filter(|(_, time)| *time > Nanos::ZERO);
        let episodes = ran.map(|(source, time)| Episodes {
            first: Piece {
                start: span.start,
                end: span.end(),
                source,
            },
            time,
            count: 1,
        });
        Self {
            woken,
            stall: Some(kind),
            sums: episodes.into_iter().collect(),
            ..Self::new(delay_kind, *span, std::iter::empty(), 0)
        }
    }

    /// Creates a delay in which a thread waited for a CPU on which `pieces` ran.
    pub(super) fn waiting(
        kind: DelayKind,
        span: &Span,
        pieces: impl Iterator<Item = Piece>,
    ) -> Self {
        Self::new(kind, *span, pieces, 0)
    }

    /// Creates a delay in which a thread was throttled. It has no pieces, because other threads did
    /// not cause it.
    pub(super) fn throttled(span: &Span) -> Self {
        Self::new(DelayKind::Throttled, *span, std::iter::empty(), 0)
    }

    /// Creates a delay caused by a burst of interrupts, which hit the thread whose row is `base`.
    pub(super) fn interrupted(burst: &Burst, base: &Span) -> Self {
        let span = Span {
            start: burst.start(),
            dur: burst.length(),
            ..*base
        };
        let pieces = burst.pieces.iter().copied();
        Self::new(DelayKind::Interrupted, span, pieces, burst.more)
    }

    pub(super) fn length(&self) -> Nanos {
        self.span.dur
    }
}

/// The longest delays so far, longest first.
#[derive(Debug, Default)]
pub(super) struct Worst(Vec<Candidate>);

impl Worst {
    const MAX: usize = 10;

    pub(super) fn wants(&self, length: Nanos) -> bool {
        self.0.len() < Self::MAX || self.0.last().is_some_and(|last| length > last.length())
    }

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

    /// Adds a wake-up to the delays of thread `tid` that it started. The wake-up's edge may arrive
    /// after the row of the wait.
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
