//! Decides whether the times at which a program waited behind a source match a beat of that source.
//!
//! A thread with a beat may also run at other times. Its period is therefore reported only if the
//! waiting times match the beat. Each interval of waiting covers all or part of one event of the
//! source. An event lasts no longer than the beat's usual events, so the interval bounds the start
//! of its event. If the beat is on a grid, these bounds must contain a point of the grid. If the
//! beat is rearmed after each event, or its phase jumped, consecutive events must start a whole
//! number of periods apart.

use ticktax_model::Nanos;
use ticktax_model::beats::BeatLine;

/// Start and end of an interval.
pub(super) type Interval = (Nanos, Nanos);

/// The times match the beat if the probability that chance produces such a match is at most this.
const CHANCE: f64 = 0.05;
/// Bounds on an event's start that are further apart than this share of a period carry no
/// information.
const WIDEST: f64 = 0.5;
/// Intervals that start within this share of a period may belong to the same event.
const ONE_EVENT: f64 = 0.5;
/// Length of the longest usual event, as a multiple of the median.
const USUAL: f64 = 1.25;
/// Minimum tolerance for early and late events, as a share of the period.
const LOOSE: f64 = 0.02;

/// Intervals in which a source ran while the program waited. If there are very many, only every
/// second one is kept, then every fourth, and so on.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    kept: Vec<Interval>,
    /// One in 2^`thinned` intervals is kept.
    thinned: u32,
    seen: u64,
}

impl Times {
    /// Maximum number of intervals kept.
    const MAX: usize = 512;

    pub(super) fn add(&mut self, interval: Interval) {
        let nth = self.seen;
        self.seen += 1;
        if self.kept.len() == Self::MAX && self.is_kept(nth) {
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.thinned += 1;
        }
        if self.is_kept(nth) {
            self.kept.push(interval);
        }
    }

    fn is_kept(&self, nth: u64) -> bool {
        nth.trailing_zeros() >= self.thinned
    }

    pub(super) fn kept(&self) -> &[Interval] {
        &self.kept
    }
}

/// Returns whether most of the waiting time at these `times` matches `beat`. The times must be in
/// order. The beat's phase is relative to `origin`.
pub(super) fn match_beat(beat: &BeatLine, times: &[Interval], origin: Nanos) -> bool {
    let rhythm = &beat.rhythm;
    if times.is_empty() || rhythm.period <= 0.0 {
        return false;
    }
    let evidence = if rhythm.rearmed || rhythm.phase_jumps > 0 {
        in_steps(beat, times)
    } else {
        on_grid(beat, times, origin)
    };
    evidence.suffices()
}

#[derive(Debug, Default)]
struct Evidence {
    /// Total waiting time.
    total: f64,
    /// The waiting time that matches the beat.
    matching: f64,
    /// Logarithm of the probability that all matches are due to chance.
    log_chance: f64,
    /// Sum, over the judged events, of the probability that the event matches by chance.
    chances: f64,
    judged: f64,
}

impl Evidence {
    /// Judges an event that has the probability `chance` of matching by chance.
    fn judge(&mut self, chance: f64, matches: bool) {
        self.chances += chance;
        self.judged += 1.0;
        if matches {
            self.log_chance += chance.ln();
        }
    }

    /// Returns whether the evidence suffices. Chance must be ruled out as the cause of the matches.
    /// In addition, of the time that does not match by chance, more than half must match.
    fn suffices(&self) -> bool {
        let by_chance = self.chances / self.judged.max(1.0);
        self.log_chance <= CHANCE.ln() && self.matching > self.total * f64::midpoint(1.0, by_chance)
    }
}

/// Returns the elapsed time of the beat's longest usual event. Longer ones may themselves have been
/// delayed. If an event consists of several parts, other sources may run in between for as long as
/// the event itself.
fn usual_length(beat: &BeatLine) -> f64 {
    let (median, max) = (beat.lengths.median.0 as f64, beat.lengths.max.0 as f64);
    let single = (USUAL * median).min(max);
    if beat.events_per_period < 1.5 {
        return single;
    }
    let busy = beat.share * beat.cpus.len() as f64 * beat.rhythm.period;
    single.max(2.0 * busy)
}

/// Returns the tolerance, in ns, for an event's time after `periods` periods. The jitter is
/// multiplied by `spread`.
fn tolerance(beat: &BeatLine, periods: f64, spread: f64) -> f64 {
    let rhythm = &beat.rhythm;
    let margin = 0.5 * (rhythm.high - rhythm.low).abs();
    let jitter = 4.0 * rhythm.jitter.0 as f64 * spread;
    jitter.max(LOOSE * rhythm.period) + margin * periods.abs()
}

/// Compares each interval with the beat's grid.
fn on_grid(beat: &BeatLine, times: &[Interval], origin: Nanos) -> Evidence {
    let (period, usual) = (beat.rhythm.period, usual_length(beat));
    let mut evidence = Evidence::default();
    let mut last = None;
    for &(begin, end) in times {
        let length = (end - begin).0 as f64;
        let since = (begin - origin - beat.first).0 as f64;
        let tolerance = tolerance(beat, since / period, 1.0);
        let from = (since + length - usual).min(since) - tolerance;
        let to = since + tolerance;
        let width = (to - from) / period;
        let point = (to / period).floor();
        let matches = width <= WIDEST && point * period >= from;
        evidence.total += length;
        evidence.matching += if matches { length } else { 0.0 };
        // Several intervals of the same event are judged only once.
        if width <= WIDEST && last != Some(point) {
            evidence.judge(width, matches);
            last = Some(point);
        }
    }
    evidence
}

/// Intervals that may belong to the same event.
#[derive(Clone, Copy, Debug)]
struct Event {
    begin: Nanos,
    end: Nanos,
    /// Total waiting time of the intervals.
    waited: f64,
    matches: bool,
}

/// Compares each event with the previous one.
fn in_steps(beat: &BeatLine, times: &[Interval]) -> Evidence {
    let (period, usual) = (beat.rhythm.period, usual_length(beat));
    let mut events: Vec<Event> = Vec::new();
    for &(begin, end) in times {
        let waited = (end - begin).0 as f64;
        match events.last_mut() {
            Some(last) if ((begin - last.begin).0 as f64) < ONE_EVENT * period => {
                last.end = last.end.max(end);
                last.waited += waited;
            }
            _ => events.push(Event {
                begin,
                end,
                waited,
                matches: false,
            }),
        }
    }
    let mut evidence = Evidence::default();
    for place in 1..events.len() {
        let (before, after) = (events[place - 1], events[place]);
        let apart = (after.begin - before.begin).0 as f64;
        let periods = (apart / period).round().max(1.0);
        let tolerance = tolerance(beat, periods, periods.sqrt());
        let from = ((after.end - before.begin).0 as f64 - usual).min(apart) - tolerance;
        let to = ((after.begin - before.end).0 as f64 + usual).max(apart) + tolerance;
        let width = (to - from) / period;
        if width > WIDEST {
            continue;
        }
        let steps = (to / period).floor();
        let matches = steps >= 1.0 && steps * period >= from;
        evidence.judge(width, matches);
        if matches {
            (events[place - 1].matches, events[place].matches) = (true, true);
        }
    }
    for event in events {
        evidence.total += event.waited;
        evidence.matching += if event.matches { event.waited } else { 0.0 };
    }
    evidence
}

#[cfg(test)]
mod tests {
    use ticktax_model::beats::{BeatLine, Periodicity};
    use ticktax_model::{Lengths, Nanos};

    use super::{Interval, Times, match_beat};

    const MS: i64 = 1_000_000;
    const ORIGIN: i64 = 77_000 * MS;

    /// Builds a beat with events of 30 ms every 300 ms. The first is due 40 ms after the start.
    fn beat(rearmed: bool) -> BeatLine {
        let line = ticktax_fixture::beat("backup", 300e6, 1e4);
        BeatLine {
            first: Nanos(40 * MS),
            lengths: Lengths {
                median: Nanos(30 * MS),
                p99: None,
                max: Nanos(30 * MS),
            },
            rhythm: Periodicity {
                rearmed,
                jitter: Nanos(MS),
                ..line.rhythm
            },
            ..line
        }
    }

    /// Converts intervals from ms after the start to times on the recording's clock.
    fn times(intervals: impl IntoIterator<Item = (i64, i64)>) -> Vec<Interval> {
        let at = |ms| Nanos(ORIGIN + ms * MS);
        let intervals = intervals.into_iter();
        intervals.map(|(from, to)| (at(from), at(to))).collect()
    }

    fn matches(rearmed: bool, intervals: &[Interval]) -> bool {
        match_beat(&beat(rearmed), intervals, Nanos(ORIGIN))
    }

    /// A program that wakes at random times waits for the rest of a run of the backup. It misses
    /// some runs altogether.
    #[test]
    fn waits_within_a_beats_events_match_it() {
        let runs = [0, 1, 3, 4, 8, 9, 10];
        let within = times(runs.map(|k| (40 + k * 300 + k % 3 * 7, 70 + k * 300)));
        assert!(matches(false, &within) && matches(true, &within));
        // A single wait may match by chance.
        assert!(!matches(false, &within[1..2]) && !matches(true, &within[1..2]));
    }

    /// The hypervisor delayed one of the events.
    #[test]
    fn one_long_event_does_not_change_the_usual_length() {
        let mut delayed = beat(true);
        delayed.lengths.max = Nanos(200 * MS);
        let within = times((0..9).map(|k| (k * 300, k * 300 + 30)));
        assert!(match_beat(&delayed, &within, Nanos(ORIGIN)));
    }

    #[test]
    fn waits_at_other_times_do_not_match() {
        // The thread ran for just as long, but between its beat's events.
        let between =
            times((0..10).map(|k| (40 + k * 300 + 90 + k * 13, 70 + k * 300 + 90 + k * 13)));
        assert!(!matches(false, &between));
        let irregular = [0, 410, 930, 1_190, 1_730, 2_210, 2_470, 2_960, 3_300];
        let irregular = times(irregular.map(|at| (at, at + 30)));
        assert!(!matches(false, &irregular) && !matches(true, &irregular));
        // Most of the time must match, not just most of the waits.
        let mut mixed = times((0..10).map(|k| (40 + k * 300, 45 + k * 300)));
        mixed.extend(times([(120, 230)]));
        mixed.sort_unstable();
        assert!(!matches(false, &mixed));
    }

    #[test]
    fn events_that_last_most_of_a_period_prove_nothing() {
        let mut hog = beat(false);
        (hog.lengths.median, hog.lengths.max) = (Nanos(280 * MS), Nanos(290 * MS));
        let within = times((0..10).map(|k| (40 + k * 300, 60 + k * 300)));
        assert!(!match_beat(&hog, &within, Nanos(ORIGIN)));
        hog.rhythm.rearmed = true;
        assert!(!match_beat(&hog, &within, Nanos(ORIGIN)));
    }

    #[test]
    fn very_many_times_are_thinned_evenly() {
        let mut times = Times::default();
        for k in 0..100_000 {
            times.add((Nanos(k * 10), Nanos(k * 10 + 1)));
        }
        let kept = times.kept();
        assert!((256..=512).contains(&kept.len()), "{}", kept.len());
        let steps: Vec<i64> = kept
            .windows(2)
            .map(|pair| (pair[1].0 - pair[0].0).0)
            .collect();
        assert!(steps.iter().all(|step| *step == steps[0]), "{steps:?}");
    }
}
