//! Which rows a gap holds, found while both stream by.
//!
//! The rows of a CPU come in the order in which they ended, and so do its gaps; but the two come
//! through different buffers that are drained in turn, so that a gap may come before the rows that
//! it holds, or after them. Each CPU therefore keeps its recent rows, and its gaps until their rows
//! must have come. Both queues are bounded; a gap whose rows may have been forgotten says so
//! instead of passing for empty.

use std::collections::VecDeque;

use ticktax_model::recording::ProbeKind;
use ticktax_model::{Nanos, SourceId, Span};

use super::contents::{Contents, Piece};

/// A gap that a probe saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) probe: ProbeKind,
    pub(super) span: Span,
}

impl Gap {
    pub(super) fn new(probe: ProbeKind, span: &Span) -> Self {
        Self { probe, span: *span }
    }

    /// Whether time that the gap holds was charged to the probe.
    pub(super) fn moves_time(&self) -> bool {
        self.probe == ProbeKind::Spin
    }
}

/// A row of the recent past.
#[derive(Clone, Copy, Debug)]
struct Recent {
    start: Nanos,
    end: Nanos,
    self_time: Nanos,
    source: SourceId,
    /// Whether a gap was found to hold it.
    placed: bool,
}

/// The recent past of one CPU.
#[derive(Debug, Default)]
pub(super) struct TimeLine {
    /// Rows that are not the probe's, by end.
    rows: VecDeque<Recent>,
    gaps: VecDeque<Gap>,
    /// The latest end of a row, and of a gap.
    newest_row: Nanos,
    newest_gap: Nanos,
    /// How many rows were forgotten, and the latest end of one.
    forgotten: usize,
    forgotten_until: Option<Nanos>,
    /// Where the search for the next gap's rows begins: how many rows, the forgotten ones included,
    /// ended before the last gap began; and when that was.
    searched: (usize, Nanos),
    /// The latest end of a gap that was judged.
    judged_until: Option<Nanos>,
    /// Own time of rows that may be in gaps without having been found there.
    unplaced: Nanos,
    unplaceable: bool,
}

impl TimeLine {
    /// How long after a gap's end a row must have ended for all the gap's rows to have come. By
    /// the order of rows 0 would do; a quarter of a second forgives a producer that merges them
    /// loosely, and is five times as long as the live one takes to come round.
    const SETTLED: Nanos = Nanos::from_millis(250);
    /// The same by a later gap, which says less about rows. It is what moves a CPU along on which
    /// nothing runs but the probe.
    const SETTLED_BY_GAPS: Nanos = Nanos::from_secs(3);
    /// How long rows are kept: for gaps that come late, and for gaps that are long.
    const KEPT: Nanos = Nanos::from_secs(10);
    /// The most rows kept: 18 MiB a CPU, two seconds of 250 000 rows a second.
    const MOST_ROWS: usize = 1 << 19;
    /// The most gaps that wait: 3 MiB a CPU.
    const MOST_GAPS: usize = 1 << 16;

    /// Takes a row that is not the probe's.
    pub(super) fn push_span(&mut self, span: &Span) {
        let end = span.end();
        self.saw(end);
        if self.judged_until.is_some_and(|judged| end <= judged) {
            self.cannot_place(span.self_time);
        }
        let (start, self_time, source) = (span.start, span.self_time, span.source);
        self.rows.push_back(Recent {
            start,
            end,
            self_time,
            source,
            placed: false,
        });
        let mut last = self.rows.len() - 1;
        while last > 0 && self.rows[last - 1].end > end {
            self.rows.swap(last - 1, last);
            last -= 1;
            self.searched = (0, Nanos::MAX);
        }
        self.forget();
    }

    /// Takes note that a row, the probe's or another's, ended at `end`.
    pub(super) fn saw(&mut self, end: Nanos) {
        self.newest_row = self.newest_row.max(end);
    }

    /// Takes a gap.
    pub(super) fn push_gap(&mut self, gap: Gap) {
        self.newest_gap = self.newest_gap.max(gap.span.end());
        self.gaps.push_back(gap);
    }

    /// Takes note of `time` that may be in a gap, any gap: rows summed over a window, or a row
    /// that came after its gap had to be judged. From here on no gap of this CPU tells everything.
    pub(super) fn cannot_place(&mut self, time: Nanos) {
        self.unplaced += time;
        self.unplaceable = true;
    }

    /// Whether there are rows that cannot be told to be in a gap or not.
    pub(super) fn is_unplaceable(&self) -> bool {
        self.unplaceable
    }

    /// Own time of rows that may be in gaps without having been found there.
    pub(super) fn unplaced(&self) -> Nanos {
        self.unplaced
    }

    fn forget(&mut self) {
        while let Some(&row) = self.rows.front() {
            let old = row.end < self.newest_row - Self::KEPT;
            if !old && self.rows.len() <= Self::MOST_ROWS {
                return;
            }
            self.rows.pop_front();
            self.forgotten += 1;
            self.forgotten_until = self.forgotten_until.max(Some(row.end));
            if !row.placed {
                self.unplaced += row.self_time;
            }
        }
    }

    /// Whether the first gap's rows must all have come, or too many gaps wait.
    pub(super) fn has_ripe_gap(&self) -> bool {
        self.gaps.front().is_some_and(|gap| {
            let end = gap.span.end();
            self.newest_row > end + Self::SETTLED
                || self.newest_gap > end + Self::SETTLED_BY_GAPS
                || self.gaps.len() > Self::MOST_GAPS
        })
    }

    /// The next gap to judge: one that is ripe, or any when `all` rows have come.
    pub(super) fn next_gap(&mut self, all: bool) -> Option<Gap> {
        if all {
            // No row is missing any more.
            self.newest_row = Nanos::MAX;
        }
        if all || self.has_ripe_gap() {
            self.gaps.pop_front()
        } else {
            None
        }
    }

    /// The place of the first row that ended at `time` or later. Gaps come in order, so the search
    /// goes on from where the last one ended: over a recording that looks at each row once, and in
    /// the order of memory.
    fn first_ending_from(&mut self, time: Nanos) -> usize {
        let (before, since) = self.searched;
        let mut first = before.saturating_sub(self.forgotten);
        if time < since || first > self.rows.len() {
            first = self.rows.partition_point(|row| row.end < time);
        }
        first += self
            .rows
            .range(first..)
            .take_while(|row| row.end < time)
            .count();
        self.searched = (self.forgotten + first, time);
        first
    }

    /// Finds what was in `gap`.
    pub(super) fn look_into(&mut self, gap: &Gap, tolerance: Nanos, contents: &mut Contents) {
        contents.clear();
        let (begin, end) = (gap.span.start, gap.span.end());
        let settled = self.newest_row >= end || self.newest_gap > end + Self::SETTLED_BY_GAPS;
        contents.blind = !settled || self.forgotten_until.is_some_and(|until| until > begin);
        let first = self.first_ending_from(begin);
        for row in self.rows.range_mut(first..) {
            // At the gap's end the probe runs again, so no row of another's spans that moment, and
            // those that end later began later.
            if row.start >= end && row.end > end {
                break;
            }
            let touches = row.start >= end || (row.end == begin && row.start < begin);
            if touches {
                continue;
            }
            row.placed = true;
            contents.push(Piece {
                start: row.start,
                end: row.end,
                source: row.source,
            });
        }
        contents.settle((begin, end), tolerance);
        self.judged_until = self.judged_until.max(Some(end));
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::recording::ProbeKind;
    use ticktax_model::{Cpu, Nanos, SourceId, Span};

    use super::{Contents, Gap, TimeLine};

    fn span(start: Nanos, dur: Nanos) -> Span {
        Span {
            cpu: Cpu(0),
            start,
            dur,
            self_time: dur,
            source: SourceId(0),
        }
    }

    fn gap(start: Nanos, dur: Nanos) -> Gap {
        Gap::new(ProbeKind::Spin, &span(start, dur))
    }

    /// Judges the next gap, if one is ripe: what is named in it, and whether that may not be all.
    fn judge(line: &mut TimeLine, all: bool) -> Option<(Nanos, bool)> {
        let gap = line.next_gap(all)?;
        let mut contents = Contents::default();
        line.look_into(&gap, Nanos::ZERO, &mut contents);
        Some((contents.named, contents.blind))
    }

    #[test]
    fn a_gap_waits_for_rows_that_come_after_it() {
        let mut line = TimeLine::default();
        line.push_gap(gap(Nanos(1_000), Nanos(1_000)));
        assert_eq!(judge(&mut line, false), None);
        line.push_span(&span(Nanos(1_200), Nanos(300)));
        assert_eq!(judge(&mut line, false), None);
        line.push_span(&span(Nanos::from_secs(2), Nanos(300)));
        assert_eq!(judge(&mut line, false), Some((Nanos(300), false)));
    }

    #[test]
    fn a_gap_finds_rows_that_came_before_it() {
        let mut line = TimeLine::default();
        line.push_span(&span(Nanos(1_200), Nanos(300)));
        line.push_span(&span(Nanos::from_secs(2), Nanos(300)));
        line.push_gap(gap(Nanos(1_000), Nanos(1_000)));
        assert_eq!(judge(&mut line, false), Some((Nanos(300), false)));
    }

    #[test]
    fn gaps_alone_move_a_quiet_cpu_along() {
        let mut line = TimeLine::default();
        for second in 0..6 {
            line.push_gap(gap(Nanos::from_secs(second), Nanos(1_000)));
        }
        assert_eq!(judge(&mut line, false), Some((Nanos::ZERO, false)));
        assert_eq!(judge(&mut line, false), Some((Nanos::ZERO, false)));
        assert_eq!(judge(&mut line, false), None);
    }

    #[test]
    fn a_gap_whose_rows_were_forgotten_says_so() {
        let mut line = TimeLine::default();
        for second in 0..30 {
            line.push_span(&span(Nanos::from_secs(second), Nanos::from_secs(1)));
        }
        line.push_gap(gap(Nanos::from_secs(1), Nanos::from_secs(29)));
        let (named, blind) = judge(&mut line, true).unwrap();
        assert!(blind);
        assert_eq!(named + line.unplaced(), Nanos::from_secs(30));
    }

    #[test]
    fn what_waits_is_bounded_and_a_gap_judged_early_says_so() {
        let mut line = TimeLine::default();
        let many = i64::try_from(TimeLine::MOST_GAPS).unwrap() + 2;
        (0..many).for_each(|at| line.push_gap(gap(Nanos(at * 10), Nanos(5))));
        assert_eq!(judge(&mut line, false), Some((Nanos::ZERO, true)));
        line.push_span(&span(Nanos(many * 10), Nanos(5)));
        assert_eq!(judge(&mut line, false), Some((Nanos::ZERO, false)));

        let many = i64::try_from(TimeLine::MOST_ROWS).unwrap() + 3;
        (0..many).for_each(|at| line.push_span(&span(Nanos(at * 10), Nanos(5))));
        assert_eq!(line.rows.len(), TimeLine::MOST_ROWS);
    }

    #[test]
    fn a_row_that_comes_after_its_gap_was_judged_is_noticed() {
        let mut line = TimeLine::default();
        line.push_gap(gap(Nanos(1_000), Nanos(1_000)));
        line.push_span(&span(Nanos::from_secs(2), Nanos(1)));
        assert!(judge(&mut line, false).is_some());
        assert!(!line.is_unplaceable());
        line.push_span(&span(Nanos(1_200), Nanos(300)));
        assert!(line.is_unplaceable());
        assert_eq!(line.unplaced(), Nanos(300));
    }
}
