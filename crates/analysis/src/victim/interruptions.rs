//! What interrupted the thread that is on a CPU, until its base row comes.

use ticktax_model::{Nanos, SourceId, Span};

use crate::ledger::tally::Tally;
use crate::timeline::Piece;

/// Interrupts one right after the other, and softirqs after them: one delay to the thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Stretch {
    /// Those that no other held, in order.
    pub(super) pieces: Vec<Piece>,
    /// How many came after those.
    pub(super) more: u64,
    end: Nanos,
}

impl Stretch {
    /// Pieces that a stretch names.
    const NAMED: usize = 32;

    pub(super) fn start(&self) -> Nanos {
        self.pieces.first().map_or(self.end, |piece| piece.start)
    }

    pub(super) fn length(&self) -> Nanos {
        self.end - self.start()
    }

    fn push(&mut self, piece: Piece) {
        self.end = self.end.max(piece.end);
        if self.pieces.len() < Self::NAMED {
            self.pieces.push(piece);
        } else {
            self.more += 1;
        }
    }
}

/// The interruptions of one CPU since its last context switch.
#[derive(Debug, Default)]
pub(super) struct Interruptions {
    by_source: Vec<(SourceId, Tally)>,
    stretches: Vec<Stretch>,
}

impl Interruptions {
    /// Less than this between two interrupts is no time to work in.
    const JOINED: Nanos = Nanos::from_micros(2);
    /// So many stretches are kept, of a thread that runs for long; and so many of them, the
    /// longest, when there were more.
    const MAX: usize = 128;
    const LONGEST: usize = 16;

    /// Takes a row; `whole` when it is an interrupt or softirq, not a function within one.
    pub(super) fn note(&mut self, span: &Span, whole: bool) {
        let found = self.by_source.iter().position(|(id, _)| *id == span.source);
        let at = found.unwrap_or_else(|| {
            self.by_source.push((span.source, Tally::default()));
            self.by_source.len() - 1
        });
        self.by_source[at].1.add(span.self_time, span.dur);
        if whole {
            self.extend(Piece {
                start: span.start,
                end: span.end(),
                source: span.source,
            });
        }
    }

    /// Adds a piece in place of what it holds.
    fn extend(&mut self, piece: Piece) {
        while let Some(last) = self.stretches.last_mut() {
            while last.pieces.last().is_some_and(|p| p.start >= piece.start) {
                last.pieces.pop();
                last.end = last.pieces.last().map_or(Nanos::ZERO, |p| p.end);
            }
            if !last.pieces.is_empty() {
                break;
            }
            self.stretches.pop();
        }
        match self.stretches.last_mut() {
            Some(last) if piece.start - last.end <= Self::JOINED => last.push(piece),
            _ => {
                let mut stretch = Stretch::default();
                stretch.push(piece);
                self.stretches.push(stretch);
            }
        }
        if self.stretches.len() > Self::MAX {
            let mut lengths: Vec<Nanos> = self.stretches.iter().map(Stretch::length).collect();
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            let min = lengths[Self::LONGEST];
            let newest = self.stretches.pop();
            self.stretches.retain(|stretch| stretch.length() > min);
            self.stretches.extend(newest);
        }
    }

    pub(super) fn by_source(&self) -> &[(SourceId, Tally)] {
        &self.by_source
    }

    pub(super) fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// Forgets everything, for the next thread.
    pub(super) fn clear(&mut self) {
        self.by_source.clear();
        self.stretches.clear();
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Cpu, Nanos, SourceId, Span};

    use super::Interruptions;

    #[test]
    fn what_follows_at_once_is_one_stretch_and_what_is_held_is_not_told_twice() {
        let mut interruptions = Interruptions::default();
        for (start, dur, source) in [
            (100, 50, 1),
            (1_000, 5_000, 1),
            // An interrupt within the softirq after it.
            (7_000, 500, 1),
            (6_100, 9_000, 2),
            (90_000, 10, 1),
        ] {
            let span = Span {
                cpu: Cpu(0),
                start: Nanos(start),
                dur: Nanos(dur),
                self_time: Nanos(dur),
                source: SourceId(source),
            };
            interruptions.note(&span, true);
        }
        let told: Vec<(i64, usize)> = interruptions
            .stretches()
            .iter()
            .map(|stretch| (stretch.length().0, stretch.pieces.len()))
            .collect();
        assert_eq!(told, [(15_000, 3), (10, 1)]);
        assert_eq!(interruptions.by_source().len(), 2);
    }
}
