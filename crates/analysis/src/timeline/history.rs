//! The recent history of one CPU, shared by all consumers that look up what ran when.
//!
//! Rows are sorted by end time, which is also the order in which a CPU's rows arrive. A late row is
//! inserted where it belongs. Rows are dropped when they get too old or too numerous, and the
//! dropped time is counted.

use ticktax_model::{Nanos, SourceId, Span};

use crate::late::{Inserter, partition_near};
use crate::segments::Segments;

/// Limits on a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    /// Maximum age of a row, measured from its end to the latest end among all rows.
    pub(super) time: Nanos,
    /// Maximum number of rows per CPU.
    pub(super) rows: usize,
}

impl Keep {
    /// Limits that leave room for late rows, and for long rows of threads, gaps and waits. At 250
    /// 000 rows per second, the history covers two seconds and takes 16 MiB per CPU.
    pub(crate) const LONG: Self = Self {
        time: Nanos::from_secs(10),
        rows: 1 << 19,
    };
    pub(crate) const NOTHING: Self = Self {
        time: Nanos::ZERO,
        rows: 0,
    };
}

/// A row in the history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recent {
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) self_time: Nanos,
    pub(crate) source: SourceId,
    /// Whether this is a base row: a thread or idle time.
    pub(crate) on_cpu: bool,
    /// Whether the row's time belongs to a probe.
    pub(crate) probe: bool,
    /// Whether the row was found inside a gap.
    pub(crate) placed: bool,
}

/// An interval in which one source ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) source: SourceId,
}

/// One CPU's recent rows: threads, idle time, interrupts and stolen time.
#[derive(Debug)]
pub(crate) struct History {
    keep: Keep,
    /// The rows kept, sorted by end.
    rows: Segments<Recent>,
    /// Latest end among all rows.
    newest: Nanos,
    forgotten: Forgotten,
    /// Result of the last search by time: the number of rows, including dropped ones, that ended
    /// before the time searched for, and that time.
    searched: (usize, Nanos),
}

/// Facts about the dropped rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forgotten {
    rows: usize,
    /// Latest end among dropped rows that did not belong to a probe.
    pub(crate) until: Option<Nanos>,
    /// Self time of dropped rows that did not belong to a probe and were not found in a gap.
    pub(crate) unplaced: Nanos,
}

impl History {
    pub(super) fn new(keep: Keep) -> Self {
        Self {
            keep,
            rows: Segments::new(),
            newest: Nanos::ZERO,
            forgotten: Forgotten::default(),
            searched: (0, Nanos::ZERO),
        }
    }

    /// Adds a row. `late` inserts it in order of end time. For `on_cpu` and `probe`, see
    /// [`Recent`].
    #[inline]
    pub(super) fn push(&mut self, span: &Span, on_cpu: bool, probe: bool, late: &mut Inserter) {
        let end = span.end();
        self.newest = self.newest.max(end);
        if self.keep.rows == 0 {
            return;
        }
        if self.rows.back().is_some_and(|last| last.end > end) {
            self.searched = (0, Nanos::MAX);
        }
        let row = Recent {
            start: span.start,
            end,
            self_time: span.self_time,
            source: span.source,
            on_cpu,
            probe,
            placed: false,
        };
        late.insert(&mut self.rows, row, |row| row.end);
        if self.has_old_row() {
            self.forget();
        }
    }

    #[inline]
    fn has_old_row(&self) -> bool {
        let is_old = |row: &Recent| row.end < self.newest - self.keep.time;
        self.rows.len() > self.keep.rows || self.rows.front().is_some_and(is_old)
    }

    fn forget(&mut self) {
        while self.has_old_row() {
            let Some(row) = self.rows.pop_front() else {
                return;
            };
            self.forgotten.rows += 1;
            if row.probe {
                continue;
            }
            self.forgotten.until = self.forgotten.until.max(Some(row.end));
            if !row.placed {
                // Saturate the sum, because rows in a file can have any length.
                let unplaced = self.forgotten.unplaced.0.saturating_add(row.self_time.0);
                self.forgotten.unplaced = Nanos(unplaced);
            }
        }
    }

    pub(crate) fn newest(&self) -> Nanos {
        self.newest
    }

    pub(crate) fn forgotten(&self) -> &Forgotten {
        &self.forgotten
    }

    /// Returns the rows that ended at `time` or later, sorted by end. If `time` is later than in
    /// the last search, the search continues from there. Over a recording, such searches read each
    /// row only once, and in memory order.
    pub(crate) fn ending_from(&mut self, time: Nanos) -> impl Iterator<Item = &mut Recent> {
        let (before, since) = self.searched;
        let mut first = before.saturating_sub(self.forgotten.rows);
        if time < since || first > self.rows.len() {
            first = self.rows.partition_point(|row| row.end < time);
        }
        first += self
            .rows
            .range(first..)
            .take_while(|row| row.end < time)
            .count();
        self.searched = (self.forgotten.rows + first, time);
        self.rows.range_mut(first..)
    }

    /// Same as [`History::on_cpu_during`], but faster if `span` is far in the past.
    pub(crate) fn on_cpu_within(&self, span: &Span) -> impl Iterator<Item = Piece> + use<'_> {
        let first = self.rows.partition_point(|row| row.end <= span.start);
        self.on_cpu_from(first, span)
    }

    /// Same as [`History::on_cpu_during`], but fast if the previous search with the same `near` was
    /// for a similar time. `near` is 0 for the first search.
    pub(crate) fn on_cpu_near(
        &self,
        span: &Span,
        near: &mut usize,
    ) -> impl Iterator<Item = Piece> + use<'_> {
        let hint = near.saturating_sub(self.forgotten.rows);
        let first = partition_near(&self.rows, hint, |row| row.end <= span.start);
        *near = self.forgotten.rows + first;
        self.on_cpu_from(first, span)
    }

    /// Returns the threads and idle time during `span`, in order and clipped to it. They cover
    /// `span` without gaps. The search is fast if `span` is recent.
    pub(crate) fn on_cpu_during(&self, span: &Span) -> impl Iterator<Item = Piece> + use<'_> {
        self.on_cpu_from(self.first_after(span.start), span)
    }

    /// Returns the threads and idle time during `span`. `first` is the index of the first row that
    /// ended after the start of `span`.
    fn on_cpu_from(&self, first: usize, span: &Span) -> impl Iterator<Item = Piece> + use<'_> {
        let (begin, end) = (span.start, span.end());
        // Most intervals contain few rows, so an iterator over segments would not pay off.
        (first..self.rows.len())
            .map_while(move |index| self.rows.get(index))
            .filter(|row| row.on_cpu)
            .take_while(move |row| row.start < end)
            .map(move |row| Piece {
                start: row.start.max(begin),
                end: row.end.min(end),
                source: row.source,
            })
    }

    /// Returns the index of the first row that ended after `time`. Searches the latest rows first.
    fn first_after(&self, time: Nanos) -> usize {
        const LATEST: usize = 64;
        let latest = self.rows.iter().rev().take(LATEST);
        match latest.take_while(|row| row.end > time).count() {
            LATEST => self.rows.partition_point(|row| row.end <= time),
            later => self.rows.len() - later,
        }
    }

    /// Returns the sources that a thread waited behind during `span`, in order and clipped to it:
    /// threads, idle time, and interrupts long enough to count as separate causes.
    pub(crate) fn ran_during(&self, span: &Span) -> Vec<Piece> {
        let pieces = self.on_cpu_during(span).collect();
        let long = self.interrupts_during(span);
        if long.is_empty() {
            return pieces;
        }
        carved(&pieces, &long)
    }

    /// Returns everything that the CPU did during `span`, in order and clipped to it. This includes
    /// all interrupts, and the threads and idle time between them. The search is fast even if
    /// `span` is far in the past.
    pub(crate) fn did_within(&self, span: &Span) -> Vec<Piece> {
        let (begin, end) = (span.start, span.end());
        let first = self.rows.partition_point(|row| row.end <= begin);
        // The thread that was running when `span` ended has a row that comes after the rows that
        // interrupted it.
        let rows = self.rows.range(first..);
        let rows = rows.take_while(|row| !(row.on_cpu && row.start >= end));
        let cut = |row: &Recent| Piece {
            start: row.start.max(begin),
            end: row.end.min(end),
            source: row.source,
        };
        let (on_cpu, interrupts): (Vec<&Recent>, Vec<&Recent>) = rows
            .filter(|row| row.start < end)
            .partition(|row| row.on_cpu);
        let mut outermost: Vec<&Recent> = Vec::new();
        for row in interrupts.into_iter().rev() {
            if outermost.last().is_none_or(|outer| row.start < outer.start) {
                outermost.push(row);
            }
        }
        let interrupts: Vec<Piece> = outermost.into_iter().rev().map(cut).collect();
        let pieces: Vec<Piece> = on_cpu.into_iter().map(cut).collect();
        carved(&pieces, &interrupts)
    }

    /// Returns the outermost interrupts of at least [`LONG_INTERRUPT`] during `span`, in order and
    /// clipped to it.
    fn interrupts_during(&self, span: &Span) -> Vec<Piece> {
        let (begin, end) = (span.start, span.end());
        if span.dur < LONG_INTERRUPT {
            return Vec::new();
        }
        let mut found: Vec<Piece> = Vec::new();
        let later = self.rows.iter().rev();
        for row in later.take_while(|row| row.end > begin) {
            // In reverse order, an outer interrupt precedes the ones nested in it.
            let nested = found.last().is_some_and(|outer| row.start >= outer.start);
            if row.on_cpu || nested || row.end - row.start < LONG_INTERRUPT || row.start >= end {
                continue;
            }
            found.push(Piece {
                start: row.start.max(begin),
                end: row.end.min(end),
                source: row.source,
            });
        }
        found.reverse();
        found
    }
}

/// An interrupt of at least this length counts as a separate cause of a wait. Shorter ones count as
/// part of the thread that they interrupted.
const LONG_INTERRUPT: Nanos = Nanos::from_micros(100);

/// Replaces the parts of `pieces` that overlap `others` with `others`. Both must be in order.
fn carved(pieces: &[Piece], others: &[Piece]) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::with_capacity(pieces.len() + 2 * others.len());
    for piece in pieces {
        let mut from = piece.start;
        for other in others {
            if other.end <= from || other.start >= piece.end {
                continue;
            }
            let (start, end) = (other.start.max(from), other.end.min(piece.end));
            if start > from {
                all.push(Piece {
                    start: from,
                    end: start,
                    ..*piece
                });
            }
            all.push(Piece {
                start,
                end,
                ..*other
            });
            from = end;
        }
        if from < piece.end {
            all.push(Piece {
                start: from,
                ..*piece
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Cpu, Nanos, SourceId, Span};

    use super::{History, Inserter, Keep};

    fn span(start: Nanos, dur: Nanos) -> Span {
        Span {
            cpu: Cpu(0),
            start,
            dur,
            self_time: dur,
            source: SourceId(0),
        }
    }

    fn row(history: &mut History, start: i64, dur: i64, on_cpu: bool) {
        history.push(
            &span(Nanos(start), Nanos(dur)),
            on_cpu,
            false,
            &mut Inserter::default(),
        );
    }

    #[test]
    fn pieces_are_cut_to_the_span() {
        let mut history = History::new(Keep::LONG);
        for start in [0, 100, 200, 300] {
            row(&mut history, start + 20, 30, false);
            row(&mut history, start, 100, true);
        }
        let cut: Vec<(i64, i64)> = history
            .on_cpu_during(&span(Nanos(150), Nanos(100)))
            .map(|piece| (piece.start.0, piece.end.0))
            .collect();
        assert_eq!(cut, [(150, 200), (200, 250)]);
    }

    /// There is 1 ms of idle time, with short interrupts and a 400 µs softirq that is itself
    /// interrupted for 150 µs.
    #[test]
    fn a_long_interrupt_is_a_separate_piece() {
        let mut history = History::new(Keep::LONG);
        let mut put = |start: i64, dur: i64, source, on_cpu| {
            let source = SourceId(source);
            let span = span(Nanos(start * 1_000), Nanos(dur * 1_000));
            history.push(
                &Span { source, ..span },
                on_cpu,
                false,
                &mut Inserter::default(),
            );
        };
        put(50, 5, 1, false);
        put(300, 150, 1, false);
        put(200, 400, 2, false);
        put(900, 5, 1, false);
        put(0, 1_000, 0, true);
        let ran = history.ran_during(&span(Nanos(100_000), Nanos(600_000)));
        let ran: Vec<(i64, i64, u32)> = ran
            .iter()
            .map(|piece| (piece.start.0 / 1_000, piece.end.0 / 1_000, piece.source.0))
            .collect();
        assert_eq!(ran, [(100, 200, 0), (200, 600, 2), (600, 700, 0)]);
    }

    #[test]
    fn the_activity_of_a_cpu_includes_short_interrupts() {
        let mut history = History::new(Keep::LONG);
        let mut put = |start: i64, dur: i64, source, on_cpu| {
            let span = span(Nanos(start), Nanos(dur));
            let source = SourceId(source);
            history.push(
                &Span { source, ..span },
                on_cpu,
                false,
                &mut Inserter::default(),
            );
        };
        put(50, 5, 1, false);
        put(300, 150, 1, false);
        put(200, 400, 2, false);
        put(690, 20, 1, false);
        put(0, 1_000, 0, true);
        put(1_000, 100, 0, true);
        let did = history.did_within(&span(Nanos(100), Nanos(600)));
        let did: Vec<(i64, i64, u32)> = did
            .iter()
            .map(|piece| (piece.start.0, piece.end.0, piece.source.0))
            .collect();
        let expected = [(100, 200, 0), (200, 600, 2), (600, 690, 0), (690, 700, 1)];
        assert_eq!(did, expected);
        assert_eq!(history.did_within(&span(Nanos(1_200), Nanos(5))), []);
    }

    #[test]
    fn a_late_row_is_sorted_in_and_found() {
        let mut history = History::new(Keep::LONG);
        row(&mut history, 100, 10, false);
        row(&mut history, 300, 10, false);
        let from = |history: &mut History, time| -> Vec<i64> {
            let rows = history.ending_from(Nanos(time));
            rows.map(|row| row.start.0).collect()
        };
        assert_eq!(from(&mut history, 150), [300]);
        row(&mut history, 200, 10, false);
        assert_eq!(from(&mut history, 150), [200, 300]);
        assert_eq!(from(&mut history, 50), [100, 200, 300]);
    }

    #[test]
    fn a_history_is_bounded_and_counts_the_dropped_rows() {
        let mut history = History::new(Keep::LONG);
        let many = i64::try_from(Keep::LONG.rows).unwrap() + 3;
        (0..many).for_each(|at| row(&mut history, at * 10, 5, false));
        assert_eq!(history.rows.len(), Keep::LONG.rows);
        assert_eq!(history.forgotten().unplaced, Nanos(15));
        assert_eq!(history.forgotten().until, Some(Nanos(25)));

        let mut history = History::new(Keep::LONG);
        for second in 0..30 {
            let second = Nanos::from_secs(second);
            history.push(
                &span(second, Nanos(1)),
                false,
                second.0 == 0,
                &mut Inserter::default(),
            );
        }
        // A probe's time is charged to the probe even if it was not in a gap.
        let forgotten = history.forgotten();
        assert_eq!(
            forgotten.unplaced.0,
            i64::try_from(forgotten.rows).unwrap() - 1
        );
        assert_eq!(history.rows.len() + forgotten.rows, 30);
    }
}
