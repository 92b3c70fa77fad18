//! The longest delays.

use ticktax_model::victim::DelayKind;
use ticktax_model::{Nanos, Span};

use super::interruptions::Stretch;
use super::past::Piece;

/// A delay, with what happened in it.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) kind: DelayKind,
    /// Its source is the thread's; as a row, or as a part of one.
    pub(super) span: Span,
    pub(super) timeline: Vec<Piece>,
    pub(super) more: u64,
}

impl Candidate {
    /// Episodes that a timeline names.
    const NAMED: usize = 6;

    fn new(kind: DelayKind, span: Span, pieces: impl Iterator<Item = Piece>, beyond: u64) -> Self {
        let mut timeline: Vec<Piece> = Vec::new();
        let mut more = beyond;
        for piece in pieces {
            let last = timeline.last_mut();
            let same = |last: &&mut Piece| last.source == piece.source && last.end == piece.start;
            if let Some(last) = last.filter(same) {
                last.end = piece.end;
            } else if timeline.len() < Self::NAMED {
                timeline.push(piece);
            } else {
                more += 1;
            }
        }
        Self {
            kind,
            span,
            timeline,
            more,
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
    const MOST: usize = 10;

    /// Whether a delay of this length would be among them.
    pub(super) fn wants(&self, length: Nanos) -> bool {
        self.0.len() < Self::MOST || self.0.last().is_some_and(|last| length > last.length())
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
        self.0.truncate(Self::MOST);
    }

    pub(super) fn into_longest(self) -> Vec<Candidate> {
        self.0
    }
}
