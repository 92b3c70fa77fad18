//! When somebody had the CPU that a program waited for, and whether that keeps to a beat.
//!
//! A thread with a beat may have had the CPU at other times, too, so a period is told of a wait only where these times
//! were held against the beat. An event of it lasts for no longer than its events do, so a stretch tells within which
//! limits the event around it began. Of a beat on a grid they hold one of its points; where each interval starts from
//! the last event, or the phase jumped, those of two stretches after each other are whole periods apart.

use ticktax_model::Nanos;
use ticktax_model::beats::BeatLine;

/// An interval.
pub(super) type Stretch = (Nanos, Nanos);

/// With less than this probability of chance the times keep to the beat.
const CHANCE: f64 = 0.05;
/// Limits that are wider than this part of a period tell nothing.
const WIDEST: f64 = 0.5;
/// Stretches within this part of a period may be of one event.
const ONE_EVENT: f64 = 0.5;
/// Usual events last for up to so many times the median.
const USUAL: f64 = 1.25;
/// By so much of a period events come early or late at least.
const LOOSE: f64 = 0.02;

/// Stretches for which a source had the CPU: of very many every second, or every fourth, and so on.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    kept: Vec<Stretch>,
    /// One of two to this power is kept.
    thinned: u32,
    seen: u64,
}

impl Times {
    /// Stretches that are kept, of a source.
    const MAX: usize = 512;

    /// Takes the next stretch.
    pub(super) fn add(&mut self, stretch: Stretch) {
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
            self.kept.push(stretch);
        }
    }

    fn is_kept(&self, nth: u64) -> bool {
        nth.trailing_zeros() >= self.thinned
    }

    /// Those that are kept.
    pub(super) fn kept(&self) -> &[Stretch] {
        &self.kept
    }
}

/// Whether most of what was had at these `times`, which are in order, was had as `beat` goes. Its phase is after
/// `origin`.
pub(super) fn keep_to(beat: &BeatLine, times: &[Stretch], origin: Nanos) -> bool {
    let rhythm = &beat.rhythm;
    if times.is_empty() || rhythm.period <= 0.0 {
        return false;
    }
    let evidence = if rhythm.rearmed || rhythm.restarts > 0 {
        in_steps(beat, times)
    } else {
        on_grid(beat, times, origin)
    };
    evidence.suffices()
}

/// For and against.
#[derive(Debug, Default)]
struct Evidence {
    /// What was had in all.
    all: f64,
    /// What of that was had with the beat.
    with: f64,
    /// The logarithm of the probability that chance puts as many with it.
    chance: f64,
    /// The probability that one is by chance, summed over what was looked at.
    each: f64,
    looked: f64,
}

impl Evidence {
    /// Takes what had a part of so much of a period to be in, and was in it or not.
    fn take(&mut self, part: f64, is_in: bool) {
        self.each += part;
        self.looked += 1.0;
        if is_in {
            self.chance += part.ln();
        }
    }

    /// Whether it is no chance, and more than half of what chance leaves.
    fn suffices(&self) -> bool {
        let by_chance = self.each / self.looked.max(1.0);
        self.chance <= CHANCE.ln() && self.with > self.all * f64::midpoint(1.0, by_chance)
    }
}

/// How long a usual event of the beat lasts on the wall: the longest may have been held up themselves. Where it comes
/// in parts, somebody else may have had the CPU in between for as long.
fn lasts(beat: &BeatLine) -> f64 {
    let (median, max) = (beat.lengths.median.0 as f64, beat.lengths.max.0 as f64);
    let single = (USUAL * median).min(max);
    if beat.burst < 1.5 {
        return single;
    }
    let busy = beat.share * beat.cpus.len() as f64 * beat.rhythm.period;
    single.max(2.0 * busy)
}

/// By how much an event may be off after so many periods.
fn off(beat: &BeatLine, periods: f64, spread: f64) -> f64 {
    let rhythm = &beat.rhythm;
    let margin = 0.5 * (rhythm.high - rhythm.low).abs();
    let jitter = 4.0 * rhythm.jitter.0 as f64 * spread;
    jitter.max(LOOSE * rhythm.period) + margin * periods.abs()
}

/// Each beside the beat's grid.
fn on_grid(beat: &BeatLine, times: &[Stretch], origin: Nanos) -> Evidence {
    let (period, lasts) = (beat.rhythm.period, lasts(beat));
    let mut evidence = Evidence::default();
    let mut last = None;
    for &(begin, end) in times {
        let length = (end - begin).0 as f64;
        let since = (begin - origin - beat.first).0 as f64;
        let off = off(beat, since / period, 1.0);
        let (from, to) = ((since + length - lasts).min(since) - off, since + off);
        let part = (to - from) / period;
        let point = (to / period).floor();
        let is_in = part <= WIDEST && point * period >= from;
        evidence.all += length;
        evidence.with += if is_in { length } else { 0.0 };
        // Several in one event are one.
        if part <= WIDEST && last != Some(point) {
            evidence.take(part, is_in);
            last = Some(point);
        }
    }
    evidence
}

/// Stretches that may be of one event, and what was had in them.
#[derive(Clone, Copy, Debug)]
struct Event {
    begin: Nanos,
    end: Nanos,
    had: f64,
    with: bool,
}

/// Each beside the one before.
fn in_steps(beat: &BeatLine, times: &[Stretch]) -> Evidence {
    let (period, lasts) = (beat.rhythm.period, lasts(beat));
    let mut events: Vec<Event> = Vec::new();
    for &(begin, end) in times {
        let had = (end - begin).0 as f64;
        match events.last_mut() {
            Some(last) if ((begin - last.begin).0 as f64) < ONE_EVENT * period => {
                last.end = last.end.max(end);
                last.had += had;
            }
            _ => events.push(Event {
                begin,
                end,
                had,
                with: false,
            }),
        }
    }
    let mut evidence = Evidence::default();
    for place in 1..events.len() {
        let (before, after) = (events[place - 1], events[place]);
        let apart = (after.begin - before.begin).0 as f64;
        let periods = (apart / period).round().max(1.0);
        let off = off(beat, periods, periods.sqrt());
        let from = ((after.end - before.begin).0 as f64 - lasts).min(apart) - off;
        let to = ((after.begin - before.end).0 as f64 + lasts).max(apart) + off;
        let part = (to - from) / period;
        if part > WIDEST {
            continue;
        }
        let whole = (to / period).floor();
        let is_in = whole >= 1.0 && whole * period >= from;
        evidence.take(part, is_in);
        if is_in {
            (events[place - 1].with, events[place].with) = (true, true);
        }
    }
    for event in events {
        evidence.all += event.had;
        evidence.with += if event.with { event.had } else { 0.0 };
    }
    evidence
}

#[cfg(test)]
mod tests {
    use ticktax_model::beats::{BeatLine, Periodicity};
    use ticktax_model::{Lengths, Nanos};

    use super::{Stretch, Times, keep_to};

    const MS: i64 = 1_000_000;
    const ORIGIN: i64 = 77_000 * MS;

    /// A beat every 300 ms of 30 ms each, whose first is due 40 ms after the begin.
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

    /// From and to, in ms after the begin.
    fn times(stretches: impl IntoIterator<Item = (i64, i64)>) -> Vec<Stretch> {
        let at = |ms| Nanos(ORIGIN + ms * MS);
        let all = stretches.into_iter();
        all.map(|(from, to)| (at(from), at(to))).collect()
    }

    fn keeps(rearmed: bool, stretches: &[Stretch]) -> bool {
        keep_to(&beat(rearmed), stretches, Nanos(ORIGIN))
    }

    /// A program that wakes at any time waits for what is left of each run, and for some of them not at all.
    #[test]
    fn waits_within_a_beats_events_keep_to_it() {
        let runs = [0, 1, 3, 4, 8, 9, 10];
        let within = times(runs.map(|k| (40 + k * 300 + k % 3 * 7, 70 + k * 300)));
        assert!(keeps(false, &within) && keeps(true, &within));
        // One wait may be there by chance.
        assert!(!keeps(false, &within[1..2]) && !keeps(true, &within[1..2]));
    }

    /// One event was held up itself, by the hypervisor.
    #[test]
    fn the_longest_event_does_not_widen_what_is_usual() {
        let mut held_up = beat(true);
        held_up.lengths.max = Nanos(200 * MS);
        let within = times((0..9).map(|k| (k * 300, k * 300 + 30)));
        assert!(keep_to(&held_up, &within, Nanos(ORIGIN)));
    }

    #[test]
    fn waits_at_other_times_do_not() {
        // The thread had the CPU for as long, between its beats.
        let between =
            times((0..10).map(|k| (40 + k * 300 + 90 + k * 13, 70 + k * 300 + 90 + k * 13)));
        assert!(!keeps(false, &between));
        let irregular = [0, 410, 930, 1_190, 1_730, 2_210, 2_470, 2_960, 3_300];
        let irregular = times(irregular.map(|at| (at, at + 30)));
        assert!(!keeps(false, &irregular) && !keeps(true, &irregular));
        // Most of the time counts, not most of the waits.
        let mut both = times((0..10).map(|k| (40 + k * 300, 45 + k * 300)));
        both.extend(times([(120, 230)]));
        both.sort_unstable();
        assert!(!keeps(false, &both));
    }

    #[test]
    fn where_an_event_lasts_for_most_of_a_period_nothing_is_told() {
        let mut hog = beat(false);
        (hog.lengths.median, hog.lengths.max) = (Nanos(280 * MS), Nanos(290 * MS));
        let within = times((0..10).map(|k| (40 + k * 300, 60 + k * 300)));
        assert!(!keep_to(&hog, &within, Nanos(ORIGIN)));
        hog.rhythm.rearmed = true;
        assert!(!keep_to(&hog, &within, Nanos(ORIGIN)));
    }

    #[test]
    fn of_very_many_times_a_part_is_kept() {
        let mut times = Times::default();
        for k in 0..100_000 {
            times.add((Nanos(k * 10), Nanos(k * 10 + 1)));
        }
        let kept = times.kept();
        assert!((256..=512).contains(&kept.len()), "{}", kept.len());
        let steps: Vec<i64> = kept.windows(2).map(|two| (two[1].0 - two[0].0).0).collect();
        assert!(steps.iter().all(|step| *step == steps[0]), "{steps:?}");
    }
}
