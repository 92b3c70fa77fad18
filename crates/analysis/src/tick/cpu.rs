//! Counts and times the ticks on one CPU.

use ticktax_model::tick::{Frequency, Ticks};
use ticktax_model::{Nanos, Owner, Span};

use super::RETURN;
use super::pauses::Pauses;
use crate::timeline::Occupant;
use ticktax_beats::student;

/// Maximum number of tick intervals kept until their base row arrives. At 1000 Hz, this is enough
/// for a base row that lasts a minute. Additional intervals are ignored.
const MAX_OPEN: usize = 1 << 16;

/// Activity of a CPU at the moment a tick hits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occupation {
    /// The CPU ran a program, the kernel, or ticktax's own work.
    Busy,
    Probe,
    Idle,
}

impl Occupation {
    fn from_occupant(occupant: Occupant) -> Self {
        match occupant {
            Occupant::Idle => Self::Idle,
            Occupant::Thread(thread) if thread.owner == Owner::Probe => Self::Probe,
            Occupant::Thread(_) => Self::Busy,
        }
    }
}

/// Number of events, by what the CPU was doing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) all: u64,
    pub(super) busy: u64,
    pub(super) probed: u64,
    pub(super) idle: u64,
    /// Number of events since the last base row.
    pending: u64,
}

impl Counts {
    fn add(&mut self) {
        self.all += 1;
        self.pending += 1;
    }

    fn settle(&mut self, occupation: Occupation) {
        let counted = std::mem::take(&mut self.pending);
        match occupation {
            Occupation::Busy => self.busy += counted,
            Occupation::Probe => self.probed += counted,
            Occupation::Idle => self.idle += counted,
        }
    }
}

/// Intervals between consecutive ticks: their number, mean, and sum of squared deviations.
#[derive(Clone, Copy, Debug, Default)]
struct Intervals {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Intervals {
    /// Adds an interval, using Welford's recurrence, which is more precise than summing squares.
    fn add(&mut self, length: Nanos) {
        let length = length.0 as f64;
        self.count += 1;
        let off = length - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (length - self.mean);
    }

    fn frequency(&self) -> Option<Frequency> {
        /// Minimum number of intervals needed for a meaningful frequency.
        const MIN: u64 = 10;
        if self.count < MIN || self.mean <= 0.0 {
            return None;
        }
        let count = self.count as f64;
        let margin = student(count - 1.0) * (self.squares / (count - 1.0) / count).sqrt();
        let hz = 1e9 / self.mean;
        Some(Frequency {
            hz,
            plus_minus: hz * margin / self.mean,
            intervals: self.count,
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct CpuBook {
    pub(super) ticks: Counts,
    /// Local timer interrupts, including those without a tick.
    pub(super) frames: Counts,
    busy_time: Nanos,
    probe_time: Nanos,
    idle_time: Nanos,
    intervals: Intervals,
    pub(super) pauses: Pauses,
    /// Self time of the tick's functions in the interrupt in progress.
    open_tick: Option<Nanos>,
    /// Start of the latest tick.
    last_tick: Option<Nanos>,
    /// Whether the CPU has been idle since the latest tick, as far as the base rows so far show.
    idled: bool,
    /// Intervals between ticks that ended after the last base row.
    open_intervals: Vec<Nanos>,
    /// End of the latest tick, or of the softirqs that followed it. A softirq that starts soon
    /// after this was raised by the tick.
    chain: Option<Nanos>,
    /// Self time of the functions in the softirq in progress.
    open_softirq: Nanos,
}

impl CpuBook {
    pub(super) fn tick_function(&mut self, span: &Span) {
        let open = self.open_tick.get_or_insert_default();
        *open += span.self_time;
    }

    /// Adds a local timer interrupt that has ended. Returns its cost if it was a tick.
    pub(super) fn frame(&mut self, span: &Span) -> Option<Nanos> {
        self.frames.add();
        self.chain = None;
        let function = self.open_tick.take()?;
        self.chain = Some(span.end());
        self.ticks.add();
        let last = self.last_tick.replace(span.start);
        if let Some(last) = last.filter(|_| self.open_intervals.len() < MAX_OPEN) {
            self.open_intervals.push(span.start - last);
        }
        Some(span.self_time + function)
    }

    pub(super) fn softirq_function(&mut self, span: &Span) {
        self.open_softirq += span.self_time;
    }

    /// Adds a softirq that has ended. Returns its cost if a tick raised it.
    pub(super) fn softirq(&mut self, span: &Span) -> Option<Nanos> {
        let functions = std::mem::take(&mut self.open_softirq);
        let end = self.chain?;
        if span.start < end || span.start - end > RETURN {
            self.chain = None;
            return None;
        }
        self.chain = Some(span.end());
        Some(span.self_time + functions)
    }

    pub(super) fn base(&mut self, occupant: Occupant, span: &Span) {
        let occupation = Occupation::from_occupant(occupant);
        let idles = occupation == Occupation::Idle;
        let ticked = self.ticks.pending > 0;
        self.ticks.settle(occupation);
        self.frames.settle(occupation);
        for (index, length) in self.open_intervals.drain(..).enumerate() {
            // The first interval started before this row, so earlier idle time counts for it too.
            if idles || (index == 0 && self.idled) {
                self.pauses.add(length);
            } else {
                self.intervals.add(length);
            }
        }
        self.idled = idles || (self.idled && !ticked);
        let time = match occupation {
            Occupation::Busy => &mut self.busy_time,
            Occupation::Probe => &mut self.probe_time,
            Occupation::Idle => &mut self.idle_time,
        };
        *time += span.dur;
    }

    pub(super) fn frequency(&self) -> Option<Frequency> {
        self.intervals.frequency()
    }

    /// Pairs each of `counts` with the total time during which its events were counted: busy, probe
    /// and idle time.
    pub(super) fn by_occupation(&self, counts: &Counts) -> [Ticks; 3] {
        [
            (counts.busy, self.busy_time),
            (counts.probed, self.probe_time),
            (counts.idle, self.idle_time),
        ]
        .map(|(count, time)| Ticks { count, time })
    }
}
