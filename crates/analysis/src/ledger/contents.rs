//! The contents of a gap: nested rows, clipped to the gap's interval.

use std::cmp::Reverse;

use ticktax_model::statement::Class;
use ticktax_model::{Interval, Nanos, SourceId, Span};

use super::signatures::Shape;
use crate::timeline::Piece;

/// One source's rows and time within a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceInGap {
    pub(crate) source: SourceId,
    /// Self time, which excludes any rows nested in the source's rows.
    pub(super) own: Nanos,
    /// Number of rows.
    pub(crate) count: u64,
    /// Length of the longest row, counting only the part inside the gap.
    pub(super) longest: Nanos,
}

/// A spinning probe's gap whose contents are fully known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JudgedGap<'a> {
    pub(crate) span: Span,
    /// The part of the gap that no named row covers.
    pub(crate) residual: Nanos,
    pub(crate) held: &'a [SourceInGap],
}

#[derive(Debug, Default)]
pub(super) struct Contents {
    /// One entry per source, in order of first occurrence.
    pub(super) held: Vec<SourceInGap>,
    /// Total self time of the sources, between 0 and the gap's length.
    pub(super) named: Nanos,
    /// The part of `named` that is in rows whose thread is unknown. It is already booked as
    /// unexplained.
    pub(super) unknown: Nanos,
    /// Base-2 logarithm of the distance between the gap and the nearest row outside it
    /// ([`nearness`](super::gaps::nearness)).
    pub(super) near: Option<u8>,
    /// Whether rows may be missing from the gap.
    pub(super) incomplete: bool,
    /// Whether a program ran in the gap, which means that the probe yielded to it.
    pub(super) yielded: bool,
    /// The kinds of rows in the gap.
    pub(super) shape: Shape,
    pieces: Vec<Piece>,
    open: Vec<Open>,
}

/// A row that has not ended yet at the scan position.
#[derive(Clone, Copy, Debug)]
struct Open {
    end: Nanos,
    /// Index of the row's source in `held`.
    held: usize,
}

impl Contents {
    pub(super) fn clear(&mut self) {
        self.held.clear();
        self.pieces.clear();
        self.open.clear();
        self.named = Nanos::ZERO;
        self.unknown = Nanos::ZERO;
        self.near = None;
        self.incomplete = false;
        self.yielded = false;
        self.shape = Shape::default();
    }

    /// Classifies the rows in the gap: adds up the time whose thread is unknown, notes whether a
    /// program ran, and sets the shape.
    pub(super) fn classify(&mut self, class: impl Fn(SourceId) -> Option<Class>) {
        for held in &self.held {
            let class = class(held.source);
            self.shape.add(class);
            match class {
                Some(Class::Unexplained) => self.unknown += held.own,
                Some(class) if class.is_program() => self.yielded = true,
                _ => {}
            }
        }
    }

    /// Returns the time in rows whose thread is known.
    pub(super) fn explained(&self) -> Nanos {
        self.named - self.unknown
    }

    /// Adds a row that overlaps the gap. Rows must be added in order of end time.
    pub(super) fn push(&mut self, piece: Piece) {
        self.pieces.push(piece);
    }

    /// Computes each source's self time in the gap. Must be called after all rows are added.
    ///
    /// Rows nest, so a source's self time is the time that its rows cover but no nested row does.
    /// This also holds for rows clipped at the gap's edge, even though their `self_time` does not
    /// show which side of the edge it was spent on. A row that is mostly inside counts as entirely
    /// inside if it extends beyond the gap by at most `tolerance`. The two clocks must disagree
    /// about such a row, because nothing else can run while the probe's loop does.
    pub(super) fn settle(&mut self, gap: Interval, tolerance: Nanos) {
        let window = self.widened(gap, tolerance);
        // If two rows have the same interval, the outer one arrives later. Reverse the pieces
        // first, because the sort is stable.
        self.pieces.reverse();
        self.pieces
            .sort_by_key(|piece| (piece.start, Reverse(piece.end)));
        for index in 0..self.pieces.len() {
            let piece = self.pieces[index];
            let start = piece.start.max(window.start);
            while self.open.last().is_some_and(|open| open.end <= start) {
                self.open.pop();
            }
            let limit = self.open.last().map_or(window.end, |open| open.end);
            let end = piece.end.min(limit).max(start);
            if let Some(parent) = self.open.last() {
                self.held[parent.held].own -= end - start;
            }
            let held = self.hold(piece.source, end - start);
            self.open.push(Open { end, held });
        }
        self.named = self.held.iter().map(|held| held.own).sum();
        self.trim(gap.length());
    }

    /// Returns the gap, widened at each edge to include the outermost row that crosses the edge.
    /// Such a row must be mostly inside, and extend beyond the gap by at most `tolerance`.
    fn widened(&self, gap: Interval, tolerance: Nanos) -> Interval {
        let belongs = |piece: &&Piece| {
            let inside = gap.overlap(Interval::new(piece.start, piece.end));
            inside + inside > piece.end - piece.start
        };
        let pieces = self.pieces.iter();
        let first = pieces
            .clone()
            .min_by_key(|piece| (piece.start, Reverse(piece.end)));
        let last = pieces.max_by_key(|piece| (piece.end, Reverse(piece.start)));
        let start = first
            .filter(belongs)
            .map_or(gap.start, |piece| piece.start.min(gap.start));
        let end = last
            .filter(belongs)
            .map_or(gap.end, |piece| piece.end.max(gap.end));
        Interval {
            start: if gap.start - start <= tolerance {
                start
            } else {
                gap.start
            },
            end: if end - gap.end <= tolerance {
                end
            } else {
                gap.end
            },
        }
    }

    fn hold(&mut self, source: SourceId, length: Nanos) -> usize {
        let found = self.held.iter().position(|held| held.source == source);
        let index = found.unwrap_or_else(|| {
            let nothing = SourceInGap {
                source,
                own: Nanos::ZERO,
                count: 0,
                longest: Nanos::ZERO,
            };
            self.held.push(nothing);
            self.held.len() - 1
        });
        let held = &mut self.held[index];
        held.own += length;
        held.count += 1;
        held.longest = held.longest.max(length);
        index
    }

    /// Subtracts any time in excess of the gap's length from the source with the most time. Only a
    /// widened gap can have such an excess.
    fn trim(&mut self, length: Nanos) {
        let excess = self.named - length;
        if excess > Nanos::ZERO {
            if let Some(largest) = self.held.iter_mut().max_by_key(|held| held.own) {
                largest.own -= excess;
            }
            self.named = length;
        }
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Interval, Nanos, SourceId};

    use super::Contents;
    use crate::timeline::Piece;

    /// Returns each source's self time in a gap from 0 to 1000 ns, and the sum of these times.
    fn settle(pieces: &[(i64, i64, u32)], tolerance: i64) -> (Vec<(u32, i64)>, i64) {
        let mut contents = Contents::default();
        for &(start, end, source) in pieces {
            let (start, end) = (Nanos(start), Nanos(end));
            contents.push(Piece {
                start,
                end,
                source: SourceId(source),
            });
        }
        let gap = Interval::new(Nanos(0), Nanos(1_000));
        contents.settle(gap, Nanos(tolerance));
        let held = contents
            .held
            .iter()
            .map(|held| (held.source.0, held.own.0))
            .collect();
        (held, contents.named.0)
    }

    #[test]
    fn nested_rows_share_the_time_of_the_outermost() {
        let rows = [(200, 300, 2), (400, 500, 2), (100, 600, 1), (700, 800, 3)];
        assert_eq!(settle(&rows, 0), (vec![(1, 300), (2, 200), (3, 100)], 600));
    }

    #[test]
    fn the_later_of_two_rows_with_the_same_interval_is_the_outer() {
        assert_eq!(
            settle(&[(100, 200, 2), (100, 200, 1)], 0),
            (vec![(1, 0), (2, 100)], 100)
        );
    }

    #[test]
    fn a_row_across_the_edge_is_clipped_together_with_its_nested_rows() {
        let rows = [(-50, 100, 2), (-200, 300, 1)];
        assert_eq!(settle(&rows, 100), (vec![(1, 200), (2, 100)], 300));
    }

    #[test]
    fn a_row_that_sticks_out_by_less_than_the_clock_error_counts_as_inside() {
        assert_eq!(settle(&[(-60, 400, 1)], 100).1, 460);
        assert_eq!(settle(&[(-60, 400, 1)], 50).1, 400);
        assert_eq!(settle(&[(-60, 1_000, 1)], 100), (vec![(1, 1_000)], 1_000));
        assert_eq!(
            settle(&[(-60, 40, 1)], 100).1,
            40,
            "most of the row lies outside the gap"
        );
    }

    #[test]
    fn a_row_of_zero_length_is_listed_in_the_gap() {
        assert_eq!(settle(&[(500, 500, 1)], 0), (vec![(1, 0)], 0));
    }
}
