//! Beats: periodic components among the events of one source.
//!
//! [`detect`] takes the times of a source's events and returns the periodic components. Each has a
//! period with its confidence interval, a false-alarm probability, a phase, a jitter, and the share
//! of time it costs. The steps, in order:
//!
//! - `spectrum` and `lags` propose candidate periods: peaks of an averaged power spectrum and of
//!   the histogram of lags.
//! - `track` follows the phase of a candidate through the window. The likelihood ratio of the best
//!   path against chance is the evidence for the candidate.
//! - `assign` decides which events belong to the beat; `refine` estimates its period by generalised
//!   least squares.
//! - `lattice` compares events that only occur on kernel ticks with random ticks, not with random
//!   times.
//! - `null` bounds what chance can produce. `trial` chooses between a period and its multiples.
//!   `peel` removes a beat's events and searches the rest.
//!
//! **Limits.** A beat needs at least five events that span four periods, so no period longer than a
//! quarter of the window is found ([`knowable`]). A timer that re-arms itself with intervals spread
//! over about 12 % of the period looks like irregular arrivals. When two beats have periods in a
//! ratio of small integers, the second is reported as a harmonic of the first.

mod aliases;
mod anchor;
mod assign;
mod collector;
mod finder;
mod lags;
mod lattice;
mod null;
mod number;
mod peel;
mod refine;
mod search;
mod spectrum;
mod steps;
mod track;
mod trial;

#[cfg(test)]
mod tests;

use std::fmt;

use ticktax_model::beats::Periodicity;
use ticktax_model::{Lengths, Nanos};

use crate::pace::tellable;

pub use aliases::{Alias, AliasKind, aliases, coincidence, explains};
pub use collector::BeatCollector;
pub use finder::BeatFinder;
pub(crate) use finder::{FAMILY, Finder};
pub(crate) use null::student;
pub use peel::detect;

/// The shortest period searched for.
pub const SHORTEST: Nanos = Nanos::from_micros(100);
/// The fewest occurrences that make a beat.
pub const FEWEST: usize = 5;

/// The known events of one source.
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// Start times, ascending.
    pub starts: Vec<Nanos>,
    /// Durations, one per start.
    pub durations: Vec<Nanos>,
    /// Intervals in which every event is listed, ascending and disjoint: the whole observation, or
    /// the parts of it that were kept.
    pub observed: Vec<(Nanos, Nanos)>,
    /// The kernel's tick, if it is known and these events are not the tick itself. Events that
    /// occur only on ticks look periodic at the tick's period; that alone does not make a beat.
    pub tick: Option<Tick>,
}

/// The kernel's tick on the CPU that ran the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Tick period; more than 0.
    pub length: Nanos,
    /// Time of one tick, if known.
    pub at: Option<Nanos>,
}

impl Tick {
    /// A tick of `hz` per second; `None` if `hz` is 0 or too large for a whole nanosecond.
    pub fn of_hz(hz: u32) -> Option<Self> {
        let length = Nanos(Nanos::from_secs(1).0.checked_div(hz.into())?);
        (length > Nanos::ZERO).then_some(Self { length, at: None })
    }
}

impl Events {
    /// All events from `begin` to `end`.
    pub fn new(begin: Nanos, end: Nanos, starts: Vec<Nanos>, durations: Vec<Nanos>) -> Self {
        Self {
            starts,
            durations,
            observed: vec![(begin, end)],
            tick: None,
        }
    }

    /// Sets the machine's tick.
    #[must_use]
    pub fn with_tick(mut self, tick: Option<Tick>) -> Self {
        self.tick = tick;
        self
    }

    /// Time from the first to the last observed moment.
    pub fn span(&self) -> Nanos {
        match (self.observed.first(), self.observed.last()) {
            (Some(first), Some(last)) => last.1 - first.0,
            _ => Nanos::ZERO,
        }
    }
}

/// A period with its 95 % confidence interval, in fractional nanoseconds: over many beats the
/// period is known to better than 1 ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// The period, ns.
    pub value: f64,
    /// The lower end of the interval, ns.
    pub low: f64,
    /// The upper end of the interval, ns.
    pub high: f64,
}

impl Period {
    /// A period of `value` ± `margin`, ns.
    pub fn new(value: f64, margin: f64) -> Self {
        Self {
            value,
            low: value - margin,
            high: value + margin,
        }
    }

    /// Whether the two intervals overlap, so that both may describe the same period.
    pub fn agrees(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

/// How a beat keeps time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rhythm {
    /// On a grid: a late event does not delay the next one.
    Grid,
    /// Each interval starts at the previous event, or the clock wanders: errors accumulate.
    Rearmed,
}

/// Median, 99th percentile and maximum of `lengths`; all 0 if it is empty.
pub(crate) fn lengths_of(mut lengths: Vec<Nanos>) -> Lengths {
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

/// A periodic component.
#[derive(Clone, Debug)]
pub struct Beat {
    /// The mean period over the window.
    pub period: Period,
    /// Upper bound on the probability that chance produces equal evidence at any of the periods
    /// searched, 0 to 1.
    pub false_alarm: f64,
    /// When the first beat of the observation was due (the phase).
    pub first: Nanos,
    /// Beats observed.
    pub seen: u64,
    /// Beats that fit into the observed time.
    pub expected: u64,
    /// Standard deviation of a beat from its grid, or of an interval ([`Rhythm::Rearmed`]).
    pub jitter: Nanos,
    /// How it keeps time.
    pub rhythm: Rhythm,
    /// Phase jumps, which mean that the timer was restarted.
    pub restarts: u32,
    /// Mean events per beat; 1 if each beat is a single event.
    pub burst: f64,
    /// Durations of its events.
    pub lengths: Lengths,
    /// Its events' time as a share of the observed time.
    pub share: f64,
}

impl Beat {
    /// The beat as a line of a statement.
    pub(crate) fn periodicity(&self) -> Periodicity {
        Periodicity {
            period: self.period.value,
            low: self.period.low,
            high: self.period.high,
            false_alarm: self.false_alarm,
            seen: self.seen,
            expected: self.expected,
            jitter: self.jitter,
            rearmed: self.rhythm == Rhythm::Rearmed,
            restarts: self.restarts,
        }
    }
}

/// Why no period can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Fewer events than [`FEWEST`].
    FewEvents(usize),
    /// The observation is too short even for [`SHORTEST`].
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

/// The shortest and the longest period that can be found in these events, or why none can. Periods
/// outside this range may exist; they cannot be detected.
pub fn knowable(events: &Events) -> Result<(Nanos, Nanos), Unknown> {
    if events.starts.len() < FEWEST {
        return Err(Unknown::FewEvents(events.starts.len()));
    }
    let seen: i64 = events.observed.iter().map(|o| o.1.0 - o.0.0).sum();
    // A beat fills at least four in ten of its slots, so n events cannot form a shorter period.
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
