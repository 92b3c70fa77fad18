//! Own times within an interval, from rows alone.

use ticktax_model::{Cpu, Nanos, SourceId};

use super::IncidentAnalysis;

/// What of a row lies within an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) source: SourceId,
    pub(super) cpu: Cpu,
    /// When the row began, which may be before the interval.
    pub(super) row_start: Nanos,
    /// When what lies within ends.
    pub(super) end: Nanos,
    /// Its length without what is nested in it.
    pub(super) own: Nanos,
}

impl IncidentAnalysis {
    /// The rows of `cpu` from `begin` to `end`, each cut to that, with what is left of its own time. They sum to
    /// the interval, but for what no row covers.
    pub(super) fn own_times(&self, cpu: Cpu, begin: Nanos, end: Nanos) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        // Those that the next row may be nested in, outermost first.
        let mut open: Vec<usize> = Vec::new();
        // By begin, and of those that begin together the longest first.
        for span in self.spans.iter().filter(|span| span.cpu == cpu) {
            let (from, to) = (span.start.max(begin), span.end().min(end));
            if from >= to {
                continue;
            }
            while let Some(&outer) = open.last() {
                if pieces[outer].end > from {
                    break;
                }
                open.pop();
            }
            // What reaches beyond the row that it is nested in is cut: rows that do not nest are not the kernel's.
            let to = open.last().map_or(to, |&outer| to.min(pieces[outer].end));
            if let Some(&outer) = open.last() {
                pieces[outer].own -= to - from;
            }
            open.push(pieces.len());
            pieces.push(Piece {
                source: span.source,
                cpu,
                row_start: span.start,
                end: to,
                own: to - from,
            });
        }
        pieces
    }
}
