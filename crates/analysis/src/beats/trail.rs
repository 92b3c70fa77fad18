//! The recent past of one CPU: its current run, and the intervals in which it was not observed.

use ticktax_model::{Cpu, Nanos, Span};

use super::JOIN;

/// A CPU with neither thread nor idle rows for at least this long was not observed in the meantime.
/// While a CPU is observed, those rows cover all of its time.
const HOLE: Nanos = Nanos::from_millis(20);
/// Maximum number of holes remembered per CPU.
const HOLES: usize = 64;

/// A period in which one thread's rows follow each other without a break.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuRun {
    pub(super) stream: u32,
    pub(super) cpu: Cpu,
    pub(super) start: Nanos,
    pub(super) end: Nanos,
}

#[derive(Debug, Default)]
pub(super) struct Trail {
    run: Option<CpuRun>,
    covered: Option<(Nanos, Nanos)>,
    pub(super) holes: Vec<(Nanos, Nanos)>,
    pub(super) holes_left_out: u64,
}

impl Trail {
    /// Extends the observed time to include a thread or idle row.
    pub(super) fn base(&mut self, span: &Span) {
        let Some((from, to)) = self.covered else {
            self.covered = Some((span.start, span.end()));
            return;
        };
        // A row that encloses other rows arrives after them, so it may fill a hole.
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

    /// Returns the time from the start of the first thread or idle row to the end of the last.
    pub(super) fn covered(&self) -> Option<(Nanos, Nanos)> {
        self.covered
    }

    /// Adds a thread's row. Returns the run that it ended, if any.
    pub(super) fn thread(&mut self, stream: u32, span: &Span) -> Option<CpuRun> {
        let end = span.end();
        if let Some(open) = &mut self.run
            && open.stream == stream
            && span.start <= open.end + JOIN
        {
            open.start = open.start.min(span.start);
            open.end = open.end.max(end);
            return None;
        }
        self.run.replace(CpuRun {
            stream,
            cpu: span.cpu,
            start: span.start,
            end,
        })
    }

    pub(super) fn close(&mut self) -> Option<CpuRun> {
        self.run.take()
    }
}
