//! Who was on a CPU lately.

use std::collections::VecDeque;

use ticktax_model::{Nanos, SourceId, Span};

/// An interval in which one source was on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: Nanos,
    pub(super) end: Nanos,
    pub(super) source: SourceId,
}

/// The base rows of one CPU's recent past, in order.
#[derive(Debug, Default)]
pub(super) struct Past(VecDeque<Piece>);

impl Past {
    /// Of a wait that is longer, the beginning cannot be told any more.
    const KEPT: Nanos = Nanos::from_secs(10);
    /// The most rows kept: 1.5 MiB a CPU.
    const MOST: usize = 1 << 16;

    pub(super) fn push(&mut self, span: &Span) {
        let (start, end) = (span.start, span.end());
        self.0.push_back(Piece {
            start,
            end,
            source: span.source,
        });
        while self.0.len() > Self::MOST
            || self
                .0
                .front()
                .is_some_and(|piece| piece.end < end - Self::KEPT)
        {
            self.0.pop_front();
        }
    }

    /// What was on the CPU during `span`, in order, each cut to it.
    pub(super) fn within(&self, span: &Span) -> impl Iterator<Item = Piece> {
        let (begin, end) = (span.start, span.end());
        let later = self
            .0
            .iter()
            .rev()
            .take_while(|piece| piece.end > begin)
            .count();
        self.0
            .range(self.0.len() - later..)
            .filter(move |piece| piece.start < end)
            .map(move |piece| Piece {
                start: piece.start.max(begin),
                end: piece.end.min(end),
                source: piece.source,
            })
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Cpu, Nanos, SourceId, Span};

    use super::Past;

    #[test]
    fn what_overlaps_is_cut() {
        let span = |start, dur| Span {
            cpu: Cpu(0),
            start: Nanos(start),
            dur: Nanos(dur),
            self_time: Nanos(dur),
            source: SourceId(0),
        };
        let mut past = Past::default();
        for start in [0, 100, 200, 300] {
            past.push(&span(start, 100));
        }
        let cut: Vec<(i64, i64)> = past
            .within(&span(150, 100))
            .map(|piece| (piece.start.0, piece.end.0))
            .collect();
        assert_eq!(cut, [(150, 200), (200, 250)]);
    }
}
