//! What was in a gap: the geometry of nested rows, clipped to an interval.

use std::cmp::Reverse;

use ticktax_model::statement::Class;
use ticktax_model::{Nanos, SourceId, Span};

use super::signatures::Shape;
use crate::timeline::Piece;

/// The time that one source had in a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) source: SourceId,
    /// Net of what was nested in it.
    pub(super) own: Nanos,
    /// In how many rows.
    pub(crate) count: u64,
    /// The longest row, on the wall, as far as it lies in the gap.
    pub(super) longest: Nanos,
}

/// A gap of the spinning probe of which everything is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JudgedGap<'a> {
    pub(crate) span: Span,
    /// Its length beyond what is named in it.
    pub(crate) residual: Nanos,
    /// What is.
    pub(crate) held: &'a [Held],
}

/// All that was in one gap.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Source by source, in the order in which they first ran.
    pub(super) held: Vec<Held>,
    /// The sum of their own times: from 0 to the gap's length.
    pub(super) named: Nanos,
    /// The part of it in rows whose thread is not known, which are booked as unexplained already.
    pub(super) unknown: Nanos,
    /// How near to it the nearest other row was ([`nearness`](super::gaps::nearness)).
    pub(super) near: Option<u8>,
    /// Whether rows may be missing that were in it.
    pub(super) incomplete: bool,
    /// Whether the probe gave the CPU to a program that asked for it: one ran.
    pub(super) yielded: bool,
    /// What sorts of rows are in.
    pub(super) shape: Shape,
    pieces: Vec<Piece>,
    open: Vec<Open>,
}

/// A row that has not ended where the scan is.
#[derive(Clone, Copy, Debug)]
struct Open {
    end: Nanos,
    /// Its source's place in `held`.
    held: usize,
}

impl Contents {
    /// Forgets everything but its memory.
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

    /// Notes which of the rows that are in have no known thread, whether a program's are in, and of what sorts they are.
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

    /// The part of the gap that has a name.
    pub(super) fn explained(&self) -> Nanos {
        self.named - self.unknown
    }

    /// Adds a row that overlaps the gap. Rows come in the order in which they ended.
    pub(super) fn push(&mut self, piece: Piece) {
        self.pieces.push(piece);
    }

    /// Finds what each source had of the gap, once all rows are in.
    ///
    /// Rows nest, so a source's own time is what its rows cover and no row within them does. That
    /// is right for rows that are cut by the gap's edge too, where a row's `self_time` would not
    /// tell on which side of the edge it was spent. A row that sticks out of the gap by at most
    /// `tolerance` and is mostly inside counts whole: nothing else can have been running while the
    /// probe's loop stood still, so it is the clocks that disagree.
    pub(super) fn settle(&mut self, gap: (Nanos, Nanos), tolerance: Nanos) {
        let window = self.widened(gap, tolerance);
        // Ties: of two rows with the same interval, the outer one ends, and so comes, later. The
        // sort is stable, so the pieces are reversed first.
        self.pieces.reverse();
        self.pieces
            .sort_by_key(|piece| (piece.start, Reverse(piece.end)));
        for index in 0..self.pieces.len() {
            let piece = self.pieces[index];
            let start = piece.start.max(window.0);
            while self.open.last().is_some_and(|open| open.end <= start) {
                self.open.pop();
            }
            let limit = self.open.last().map_or(window.1, |open| open.end);
            let end = piece.end.min(limit).max(start);
            if let Some(parent) = self.open.last() {
                self.held[parent.held].own -= end - start;
            }
            let held = self.hold(piece.source, end - start);
            self.open.push(Open { end, held });
        }
        self.named = self.held.iter().map(|held| held.own).sum();
        self.trim(gap.1 - gap.0);
    }

    /// The gap, widened at each edge to the outermost row across it, where that row is mostly
    /// inside and sticks out by no more than `tolerance`.
    fn widened(&self, gap: (Nanos, Nanos), tolerance: Nanos) -> (Nanos, Nanos) {
        let belongs = |piece: &&Piece| {
            let inside = Nanos::overlap(gap, (piece.start, piece.end));
            inside + inside > piece.end - piece.start
        };
        let pieces = self.pieces.iter();
        let first = pieces
            .clone()
            .min_by_key(|piece| (piece.start, Reverse(piece.end)));
        let last = pieces.max_by_key(|piece| (piece.end, Reverse(piece.start)));
        let begin = first
            .filter(belongs)
            .map_or(gap.0, |piece| piece.start.min(gap.0));
        let end = last
            .filter(belongs)
            .map_or(gap.1, |piece| piece.end.max(gap.1));
        (
            if gap.0 - begin <= tolerance {
                begin
            } else {
                gap.0
            },
            if end - gap.1 <= tolerance { end } else { gap.1 },
        )
    }

    /// Adds a row of `length` to what `source` held, and tells its place.
    fn hold(&mut self, source: SourceId, length: Nanos) -> usize {
        let found = self.held.iter().position(|held| held.source == source);
        let index = found.unwrap_or_else(|| {
            let nothing = Held {
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

    /// Cuts what exceeds the gap's length, which only a widened gap's contents can, from the
    /// largest.
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
    use ticktax_model::{Nanos, SourceId};

    use super::Contents;
    use crate::timeline::Piece;

    /// The own time of each source in a gap of 1000 ns from 0 on, and their sum.
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
        contents.settle((Nanos(0), Nanos(1_000)), Nanos(tolerance));
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
    fn of_two_rows_with_one_interval_the_later_is_the_outer() {
        assert_eq!(
            settle(&[(100, 200, 2), (100, 200, 1)], 0),
            (vec![(1, 0), (2, 100)], 100)
        );
    }

    #[test]
    fn a_row_over_the_edge_is_clipped_with_what_is_in_it() {
        let rows = [(-50, 100, 2), (-200, 300, 1)];
        assert_eq!(settle(&rows, 100), (vec![(1, 200), (2, 100)], 300));
    }

    #[test]
    fn a_row_that_sticks_out_by_less_than_the_clocks_are_off_is_in_the_gap() {
        assert_eq!(settle(&[(-60, 400, 1)], 100).1, 460);
        assert_eq!(settle(&[(-60, 400, 1)], 50).1, 400);
        assert_eq!(settle(&[(-60, 1_000, 1)], 100), (vec![(1, 1_000)], 1_000));
        assert_eq!(
            settle(&[(-60, 40, 1)], 100).1,
            40,
            "most of it is elsewhere"
        );
    }

    #[test]
    fn a_row_of_no_length_is_in_the_gap_all_the_same() {
        assert_eq!(settle(&[(500, 500, 1)], 0), (vec![(1, 0)], 0));
    }
}
