//! What just happened on one CPU: the stretch that may go on, and the times that were not seen.

use ticktax_model::{Cpu, Nanos, Span};

use super::JOIN;

/// A time without a row of a thread or of idling, from this length on, was not observed: those
/// rows tile a CPU's time.
const HOLE: Nanos = Nanos::from_millis(20);
/// Holes that are remembered.
const HOLES: usize = 64;

/// Rows of one thread that follow each other at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) stream: u32,
    pub(super) cpu: Cpu,
    pub(super) start: Nanos,
    pub(super) end: Nanos,
}

/// What is known of one CPU.
#[derive(Debug, Default)]
pub(super) struct Trail {
    stretch: Option<Stretch>,
    covered: Option<(Nanos, Nanos)>,
    pub(super) holes: Vec<(Nanos, Nanos)>,
    pub(super) holes_left_out: u64,
}

impl Trail {
    /// Notes that the CPU was observed during a row that is no interrupt's.
    pub(super) fn base(&mut self, span: &Span) {
        let Some((from, to)) = self.covered else {
            self.covered = Some((span.start, span.end()));
            return;
        };
        // A row that encloses others comes after them.
        while self.holes.last().is_some_and(|hole| hole.1 > span.start) {
            self.holes.pop();
        }
        if span.start - to >= HOLE {
            if self.holes.len() < HOLES {
                self.holes.push((to, span.start));
            } else {
                self.holes_left_out += 1;
            }
        }
        self.covered = Some((from.min(span.start), to.max(span.end())));
    }

    /// The time from the first to the last row of a thread or of idling.
    pub(super) fn covered(&self) -> Option<(Nanos, Nanos)> {
        self.covered
    }

    /// Takes a thread's row; returns the stretch that it ended.
    pub(super) fn thread(&mut self, stream: u32, span: &Span) -> Option<Stretch> {
        let end = span.end();
        if let Some(open) = &mut self.stretch
            && open.stream == stream
            && span.start <= open.end + JOIN
        {
            open.start = open.start.min(span.start);
            open.end = open.end.max(end);
            return None;
        }
        self.stretch.replace(Stretch {
            stream,
            cpu: span.cpu,
            start: span.start,
            end,
        })
    }

    /// Ends the open stretch.
    pub(super) fn close(&mut self) -> Option<Stretch> {
        self.stretch.take()
    }
}
