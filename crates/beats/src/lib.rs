//! Finds beats: periodic components among the events of one source.
//!
//! [`detect`] takes the times of a source's events and returns its periodic components. Each has a
//! period with its confidence interval, a false-alarm probability, a phase, a jitter, and the share
//! of time it takes. The modules do their work in this order:
//!
//! - `spectrum` and `lags` propose candidate periods: peaks of an averaged power spectrum, and
//!   peaks in the histogram of time differences between events.
//! - `track` follows the phase of a candidate through the window. The evidence for the candidate is
//!   the likelihood ratio of the best path against chance.
//! - `assign` decides which events belong to the beat, and `refine` estimates its period by
//!   generalised least squares.
//! - `lattice` handles events that occur only on kernel ticks, which it compares with random ticks
//!   instead of random times.
//! - `null` bounds what chance can produce. `trial` chooses between a period and its multiples.
//!   `peel` removes a beat's events and searches the rest.
//!
//! **Limits.** A beat needs at least five events that span four periods, so a period longer than a
//! quarter of the window cannot be found ([`knowable`]). If a timer rearms itself and its intervals
//! vary by more than about 12 % of the period, its events look like irregular arrivals. If the
//! periods of two beats have a ratio of small integers, the second beat is reported as a harmonic
//! of the first.

#![forbid(unsafe_code)]

mod aliases;
mod anchor;
mod assign;
mod collector;
mod lags;
mod lattice;
mod null;
mod number;
mod peel;
mod phases;
mod refine;
mod search;
pub mod spectrum;
mod steps;
mod track;
mod trial;

#[cfg(test)]
mod tests;

use std::fmt;

use ticktax_model::beats::Periodicity;
use ticktax_model::{Lengths, Nanos, tellable};

pub use aliases::{Alias, AliasKind, aliases, coincidence, explains};
pub use collector::BeatCollector;
pub use null::{binomial_tail, fisher, student};
pub use number::whole;
pub use peel::detect;

/// Shortest period that is searched for.
pub const SHORTEST: Nanos = Nanos::from_micros(100);
/// Minimum number of events in a beat.
pub const FEWEST: usize = 5;

/// The events of one source, which are the input of [`detect`].
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// Start times, ascending.
    pub starts: Vec<Nanos>,
    /// Durations of the events, one per start.
    pub durations: Vec<Nanos>,
    /// Disjoint intervals in which no event is missing, in chronological order. They cover either
    /// the whole observation, or the parts whose events were kept.
    pub observed: Vec<(Nanos, Nanos)>,
    /// The kernel's tick; `None` if it is unknown, or if the tick itself is the source of the
    /// events. Events that occur only on ticks look periodic at the tick's period, but that alone
    /// does not make them a beat.
    pub tick: Option<Tick>,
}

/// The kernel's tick on the CPU where the events occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Period of the tick, which is always positive.
    pub length: Nanos,
    /// Time of any one tick, if known.
    pub at: Option<Nanos>,
}

impl Tick {
    /// Returns the tick of a kernel that ticks at `hz` Hz; `None` if `hz` is 0 or above 10⁹.
    pub fn of_hz(hz: u32) -> Option<Self> {
        let length = Nanos(Nanos::from_secs(1).0.checked_div(hz.into())?);
        (length > Nanos::ZERO).then_some(Self { length, at: None })
    }
}

impl Events {
    /// Returns the events of a source that was observed continuously from `begin` to `end`.
    pub fn new(begin: Nanos, end: Nanos, starts: Vec<Nanos>, durations: Vec<Nanos>) -> Self {
        Self {
            starts,
            durations,
            observed: vec![(begin, end)],
            tick: None,
        }
    }

    /// Returns the events with the kernel's tick set to `tick`.
    #[must_use]
    pub fn with_tick(mut self, tick: Option<Tick>) -> Self {
        self.tick = tick;
        self
    }

    /// Returns the time from the start of the first observed interval to the end of the last one.
    pub fn span(&self) -> Nanos {
        match (self.observed.first(), self.observed.last()) {
            (Some(first), Some(last)) => last.1 - first.0,
            _ => Nanos::ZERO,
        }
    }
}

/// A period with its 95 % confidence interval, in ns. Fractions of a nanosecond matter, because the
/// periods of many beats are known to better than 1 ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// Best estimate, ns.
    pub value: f64,
    /// Lower end of the confidence interval, in ns.
    pub low: f64,
    /// Upper end of the confidence interval, in ns.
    pub high: f64,
}

impl Period {
    /// Returns the period `value` with the confidence interval `value` ± `margin`, in ns.
    pub fn new(value: f64, margin: f64) -> Self {
        Self {
            value,
            low: value - margin,
            high: value + margin,
        }
    }

    /// Returns whether the confidence intervals overlap, in which case the two periods may be the
    /// same.
    pub fn agrees(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

/// How a beat's timer keeps time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rhythm {
    /// Events are on a fixed grid, so a late event does not delay the next one.
    Grid,
    /// Each interval starts at the previous event, or the clock wanders, so errors accumulate.
    Rearmed,
}

/// Returns the median, the 99th percentile and the maximum of `lengths`, which are all 0 if
/// `lengths` is empty. The percentile is omitted if there are too few lengths to determine it.
pub fn lengths_of(mut lengths: Vec<Nanos>) -> Lengths {
    lengths.sort_unstable();
    let last = lengths.len().saturating_sub(1);
    let at = |rank: usize| lengths.get(rank.min(last)).copied();
    let known = tellable(0.99, lengths.len() as u64);
    Lengths {
        median: at(lengths.len() / 2).unwrap_or_default(),
        p99: at(lengths.len() * 99 / 100).filter(|_| known),
        max: at(last).unwrap_or_default(),
    }
}

/// A periodic component of a source's events.
#[derive(Clone, Debug)]
pub struct Beat {
    /// Mean period over the observed time.
    pub period: Period,
    /// Upper bound on the probability (0 to 1) that chance produces evidence this strong at any of
    /// the periods searched.
    pub false_alarm: f64,
    /// When the first beat of the observation was due. This defines the phase.
    pub first: Nanos,
    /// Number of beats observed.
    pub seen: u64,
    /// Number of beats that fit into the observed time.
    pub expected: u64,
    /// Standard deviation of the beats from their grid. For [`Rhythm::Rearmed`], this is the
    /// standard deviation of the intervals.
    pub jitter: Nanos,
    /// How the beat's timer keeps time.
    pub rhythm: Rhythm,
    /// Number of phase jumps. Each one means that the timer was restarted.
    pub restarts: u32,
    /// Mean number of events per beat, which is 1 if each beat is a single event.
    pub burst: f64,
    /// Statistics of the durations of the beat's events.
    pub lengths: Lengths,
    /// Total duration of the beat's events, as a share of the observed time.
    pub share: f64,
}

impl Beat {
    /// Returns this beat's period and counts in the form that statements use.
    pub fn periodicity(&self) -> Periodicity {
        Periodicity {
            period: self.period.value,
            low: self.period.low,
            high: self.period.high,
            false_alarm: self.false_alarm,
            seen: self.seen,
            expected: self.expected,
            jitter: self.jitter,
            rearmed: self.rhythm == Rhythm::Rearmed,
            phase_jumps: self.restarts,
        }
    }
}

/// Why no period can be found in a source's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// There are only this many events, fewer than [`FEWEST`].
    FewEvents(usize),
    /// The observation lasted only this long, which is too short even for the period [`SHORTEST`].
    ShortWindow(Nanos),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewEvents(n) => write!(
                f,
                "only {n} events; at least {FEWEST} are needed to find \
                a period"
            ),
            Self::ShortWindow(t) => write!(f, "only observed for {:.6} s", t.as_secs_f64()),
        }
    }
}

/// Returns the shortest and the longest period that can be found in `events`, or an error that says
/// why none can. Periods outside this range can exist but cannot be detected.
pub fn knowable(events: &Events) -> Result<(Nanos, Nanos), Unknown> {
    if events.starts.len() < FEWEST {
        return Err(Unknown::FewEvents(events.starts.len()));
    }
    let seen: i64 = events.observed.iter().map(|o| o.1.0 - o.0.0).sum();
    // A beat has an event in at least four in ten of its slots. For a given number of events, this
    // limits how short the period can be.
    let sparse = 2 * (seen / (5 * i64::try_from(events.starts.len()).unwrap_or(i64::MAX)));
    let shortest = SHORTEST.max(Nanos(sparse));
    let longest_part = events
        .observed
        .iter()
        .map(|o| o.1.0 - o.0.0)
        .max()
        .unwrap_or(0);
    let longest = Nanos(longest_part / 4);
    if longest <= shortest {
        return Err(Unknown::ShortWindow(events.span()));
    }
    Ok((shortest, longest))
}
