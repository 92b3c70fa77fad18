//! Extracts part of a recording. The result is a recording like any other. It contains only the
//! rows within the part, and its header lacks facts that are known only for the full recording.
//!
//! # Cutting rows
//! Rows that cross an edge of the part are cut there, and so are the rows nested in them. A row's
//! self time is its length minus the rows nested in it. Cutting a row therefore reduces its self
//! time by the length cut off the row itself, minus the length cut off its nested rows. Self times
//! still add up to the CPU's elapsed time, to the nanosecond. A CPU's rows arrive in order of end
//! time, so the rows nested in a row are known when it arrives.

mod header;

use std::fmt;

use ticktax_model::recording::{Header, Level, Paced, PacedFrame, RecordingPart, Row};
use ticktax_model::{Kind, Nanos, Owner, SourceTable, Span};

/// A part may extend beyond the end of the recording by at most this much. Users copy times from
/// printed text, where the recording's length is rounded.
const ROUNDED: Nanos = Nanos::from_millis(100);

/// Reason why a part cannot be extracted from a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutError {
    /// The part would end at or before its start.
    Empty {
        /// Requested start, relative to the start of the recording.
        from: Nanos,
        /// Requested end, relative to the start of the recording.
        to: Nanos,
    },
    /// The part would start or end after the end of the recording.
    Beyond {
        /// The time that is too late.
        at: Nanos,
        /// Start of the recording: 0 unless the recording is itself a part.
        begin: Nanos,
        /// End of the recording.
        end: Nanos,
    },
    /// The part would start before the recording does. This can happen only if the recording is
    /// itself a part.
    Before {
        /// The time that is too early.
        at: Nanos,
        /// Start of the recording.
        begin: Nanos,
        /// End of the recording.
        end: Nanos,
    },
    /// The recording contains sums of intervals, which cannot be cut.
    Sums,
    /// The recording contains nothing but counters that were read at its start and end.
    Counters,
    /// The recording compares loops that ran alternately.
    Turns,
    /// The recording does not contain its start time.
    NoTimes,
}

impl fmt::Display for CutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { from, to } => write!(f, "the interval {from} to {to} is empty"),
            Self::Beyond { at, begin, end } | Self::Before { at, begin, end } => {
                write!(
                    f,
                    "{at} is outside the recording, which covers {begin} to {end}"
                )
            }
            Self::Sums => f.write_str(
                "cannot report on part of a recording of per-second sums: record with --keep spans",
            ),
            Self::Counters => f.write_str(
                "cannot report on part of a recording whose counters were read only at its start \
                 and end: record as root",
            ),
            Self::Turns => f.write_str(
                "cannot report on part of a recording that compares loops: a part would not \
                 contain all of them",
            ),
            Self::NoTimes => f.write_str("the recording does not contain its start time"),
        }
    }
}

impl std::error::Error for CutError {}

/// Extracts part of a recording.
#[derive(Debug)]
pub struct Cut {
    part: RecordingPart,
    cpus: Vec<CutCpu>,
    /// ticktax's own CPU time in the part.
    tool: Nanos,
    sums: bool,
}

#[derive(Debug, Default)]
struct CutCpu {
    /// Sum of the self times of the part's rows.
    own: Nanos,
    /// Time cut off rows that may be nested in a later row.
    nested: Vec<CutOff>,
}

/// Time cut off one row.
#[derive(Debug)]
struct CutOff {
    /// Start of the row before it was cut.
    start: Nanos,
    time: Nanos,
}

impl Cut {
    /// Prepares to extract the interval from `from` to `to` from the recording with this header.
    /// Both times are relative to the start of the recording or, if it is itself a part, of the
    /// original recording. `None` stands for the start or end of the recording.
    ///
    /// # Errors
    /// Returns an error if the recording does not contain this interval, or if nothing in it can be
    /// cut.
    pub fn new(header: &Header, from: Option<Nanos>, to: Option<Nanos>) -> Result<Self, CutError> {
        if let Some(Paced::Turns(_)) = header.paced {
            return Err(CutError::Turns);
        }
        if header.level == Level::Proc && header.paced_loop().is_none() {
            return Err(CutError::Counters);
        }
        let extent = extent(header).ok_or(CutError::NoTimes)?;
        let (begin, end) = (extent.from, extent.to);
        let (from, to) = (from.unwrap_or(begin), to.unwrap_or(end));
        let is_beyond = |at: &Nanos| *at > end + ROUNDED;
        if let Some(at) = [from, to].into_iter().find(is_beyond) {
            return Err(CutError::Beyond { at, begin, end });
        }
        if from < begin {
            let at = from;
            return Err(CutError::Before { at, begin, end });
        }
        let to = to.min(end);
        if from >= to {
            return Err(CutError::Empty { from, to });
        }
        Ok(Self {
            part: RecordingPart { from, to, ..extent },
            cpus: Vec::new(),
            tool: Nanos::ZERO,
            sums: false,
        })
    }

    /// Prepares to extract an interval from a recording that is still in progress. Times are on
    /// `CLOCK_MONOTONIC`.
    pub(crate) fn between(begin: Nanos, end: Nanos) -> Self {
        Self {
            part: RecordingPart {
                begin,
                from: Nanos::ZERO,
                to: end - begin,
                total: end - begin,
            },
            cpus: Vec::new(),
            tool: Nanos::ZERO,
            sums: false,
        }
    }

    /// Moves the end of the part to `end`. No row so far may have ended after either the old or the
    /// new end.
    pub(crate) fn end_at(&mut self, end: Nanos) {
        let length = end - self.part.begin;
        (self.part.to, self.part.total) = (length, length);
    }

    /// Returns the portion of the recording's next row that lies within the part, if any.
    pub fn row(&mut self, sources: &SourceTable, row: &Row) -> Option<Row> {
        match row {
            Row::Span(span) => self.span(sources, span).map(Row::Span),
            Row::Frame(PacedFrame { due, .. }) => self.holds(*due).then(|| row.clone()),
            Row::Edge(edge) => self.holds(edge.span.start).then(|| row.clone()),
            Row::Sum(_) => {
                self.sums = true;
                None
            }
        }
    }

    /// Returns the part's header. `header` is the full recording's. Must be called after the last
    /// row.
    ///
    /// # Errors
    /// Returns an error if the recording contains sums, which cannot be cut.
    pub fn finish(&self, header: &Header) -> Result<Header, CutError> {
        if self.sums {
            return Err(CutError::Sums);
        }
        Ok(self.header(header))
    }

    fn holds(&self, at: Nanos) -> bool {
        (self.part.start()..self.part.end()).contains(&at)
    }

    fn span(&mut self, sources: &SourceTable, span: &Span) -> Option<Span> {
        let source = sources.get(span.source);
        let base = match source.kind {
            Kind::Idle | Kind::Task => true,
            Kind::Softirq | Kind::Irq | Kind::Nmi | Kind::Steal => false,
            // A wait's self time is its throttled part, which comes first.
            Kind::Wait => {
                let mut kept = self.inside(span)?;
                let held = (span.start + span.self_time).min(kept.end());
                kept.self_time = (held - kept.start).max(Nanos::ZERO);
                return Some(kept);
            }
            Kind::Gap | Kind::Frame | Kind::Late => {
                let mut kept = self.inside(span)?;
                kept.self_time = kept.self_time.min(kept.dur);
                return Some(kept);
            }
        };
        let kept = self.inside(span);
        let slot = span.cpu.index();
        if slot >= self.cpus.len() {
            self.cpus.resize_with(slot + 1, CutCpu::default);
        }
        let cpu = &mut self.cpus[slot];
        let nested = cpu.take_nested(span);
        if base {
            cpu.nested.retain(|later| later.start >= span.end());
        }
        let cut_off = match &kept {
            Some(kept) => span.dur - kept.dur,
            None => span.self_time + nested,
        };
        if !base && cut_off != Nanos::ZERO {
            let start = span.start;
            cpu.nested.push(CutOff {
                start,
                time: cut_off,
            });
        }
        let mut kept = kept?;
        kept.self_time = span.self_time - (cut_off - nested);
        cpu.own += kept.self_time;
        if source.owner == Owner::Tool {
            self.tool += kept.self_time;
        }
        Some(kept)
    }

    /// Returns the portion of the span that lies within the part. Its self time is not adjusted
    /// yet.
    fn inside(&self, span: &Span) -> Option<Span> {
        if span.dur <= Nanos::ZERO {
            return self.holds(span.start).then_some(*span);
        }
        let start = span.start.max(self.part.start());
        let end = span.end().min(self.part.end());
        (start < end).then_some(Span {
            start,
            dur: end - start,
            ..*span
        })
    }
}

impl CutCpu {
    /// Adds up and removes the time cut off rows nested in a row. A thread's run can have several
    /// rows, which arrive when the run ends. Rows that are nested in a later one of them are kept.
    fn take_nested(&mut self, span: &Span) -> Nanos {
        let is_nested = |cut: &mut CutOff| (span.start..span.end()).contains(&cut.start);
        self.nested
            .extract_if(.., is_nested)
            .map(|cut| cut.time)
            .sum()
    }
}

/// Returns the extent of the recording with this header, as a part that covers the whole recording.
/// Returns `None` if the recording has no length.
fn extent(header: &Header) -> Option<RecordingPart> {
    if let Some(part) = header.part {
        return Some(part);
    }
    let (begin, end) = match header.begin() {
        Some(begin) => (begin, header.cpus.iter().map(|books| books.end).max()?),
        None => (header.before.at, header.after.at),
    };
    (begin < end).then_some(RecordingPart {
        begin,
        from: Nanos::ZERO,
        to: end - begin,
        total: end - begin,
    })
}
