//! Works out from nested spans which source used a CPU at each moment.

use std::cmp::Reverse;
use std::collections::HashMap;

use ticktax_model::{Cpu, Nanos, SourceId, Span};

/// Maximum number of spans per CPU that are held until the end of the thread or idle span that they
/// interrupted.
const HELD: usize = 1 << 16;

/// An interval in which a source used a CPU without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnInterval {
    pub(super) cpu: Cpu,
    pub(super) begin: Nanos,
    pub(super) end: Nanos,
    pub(super) source: SourceId,
}

/// Spans that may have interrupted a span that has not arrived yet.
#[derive(Debug, Default)]
pub(super) struct Nesting(HashMap<Cpu, Held>);

#[derive(Debug, Default)]
struct Held {
    spans: Vec<Span>,
    /// Time before which every moment has been assigned to a source.
    until: Option<Nanos>,
}

impl Nesting {
    /// Adds a CPU's next span. Spans arrive in order of end time. `is_lowest` is `true` for a
    /// thread or idle span. All spans that interrupted it have already arrived.
    pub(super) fn push(&mut self, span: Span, is_lowest: bool, own: &mut impl FnMut(OwnInterval)) {
        let held = self.0.entry(span.cpu).or_default();
        held.spans.push(span);
        if is_lowest || held.spans.len() >= HELD {
            held.settle(span.cpu, own);
        }
    }

    /// Assigns the time of the remaining spans.
    pub(super) fn finish(self, own: &mut impl FnMut(OwnInterval)) {
        for (cpu, mut held) in self.0 {
            held.settle(cpu, own);
        }
    }
}

impl Held {
    fn settle(&mut self, cpu: Cpu, own: &mut impl FnMut(OwnInterval)) {
        // If two spans have the same start and end, the one that arrived first interrupted the
        // other.
        self.spans.reverse();
        self.spans
            .sort_by_key(|span| (span.start, Reverse(span.end())));
        let mut now = self.until.unwrap_or(Nanos(i64::MIN));
        let mut emit = |now: &mut Nanos, begin: Nanos, end: Nanos, source| {
            let begin = begin.max(*now);
            if begin < end {
                *now = end;
                own(OwnInterval {
                    cpu,
                    begin,
                    end,
                    source,
                });
            }
        };
        let mut open: Vec<Span> = Vec::new();
        for span in self.spans.drain(..) {
            while let Some(top) = open.pop_if(|top| top.end() <= span.start) {
                emit(&mut now, top.start, top.end(), top.source);
            }
            if let Some(top) = open.last() {
                emit(&mut now, top.start, span.start, top.source);
            }
            open.push(span);
        }
        while let Some(top) = open.pop() {
            emit(&mut now, top.start, top.end(), top.source);
        }
        self.until = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use ticktax_fixture::span;
    use ticktax_model::{Nanos, SourceId};

    use super::{Nesting, OwnInterval};

    /// Returns the intervals in which each source used the CPU.
    fn own(rows: &[(i64, i64, u32)]) -> Vec<(i64, i64, u32)> {
        let mut intervals = Vec::new();
        let mut nesting = Nesting::default();
        let mut take = |interval: OwnInterval| {
            intervals.push((interval.begin.0, interval.end.0, interval.source.0));
        };
        for &(start, end, source) in rows {
            let span = span(0, start, end - start, 0, SourceId(source));
            nesting.push(span, source == 0, &mut take);
        }
        nesting.finish(&mut take);
        intervals
    }

    #[test]
    fn every_moment_has_exactly_one_owner() {
        // An NMI interrupts an interrupt, which interrupted a thread at the moment the thread
        // started. A separate interrupt follows.
        let rows = [(20, 22, 2), (10, 30, 1), (10, 50, 0), (60, 70, 1)];
        let expected = [
            (10, 20, 1),
            (20, 22, 2),
            (22, 30, 1),
            (30, 50, 0),
            (60, 70, 1),
        ];
        assert_eq!(own(&rows), expected);
    }

    #[test]
    fn overlapping_spans_are_counted_once() {
        let rows = [(5, 25, 1), (10, 20, 0), (15, 40, 0)];
        let intervals = own(&rows);
        let sum: i64 = intervals.iter().map(|(begin, end, _)| end - begin).sum();
        assert_eq!(sum, 35, "{intervals:?}");
        assert!(intervals.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        assert_eq!(Nanos(0), Nanos::ZERO);
    }
}
