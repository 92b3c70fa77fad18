//! Relates events to each other: which events lie in a probe's gaps, which beats are phase-locked,
//! and which events belong to a beat.

use ticktax_model::Nanos;

use ticktax_beats::binomial_tail;
use ticktax_beats::whole;
use ticktax_beats::{Beat, Events, FEWEST, Rhythm};

/// Number of circular shifts used to test whether a source is tied to gaps.
const SHIFTS: i64 = 199;
/// Maximum number of a source's events that the test shifts.
const SAMPLE: usize = 2_048;
/// Two beats are phase-locked if the mean vector of their relative phases is longer than this. If
/// the phases are spread evenly over half a period, its length is 0.64.
const LOCKED: f64 = 0.8;

/// Returns the share of `inner`'s events that start within an event of `outer` (or at most `slack`
/// away from one), and the number of events examined. Only times at which both sources were
/// observed count.
pub(super) fn share_inside(inner: &Events, outer: &Events, slack: Nanos) -> (f64, usize) {
    let (mut examined, mut inside, mut at) = (0_usize, 0_usize, 0);
    for &start in &inner.starts {
        if !was_observed(outer, start) {
            continue;
        }
        examined += 1;
        while at < outer.starts.len() && outer.starts[at] + outer.durations[at] + slack < start {
            at += 1;
        }
        if at < outer.starts.len() && outer.starts[at] - slack <= start {
            inside += 1;
        }
    }
    (inside as f64 / examined.max(1) as f64, examined)
}

/// Returns the share of `outer`'s events that contain at least one of `inner`'s, and the number of
/// events examined.
pub(super) fn share_holding(outer: &Events, inner: &Events, slack: Nanos) -> (f64, usize) {
    let (mut examined, mut holding) = (0_usize, 0_usize);
    for (&start, &dur) in outer.starts.iter().zip(&outer.durations) {
        if !was_observed(inner, start) {
            continue;
        }
        examined += 1;
        holding += usize::from(holds(start, dur, inner, slack));
    }
    (holding as f64 / examined.max(1) as f64, examined)
}

pub(super) fn was_observed(events: &Events, time: Nanos) -> bool {
    let at = events.observed.partition_point(|&(_, end)| end < time);
    events
        .observed
        .get(at)
        .is_some_and(|&(begin, _)| begin <= time)
}

/// Returns the indices of those of `outer`'s events that contain at least one of `inner`'s.
pub(super) fn holding(outer: &Events, inner: &Events, slack: Nanos) -> Vec<usize> {
    let gaps = outer.starts.iter().zip(&outer.durations).enumerate();
    gaps.filter(|(_, (start, dur))| holds(**start, **dur, inner, slack))
        .map(|(place, _)| place)
        .collect()
}

/// Returns whether an event of `inner` starts within this gap, or at most `slack` before or after
/// it.
fn holds(start: Nanos, dur: Nanos, inner: &Events, slack: Nanos) -> bool {
    let at = inner.starts.partition_point(|&other| other < start - slack);
    let next = inner.starts.get(at);
    next.is_some_and(|&other| other <= start + dur + slack)
}

/// Returns whether a source's events lie in gaps more often than they would at any other phase.
/// Each of [`SHIFTS`] circular shifts preserves the events' rhythm but breaks their tie to the
/// gaps. At most one shift in twenty may place as many events inside the gaps as there really are.
/// That number must also be improbable for independent events that hit gaps at the shifts' mean
/// rate (a binomial tail).
pub(super) fn is_tied(inner: &Events, outer: &Events, slack: Nanos) -> bool {
    let (Some(&(begin, _)), Some(&(_, end))) = (outer.observed.first(), outer.observed.last())
    else {
        return false;
    };
    let span = (end - begin).0;
    let sample: Vec<Nanos> = inner.starts.iter().copied().take(SAMPLE).collect();
    let (seen, examined) = share_inside(&at(&sample, inner), outer, slack);
    if span <= 0 || examined == 0 {
        return false;
    }
    let (mut mean, mut as_many) = (0.0, 0);
    for shift in 1..=SHIFTS {
        // Shifts by multiples of the golden ratio are spread evenly over any period.
        let by = whole((shift as f64 * 0.618_033_988_75).fract() * span as f64);
        let mut starts: Vec<Nanos> = sample
            .iter()
            .map(|&start| begin + Nanos(((start - begin).0 + by).rem_euclid(span)))
            .collect();
        starts.sort_unstable();
        let (share, _) = share_inside(&at(&starts, inner), outer, slack);
        mean += share / SHIFTS as f64;
        as_many += i64::from(share >= seen);
    }
    let examined = examined as f64;
    let by_chance = binomial_tail(seen * examined, examined, mean.max(1e-9));
    as_many * 20 <= SHIFTS && by_chance <= 1e-3
}

/// Returns events that start at `starts`, with the observed intervals and tick of `like`.
fn at(starts: &[Nanos], like: &Events) -> Events {
    Events {
        starts: starts.to_vec(),
        durations: Vec::new(),
        observed: like.observed.clone(),
        tick: like.tick,
    }
}

/// Returns the delay from the source's latest event to the start of a gap, if nearly all gaps start
/// at the same phase of `period` (in ns). Returns `None` if the phase wanders.
pub(super) fn locked(gaps: &Events, source: &Events, period: f64) -> Option<Nanos> {
    let turn = std::f64::consts::TAU;
    let (mut sin, mut cos, mut count) = (0.0, 0.0, 0.0);
    for &start in &gaps.starts {
        let before = source.starts.partition_point(|&other| other <= start);
        let Some(&last) = before.checked_sub(1).and_then(|i| source.starts.get(i)) else {
            continue;
        };
        let angle = turn * (start - last).0 as f64 / period;
        (sin, cos, count) = (sin + angle.sin(), cos + angle.cos(), count + 1.0);
    }
    let late = (sin.atan2(cos) / turn).rem_euclid(1.0) * period;
    let is_locked = count >= FEWEST as f64 && f64::hypot(sin, cos) > LOCKED * count;
    is_locked.then(|| Nanos(whole(late)))
}

/// Returns whether an event that starts at `start` can belong to `beat`. Every event can if the
/// beat is not on a grid.
pub(super) fn is_member(beat: &Beat, start: Nanos) -> bool {
    if beat.rhythm == Rhythm::Rearmed || beat.restarts > 0 {
        return true;
    }
    let period = beat.period.value;
    let gate = (4.0 * beat.jitter.0 as f64)
        .max(0.01 * period)
        .min(0.2 * period);
    let drift = 0.5 * (beat.period.high - beat.period.low) / period;
    let turns = (start - beat.first).0 as f64 / period;
    (turns - turns.round()).abs() * period <= gate + drift * turns.abs() * period
}

pub(super) fn members(events: &Events, beat: &Beat) -> Events {
    let kept = events.starts.iter().zip(&events.durations);
    let (starts, durations) = kept.filter(|(start, _)| is_member(beat, **start)).unzip();
    Events {
        starts,
        durations,
        observed: events.observed.clone(),
        tick: events.tick,
    }
}

/// Returns whether two beats can have the same period: their confidence intervals overlap, or the
/// periods differ by no more than the detector's choice of events can explain.
pub(super) fn agree(a: &Beat, b: &Beat) -> bool {
    a.period.agrees(&b.period) || (a.period.value / b.period.value - 1.0).abs() < 1e-3
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Events, holding, is_tied, locked, share_holding, share_inside};

    const SLACK: Nanos = Nanos(100);

    fn events(at: &[(i64, i64)]) -> Events {
        let (starts, durations) = at.iter().map(|&(s, d)| (Nanos(s), Nanos(d))).unzip();
        Events::new(Nanos(0), Nanos(1_000_000), starts, durations)
    }

    #[test]
    fn events_are_counted_in_the_gap_around_them() {
        let gaps = events(&[(100_000, 50_000), (300_000, 10_000), (500_000, 10_000)]);
        let source = events(&[(120_000, 5), (130_000, 5), (305_000, 5), (700_000, 5)]);
        assert_eq!(share_inside(&source, &gaps, SLACK), (0.75, 4));
        let (share, examined) = share_holding(&gaps, &source, SLACK);
        assert!((share - 2.0 / 3.0).abs() < 1e-9 && examined == 3);
    }

    #[test]
    fn an_event_may_stick_out_of_a_gap_by_the_slack() {
        let gaps = events(&[(100_000, 1_000)]);
        let is_held = |at: i64, slack: i64| {
            let source = events(&[(at, 5)]);
            let found = holding(&gaps, &source, Nanos(slack)).len();
            let (share, _) = share_inside(&source, &gaps, Nanos(slack));
            assert_eq!(share > 0.5, found == 1);
            found == 1
        };
        assert!(!is_held(99_500, 100) && is_held(99_500, 500));
        assert!(!is_held(101_500, 100) && is_held(101_500, 500));
    }

    #[test]
    fn a_source_is_tied_only_to_the_gaps_it_causes() {
        // There is a 20 µs gap every millisecond. One source runs in each gap. Another has the same
        // period but runs outside the gaps.
        let every = |at: i64| (0..1_000).map(|k| (k * 1_000_000 + at, 20_000)).collect();
        let gaps_at = |at: i64| {
            let events: Vec<(i64, i64)> = every(at);
            let (starts, durations) = events.iter().map(|&(s, d)| (Nanos(s), Nanos(d))).unzip();
            Events::new(Nanos(0), Nanos(1_000_000_000), starts, durations)
        };
        let gaps = gaps_at(500_000);
        assert!(is_tied(&gaps_at(501_000), &gaps, SLACK));
        assert!(!is_tied(&gaps_at(700_000), &gaps, SLACK));
        assert_eq!(holding(&gaps, &gaps_at(501_000), SLACK).len(), 1_000);
        assert_eq!(locked(&gaps, &gaps_at(200_000), 1e6), Some(Nanos(300_000)));
        // A source with a slightly different period drifts through all phases.
        let starts: Vec<Nanos> = (0..999).map(|k| Nanos(k * 1_001_000)).collect();
        let durations = vec![Nanos(1_000); starts.len()];
        let other = Events::new(Nanos(0), Nanos(1_000_000_000), starts, durations);
        assert_eq!(locked(&gaps, &other, 1e6), None);
        // If gaps cover nearly all of the time, every source's events lie in them, and that proves
        // nothing.
        let mut wide = gaps_at(10_000);
        wide.durations.fill(Nanos(980_000));
        assert!(!is_tied(&gaps_at(500_000), &wide, SLACK));
    }

    #[test]
    fn unobserved_events_are_not_counted() {
        let mut gaps = events(&[(100_000, 50_000)]);
        gaps.observed = vec![(Nanos(0), Nanos(200_000))];
        let source = events(&[(120_000, 5), (700_000, 5)]);
        assert_eq!(share_inside(&source, &gaps, SLACK), (1.0, 1));
        assert_eq!(share_inside(&Events::default(), &gaps, SLACK), (0.0, 0));
    }
}
