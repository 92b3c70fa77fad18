//! Who had a CPU at each moment, from spans within spans.

use std::cmp::Reverse;
use std::collections::HashMap;

use ticktax_model::{Cpu, Nanos, SourceId, Span};

/// Spans of a CPU that are held at most until the thread or idling below them ends.
const HELD: usize = 1 << 16;

/// A stretch of one source's own time: nothing interrupted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) cpu: Cpu,
    pub(super) begin: Nanos,
    pub(super) end: Nanos,
    pub(super) source: SourceId,
}

/// The spans that are not known to have nothing below them.
#[derive(Debug, Default)]
pub(super) struct Nesting(HashMap<Cpu, Held>);

#[derive(Debug, Default)]
struct Held {
    spans: Vec<Span>,
    /// Before this every moment has its owner.
    until: Option<Nanos>,
}

impl Nesting {
    /// Takes the next span of a CPU, in the order in which they ended; with a thread or idling, `is_lowest`, all
    /// that is above it is there.
    pub(super) fn push(&mut self, span: Span, is_lowest: bool, own: &mut impl FnMut(Stretch)) {
        let held = self.0.entry(span.cpu).or_default();
        held.spans.push(span);
        if is_lowest || held.spans.len() >= HELD {
            held.settle(span.cpu, own);
        }
    }

    /// Tells of what is left.
    pub(super) fn finish(self, own: &mut impl FnMut(Stretch)) {
        for (cpu, mut held) in self.0 {
            held.settle(cpu, own);
        }
    }
}

impl Held {
    fn settle(&mut self, cpu: Cpu, own: &mut impl FnMut(Stretch)) {
        // Of two with the same times, the one that came later was interrupted by the other.
        self.spans.reverse();
        self.spans
            .sort_by_key(|span| (span.start, Reverse(span.end())));
        let mut now = self.until.unwrap_or(Nanos(i64::MIN));
        let mut give = |now: &mut Nanos, begin: Nanos, end: Nanos, source| {
            let begin = begin.max(*now);
            if begin < end {
                *now = end;
                own(Stretch {
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
                give(&mut now, top.start, top.end(), top.source);
            }
            if let Some(top) = open.last() {
                give(&mut now, top.start, span.start, top.source);
            }
            open.push(span);
        }
        while let Some(top) = open.pop() {
            give(&mut now, top.start, top.end(), top.source);
        }
        self.until = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use ticktax_fixture::span;
    use ticktax_model::{Nanos, SourceId};

    use super::{Nesting, Stretch};

    /// Own time by source.
    fn own(rows: &[(i64, i64, u32)]) -> Vec<(i64, i64, u32)> {
        let mut told = Vec::new();
        let mut nesting = Nesting::default();
        let mut take = |it: Stretch| told.push((it.begin.0, it.end.0, it.source.0));
        for &(start, end, source) in rows {
            let span = span(0, start, end - start, 0, SourceId(source));
            nesting.push(span, source == 0, &mut take);
        }
        nesting.finish(&mut take);
        told
    }

    #[test]
    fn every_moment_has_one_owner() {
        // An NMI in an interrupt in a thread, which begins with it; then an interrupt by itself.
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
    fn what_crosses_is_counted_once() {
        let rows = [(5, 25, 1), (10, 20, 0), (15, 40, 0)];
        let told = own(&rows);
        let sum: i64 = told.iter().map(|(begin, end, _)| end - begin).sum();
        assert_eq!(sum, 35, "{told:?}");
        assert!(told.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        assert_eq!(Nanos(0), Nanos::ZERO);
    }
}
