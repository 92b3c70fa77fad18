//! A part of a recording: its rows, cut at the edges, and its header without what is only known of the
//! whole. What is left is a recording like any other.
//!
//! # What is cut
//! A thread's row, or idling's, is cut in two; so is what was nested in it. A row's own time is its length
//! without what is nested in it, so what is taken from it is the length of what was cut off without what of
//! that was nested: own times still sum to the CPU's time, to the ns. Rows of one CPU come in the order in
//! which they ended, so what is nested in a row is known when the row comes.

mod header;

use std::fmt;

use ticktax_model::recording::{Header, Level, Paced, PacedFrame, RecordingPart, Row};
use ticktax_model::{Kind, Nanos, Owner, SourceTable, Span};

/// By how much more than a recording a part may be long: pages round a recording's length.
const ROUNDED: Nanos = Nanos::from_millis(100);

/// Why a recording has no such part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutError {
    /// It would end before it begins, or at once.
    Empty {
        /// Where it was to begin, after the recording's begin.
        from: Nanos,
        /// Where it was to end.
        to: Nanos,
    },
    /// It begins or ends after the recording's end.
    Beyond {
        /// The time that is too late.
        at: Nanos,
        /// Where the recording begins: later than 0 where it is itself a part of one.
        begin: Nanos,
        /// Where it ends.
        end: Nanos,
    },
    /// It begins before the recording, which is itself a part of one.
    Before {
        /// The time that is too early.
        at: Nanos,
        /// Where the recording begins.
        begin: Nanos,
        /// Where it ends.
        end: Nanos,
    },
    /// The recording holds sums of intervals, which cannot be cut.
    Sums,
    /// The recording holds only counters, read at its begin and its end.
    Counters,
    /// The recording is of loops that ran by turns.
    Turns,
    /// The recording says nothing of when it began.
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
            Self::Sums => {
                f.write_str("cannot cut a recording of sums per second: record with --keep spans")
            }
            Self::Counters => f.write_str(
                "cannot cut a recording of counters read only at its start and end: record as root",
            ),
            Self::Turns => f.write_str(
                "cannot cut a recording that compares loops: a part would not contain all of them",
            ),
            Self::NoTimes => f.write_str("the recording does not contain its start time"),
        }
    }
}

impl std::error::Error for CutError {}

/// Cuts a part out of a recording.
#[derive(Debug)]
pub struct Cut {
    part: RecordingPart,
    /// By CPU number.
    cpus: Vec<CutCpu>,
    /// CPU time of ticktax in the part.
    tool: Nanos,
    sums: bool,
}

/// What is known of one CPU.
#[derive(Debug, Default)]
struct CutCpu {
    /// The own times of the part's rows.
    own: Nanos,
    /// What was cut off of rows that may be nested in one that is still to come, in order of begin.
    nested: Vec<CutOff>,
}

/// What was cut off of a row and of all that is nested in it.
#[derive(Debug)]
struct CutOff {
    start: Nanos,
    time: Nanos,
}

impl Cut {
    /// The part of the recording with this header `from` one time after its begin `to` another; the
    /// recording's own begin or end where none is given.
    ///
    /// # Errors
    /// There is no such part, or the recording holds nothing that can be cut.
    pub fn new(header: &Header, from: Option<Nanos>, to: Option<Nanos>) -> Result<Self, CutError> {
        if let Some(Paced::Turns(_)) = header.paced {
            return Err(CutError::Turns);
        }
        if header.level == Level::Proc && header.paced_loop().is_none() {
            return Err(CutError::Counters);
        }
        let whole = whole(header).ok_or(CutError::NoTimes)?;
        let (begin, end) = (whole.from, whole.to);
        let (from, to) = (from.unwrap_or(begin), to.unwrap_or(end));
        let outside = |at: &Nanos| *at > end + ROUNDED;
        if let Some(at) = [from, to].into_iter().find(outside) {
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
            part: RecordingPart { from, to, ..whole },
            cpus: Vec::new(),
            tool: Nanos::ZERO,
            sums: false,
        })
    }

    /// What lies between two moments of a recording that goes on, on `CLOCK_MONOTONIC`.
    pub(crate) fn between(begin: Nanos, end: Nanos) -> Self {
        Self {
            part: RecordingPart {
                begin,
                from: Nanos::ZERO,
                to: end - begin,
                whole: end - begin,
            },
            cpus: Vec::new(),
            tool: Nanos::ZERO,
            sums: false,
        }
    }

    /// Moves the end. Rows that were taken have ended before the old one and before this.
    pub(crate) fn end_at(&mut self, end: Nanos) {
        let length = end - self.part.begin;
        (self.part.to, self.part.whole) = (length, length);
    }

    /// Takes the next row of the recording: what of it is in the part.
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

    /// The part's header, once all rows have come. `header` is the whole recording's.
    ///
    /// # Errors
    /// The recording held sums.
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
            // Its own time, where a quota held it, comes first.
            Kind::Wait => {
                let mut kept = self.inside(span)?;
                let held = (span.start + span.self_time).min(kept.end());
                kept.self_time = (held - kept.start).max(Nanos::ZERO);
                return Some(kept);
            }
            Kind::Gap | Kind::Frame => {
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
        let nested = cpu.take_nested(span.start);
        if base {
            cpu.nested.clear();
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

    /// What of the span's interval is in the part. Its own time is not cut yet.
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
    /// What was cut off of the rows that are nested in one that began at `start` and ends now.
    fn take_nested(&mut self, start: Nanos) -> Nanos {
        let mut time = Nanos::ZERO;
        while let Some(last) = self.nested.pop_if(|last| last.start >= start) {
            time += last.time;
        }
        time
    }
}

/// All of the recording with this header, as a part of itself.
fn whole(header: &Header) -> Option<RecordingPart> {
    if let Some(part) = header.part {
        return Some(part);
    }
    let (begin, end) = match header.begin() {
        Some(begin) => (begin, header.books.iter().map(|books| books.end).max()?),
        None => (header.before.at, header.after.at),
    };
    (begin < end).then_some(RecordingPart {
        begin,
        from: Nanos::ZERO,
        to: end - begin,
        whole: end - begin,
    })
}
