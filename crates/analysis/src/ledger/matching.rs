//! Finds the rows inside each gap while rows and gaps both arrive as streams.
//!
//! Both the rows and the gaps of a CPU arrive in order of end time. But they come through different
//! buffers that are drained in turn, so a gap can arrive before or after its rows. Each CPU's
//! recent rows are kept in its [`History`]. Gaps wait here until all their rows must have arrived.
//! Both the history and this queue are bounded. If rows in a gap may have been forgotten, the gap
//! is marked as incomplete, so that it is not mistaken for an empty one.

use std::collections::VecDeque;

use ticktax_model::recording::ProbeKind;
use ticktax_model::{Interval, Nanos, Span};

use super::contents::Contents;
use super::gaps::{NEAR_MAX, nearness};
use crate::timeline::{History, Piece};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) probe: ProbeKind,
    pub(super) span: Span,
}

impl Gap {
    pub(super) fn new(probe: ProbeKind, span: &Span) -> Self {
        Self { probe, span: *span }
    }

    /// Returns whether the gap's time was charged to the probe and must be moved.
    pub(super) fn moves_time(&self) -> bool {
        self.probe == ProbeKind::Spin
    }
}

/// One CPU's gaps that are waiting for their rows.
#[derive(Debug, Default)]
pub(super) struct GapQueue {
    gaps: VecDeque<Gap>,
    /// Latest end among all gaps.
    newest: Nanos,
    /// Latest end among judged gaps.
    judged_until: Option<Nanos>,
    /// Self time in rows that may belong to gaps but were not found in any.
    unplaced: Nanos,
    unplaceable: bool,
    /// Whether all rows have arrived.
    closed: bool,
}

impl GapQueue {
    /// Once a row ends this long after a gap, all the gap's rows have arrived. Given the order of
    /// rows, 0 would suffice. A quarter of a second is five times the live producer's drain
    /// interval, and tolerates a producer that merges rows loosely.
    const SETTLED: Nanos = Nanos::from_millis(250);
    /// The value of [`Self::SETTLED`] for a later gap instead of a row. A gap is weaker evidence,
    /// but a CPU that runs only the probe has no later rows.
    const SETTLED_BY_GAPS: Nanos = Nanos::from_secs(3);
    /// Number of rows after a gap that are searched for the nearest one.
    const LATER: u32 = 4;
    /// Maximum number of waiting gaps. They take up to 3 MiB per CPU.
    const MAX: usize = 1 << 16;

    /// Notes a row that does not belong to the probe, in case it arrived too late for its gap.
    #[inline]
    pub(super) fn note_row(&mut self, span: &Span) {
        if self.judged_until.is_some_and(|judged| span.end() <= judged) {
            self.cannot_place(span.self_time);
        }
    }

    pub(super) fn push(&mut self, gap: Gap) {
        self.newest = self.newest.max(gap.span.end());
        self.gaps.push_back(gap);
    }

    /// Notes self time that could be in any gap: from rows summed over a window, or from a row that
    /// arrived after its gap was judged. From then on, the contents of this CPU's gaps are not
    /// fully known.
    pub(super) fn cannot_place(&mut self, time: Nanos) {
        self.unplaced += time;
        self.unplaceable = true;
    }

    /// Returns whether there are rows that can neither be assigned to a gap nor be ruled out of
    /// one.
    pub(super) fn is_unplaceable(&self) -> bool {
        self.unplaceable
    }

    /// Returns the self time in rows that may belong to gaps but were not found in any. The value
    /// is final only after a call to [`settle`](Self::settle).
    pub(super) fn unplaced(&self) -> Nanos {
        self.unplaced
    }

    /// Notes that all rows have arrived, which makes every gap ripe.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Adds rows that were forgotten before they were found in a gap. Must be called after all gaps
    /// are judged.
    pub(super) fn settle(&mut self, history: &History) {
        self.unplaced += history.forgotten().unplaced;
    }

    /// Returns whether the first gap is ripe: all its rows must have arrived, or too many gaps are
    /// waiting.
    #[inline]
    pub(super) fn has_ripe_gap(&self, history: &History) -> bool {
        self.gaps.front().is_some_and(|gap| {
            let end = gap.span.end();
            self.closed
                || history.newest() > end + Self::SETTLED
                || self.newest > end + Self::SETTLED_BY_GAPS
                || self.gaps.len() > Self::MAX
        })
    }

    pub(super) fn next_ripe(&mut self, history: &History) -> Option<Gap> {
        if self.has_ripe_gap(history) {
            self.gaps.pop_front()
        } else {
            None
        }
    }

    /// Finds the rows in `gap` and fills `contents` with them.
    pub(super) fn look_into(
        &mut self,
        gap: &Gap,
        history: &mut History,
        tolerance: Nanos,
        contents: &mut Contents,
    ) {
        contents.clear();
        let (begin, end) = (gap.span.start, gap.span.end());
        let settled =
            self.closed || history.newest() >= end || self.newest > end + Self::SETTLED_BY_GAPS;
        let forgotten = history.forgotten().until;
        contents.incomplete = !settled || forgotten.is_some_and(|until| until > begin);
        let (mut nearest, mut later) = (Nanos::MAX, 0);
        let rows = history.ending_from(begin - NEAR_MAX);
        for row in rows.filter(|row| !row.probe) {
            if row.end < begin {
                nearest = begin - row.end;
                continue;
            }
            // The probe resumes when the gap ends. A row that ends later also starts later, so the
            // outermost of the rows that follow ends last. The exception is an unreported thread:
            // it is discovered only when an interrupt hits the probe, and its row reaches back into
            // the gap.
            if row.start >= end && (row.end > end || later > 0) {
                nearest = nearest.min(row.start - end);
                later += 1;
                if later == Self::LATER {
                    break;
                }
                continue;
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
        contents.near = nearness(nearest);
        contents.settle(Interval::new(begin, end), tolerance);
        self.judged_until = self.judged_until.max(Some(end));
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::recording::{ProbeKind, Row};
    use ticktax_model::{Cpu, Kind, Nanos, Source, SourceId, SourceTable, Span};

    use super::{Contents, Gap, GapQueue};
    use crate::timeline::{Keep, Timeline};

    /// One CPU's gaps and rows.
    struct CpuQueue {
        queue: GapQueue,
        timeline: Timeline,
        sources: SourceTable,
    }

    impl Default for CpuQueue {
        fn default() -> Self {
            let mut sources = SourceTable::default();
            sources.intern(Source::kernel(Kind::Irq, "x", ""));
            sources.intern(Source::kernel(Kind::Gap, "spin", ""));
            Self {
                queue: GapQueue::default(),
                timeline: Timeline::new(Keep::LONG),
                sources,
            }
        }
    }

    impl CpuQueue {
        fn push(&mut self, start: Nanos, dur: Nanos, source: u32) -> Span {
            let span = Span {
                cpu: Cpu(0),
                start,
                dur,
                self_time: dur,
                source: SourceId(source),
            };
            let row = Row::Span(span);
            self.timeline.event(&self.sources, &row);
            span
        }

        fn push_span(&mut self, start: Nanos, dur: Nanos) {
            let span = self.push(start, dur, 0);
            self.queue.note_row(&span);
        }

        fn push_gap(&mut self, start: Nanos, dur: Nanos) {
            let span = self.push(start, dur, 1);
            self.queue.push(Gap::new(ProbeKind::Spin, &span));
        }

        /// Judges the next ripe gap. Returns the time in its named rows, and whether it may be
        /// missing rows.
        fn judge(&mut self) -> Option<(Nanos, bool)> {
            let (history, _) = self.timeline.history(0)?;
            let gap = self.queue.next_ripe(history)?;
            let mut contents = Contents::default();
            let (queue, none) = (&mut self.queue, Nanos::ZERO);
            queue.look_into(&gap, history, none, &mut contents);
            Some((contents.named, contents.incomplete))
        }
    }

    #[test]
    fn a_gap_waits_for_rows_that_come_after_it() {
        let mut cpu = CpuQueue::default();
        cpu.push_gap(Nanos(1_000), Nanos(1_000));
        assert_eq!(cpu.judge(), None);
        cpu.push_span(Nanos(1_200), Nanos(300));
        assert_eq!(cpu.judge(), None);
        cpu.push_span(Nanos::from_secs(2), Nanos(300));
        assert_eq!(cpu.judge(), Some((Nanos(300), false)));
    }

    #[test]
    fn a_gap_finds_rows_that_came_before_it() {
        let mut cpu = CpuQueue::default();
        cpu.push_span(Nanos(1_200), Nanos(300));
        cpu.push_span(Nanos::from_secs(2), Nanos(300));
        cpu.push_gap(Nanos(1_000), Nanos(1_000));
        assert_eq!(cpu.judge(), Some((Nanos(300), false)));
    }

    /// The interrupt that reveals the thread ends before the thread's row does.
    #[test]
    fn a_thread_found_after_the_gap_is_in_the_gap() {
        let mut cpu = CpuQueue::default();
        cpu.push_gap(Nanos(1_000), Nanos(1_000));
        cpu.push_span(Nanos(2_500), Nanos(100));
        cpu.push_span(Nanos(1_500), Nanos(1_100));
        cpu.push_span(Nanos::from_secs(2), Nanos(300));
        assert_eq!(cpu.judge(), Some((Nanos(500), false)));
    }

    #[test]
    fn gaps_alone_move_a_quiet_cpu_along() {
        let mut cpu = CpuQueue::default();
        for second in 0..6 {
            cpu.push_gap(Nanos::from_secs(second), Nanos(1_000));
        }
        assert_eq!(cpu.judge(), Some((Nanos::ZERO, false)));
        assert_eq!(cpu.judge(), Some((Nanos::ZERO, false)));
        assert_eq!(cpu.judge(), None);
    }

    #[test]
    fn a_gap_whose_rows_were_forgotten_is_incomplete() {
        let mut cpu = CpuQueue::default();
        for second in 0..30 {
            cpu.push_span(Nanos::from_secs(second), Nanos::from_secs(1));
        }
        cpu.push_gap(Nanos::from_secs(1), Nanos::from_secs(29));
        cpu.queue.close();
        let (named, incomplete) = cpu.judge().unwrap();
        assert!(incomplete);
        cpu.queue.settle(cpu.timeline.history(0).unwrap().0);
        assert_eq!(named + cpu.queue.unplaced(), Nanos::from_secs(30));
    }

    #[test]
    fn the_queue_is_bounded_and_a_gap_judged_early_is_incomplete() {
        let mut cpu = CpuQueue::default();
        let many = i64::try_from(GapQueue::MAX).unwrap() + 2;
        (0..many).for_each(|at| cpu.push_gap(Nanos(at * 10), Nanos(5)));
        assert_eq!(cpu.judge(), Some((Nanos::ZERO, true)));
        cpu.push_span(Nanos(many * 10), Nanos(5));
        assert_eq!(cpu.judge(), Some((Nanos::ZERO, false)));
    }

    #[test]
    fn a_row_that_comes_after_its_gap_was_judged_is_noticed() {
        let mut cpu = CpuQueue::default();
        cpu.push_gap(Nanos(1_000), Nanos(1_000));
        cpu.push_span(Nanos::from_secs(2), Nanos(1));
        assert!(cpu.judge().is_some());
        assert!(!cpu.queue.is_unplaceable());
        cpu.push_span(Nanos(1_200), Nanos(300));
        assert!(cpu.queue.is_unplaceable());
        assert_eq!(cpu.queue.unplaced(), Nanos(300));
    }
}
