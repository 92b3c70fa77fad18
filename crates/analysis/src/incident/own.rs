//! Computes self times within an interval, using nothing but rows.

use ticktax_model::{Cpu, Nanos, SourceId};

use super::IncidentAnalysis;

/// The part of a row that lies within an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) source: SourceId,
    pub(super) cpu: Cpu,
    /// Start of the row, which may precede the interval.
    pub(super) row_start: Nanos,
    /// Start of the part.
    pub(super) start: Nanos,
    /// End of the part.
    pub(super) end: Nanos,
    /// Length of the part, not counting nested rows.
    pub(super) own: Nanos,
}

impl IncidentAnalysis {
    /// Clips the rows on `cpu` to the interval from `begin` to `end`, and computes their self times
    /// within it. The self times add up to the interval minus the time that no row covers.
    pub(super) fn own_times(&self, cpu: Cpu, begin: Nanos, end: Nanos) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        // Indices of the pieces that the next row can be nested in, outermost first.
        let mut open: Vec<usize> = Vec::new();
        // Rows are sorted by start. If several start at the same time, the longest comes first.
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
            // Kernel rows always nest, so clip a row that extends beyond the one it is nested in.
            let to = open.last().map_or(to, |&outer| to.min(pieces[outer].end));
            if let Some(&outer) = open.last() {
                pieces[outer].own -= to - from;
            }
            open.push(pieces.len());
            pieces.push(Piece {
                source: span.source,
                cpu,
                row_start: span.start,
                start: from,
                end: to,
                own: to - from,
            });
        }
        pieces
    }
}
