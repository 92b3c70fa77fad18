//! Beats: the periodic components among the events of one source.
//!
//! [`detect`] takes the times of one source's events and returns what in them is periodic: the
//! period with its confidence interval, the probability that chance made it, the phase, the jitter,
//! and how much time it costs. The steps, a module each:
//!
//! - candidates: peaks of an averaged power spectrum and of the histogram of lags,
//! - track: the phase of each candidate is followed through the window; the likelihood ratio of the
//!   best path against chance is its evidence,
//! - assign, refine: which events belong to it, and the period by generalised least squares,
//! - lattice: what only comes with the kernel's tick is judged against random ticks,
//! - null: what chance can do; peel: the choice between a period and its multiples, and the search
//!   of what is left.
//!
//! **Limits.** A period is told from five beats on that span four periods, so nothing longer than a
//! quarter of the window is found ([`knowable`]). A timer that re-arms itself with an interval
//! spread over some 12 % of the period is not told from irregular arrivals. Of two beats in a ratio
//! of small whole numbers the second is taken for a harmonic of the first.

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

/// The shortest period that is looked for.
pub const SHORTEST: Nanos = Nanos::from_micros(100);
/// The fewest beats that make one.
pub const FEWEST: usize = 5;

/// The events of one source, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// When each began, ascending.
    pub starts: Vec<Nanos>,
    /// How long each lasted; as many as `starts`.
    pub durations: Vec<Nanos>,
    /// The times during which every event is in the list, ascending, without overlap: the whole
    /// observation, or the parts of it that were kept.
    pub observed: Vec<(Nanos, Nanos)>,
    /// The kernel's tick, where it is known and the events are not the tick's own: what only comes
    /// with it is no beat by that.
    pub tick: Option<Tick>,
}

/// The kernel's tick on the CPU of some events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// From one to the next; more than 0.
    pub length: Nanos,
    /// When one came, where that is known.
    pub at: Option<Nanos>,
}

impl Tick {
    /// That of `hz` ticks a second; `None` for none.
    pub fn of_hz(hz: u32) -> Option<Self> {
        let length = Nanos(Nanos::from_secs(1).0.checked_div(hz.into())?);
        (length > Nanos::ZERO).then_some(Self { length, at: None })
    }
}

impl Events {
    /// All the events from `begin` to `end`.
    pub fn new(begin: Nanos, end: Nanos, starts: Vec<Nanos>, durations: Vec<Nanos>) -> Self {
        Self {
            starts,
            durations,
            observed: vec![(begin, end)],
            tick: None,
        }
    }

    /// The same events, on a machine with this tick.
    #[must_use]
    pub fn with_tick(mut self, tick: Option<Tick>) -> Self {
        self.tick = tick;
        self
    }

    /// The length of time from the first to the last observed moment.
    pub fn span(&self) -> Nanos {
        match (self.observed.first(), self.observed.last()) {
            (Some(first), Some(last)) => last.1 - first.0,
            _ => Nanos::ZERO,
        }
    }
}

/// A number with its 95 % confidence interval, in nanoseconds and fractions of them: over many beats
/// a period is known better than to the nanosecond.
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

    /// Whether `other` may be the same period: the intervals meet.
    pub fn agrees(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

/// How a beat keeps time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rhythm {
    /// On a grid: an event that is late does not delay the next.
    Grid,
    /// Each interval starts from the last event, or the clock wanders: errors add up.
    Rearmed,
}

/// How long these were; 0 of none.
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
    /// The probability that chance shows as much anywhere among the periods that were looked at: an
    /// upper bound, 0 to 1.
    pub false_alarm: f64,
    /// When the first beat of the observation was due (the phase).
    pub first: Nanos,
    /// Beats that were seen.
    pub seen: u64,
    /// Beats that the observed time has room for.
    pub expected: u64,
    /// Standard deviation of a beat around its grid, or of an interval ([`Rhythm::Rearmed`]).
    pub jitter: Nanos,
    /// How it keeps time.
    pub rhythm: Rhythm,
    /// How often the phase jumped: the timer was restarted.
    pub restarts: u32,
    /// Events to a beat, on average; 1 for a single one.
    pub burst: f64,
    /// How long its events lasted.
    pub lengths: Lengths,
    /// Its events' time as a share of the observed time.
    pub share: f64,
}

impl Beat {
    /// The same as a line of a statement has it.
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

/// Why nothing can be known about beats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// There are fewer events than [`FEWEST`].
    FewEvents(usize),
    /// The observation is too short for even [`SHORTEST`].
    ShortWindow(Nanos),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewEvents(n) => write!(f, "{n} events; a beat shows from {FEWEST} on"),
            Self::ShortWindow(t) => write!(f, "observed for {:.6} s only", t.as_secs_f64()),
        }
    }
}

/// The shortest and the longest period that can be found in these events, or why none can. A beat
/// outside that range is not absent, only unknown.
pub fn knowable(events: &Events) -> Result<(Nanos, Nanos), Unknown> {
    if events.starts.len() < FEWEST {
        return Err(Unknown::FewEvents(events.starts.len()));
    }
    let seen: i64 = events.observed.iter().map(|o| o.1.0 - o.0.0).sum();
    // A beat fills at least four slots in ten, so with n events none is shorter than this.
    let sparse = 2 * (seen / (5 * i64::try_from(events.starts.len()).unwrap_or(i64::MAX)));
    let shortest = SHORTEST.max(Nanos(sparse));
    let whole = events
        .observed
        .iter()
        .map(|o| o.1.0 - o.0.0)
        .max()
        .unwrap_or(0);
    let longest = Nanos(whole / 4);
    if longest <= shortest {
        return Err(Unknown::ShortWindow(events.span()));
    }
    Ok((shortest, longest))
}
