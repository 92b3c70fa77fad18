//! What lies in what: a source's events in a probe's gaps.

use ticktax_model::Nanos;

use super::super::{Beat, Events, Rhythm};

/// By how much an event may stick out of its gap: the two are timed by clocks that agree to within
/// some tens of ns, and a handler's first instruction may come before the probe's loop stops.
const SLACK: Nanos = Nanos(1_000);

/// The share of `inner`'s events that begin within one of `outer`, among those at times when both
/// were observed, and how many were looked at.
pub(super) fn share_inside(inner: &Events, outer: &Events) -> (f64, usize) {
    let (mut looked, mut inside, mut at) = (0_usize, 0_usize, 0);
    for &start in &inner.starts {
        if !observed(outer, start) {
            continue;
        }
        looked += 1;
        while at < outer.starts.len() && outer.starts[at] + outer.durations[at] + SLACK < start {
            at += 1;
        }
        if at < outer.starts.len() && outer.starts[at] - SLACK <= start {
            inside += 1;
        }
    }
    (inside as f64 / looked.max(1) as f64, looked)
}

/// The share of `outer`'s events that hold at least one of `inner`.
pub(super) fn share_holding(outer: &Events, inner: &Events) -> (f64, usize) {
    let (mut looked, mut holding) = (0_usize, 0_usize);
    for (&start, &dur) in outer.starts.iter().zip(&outer.durations) {
        if !observed(inner, start) {
            continue;
        }
        looked += 1;
        let at = inner.starts.partition_point(|&other| other < start - SLACK);
        if inner
            .starts
            .get(at)
            .is_some_and(|&other| other <= start + dur)
        {
            holding += 1;
        }
    }
    (holding as f64 / looked.max(1) as f64, looked)
}

fn observed(events: &Events, time: Nanos) -> bool {
    let at = events.observed.partition_point(|&(_, end)| end < time);
    events
        .observed
        .get(at)
        .is_some_and(|&(begin, _)| begin <= time)
}

/// Whether an event that begins at `start` is of this beat, as far as its grid tells it from others;
/// where the beat keeps to no grid, every event may be.
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

/// The events of a beat alone, where its grid tells them from the others'.
pub(super) fn members(events: &Events, beat: &Beat) -> Events {
    let kept = events.starts.iter().zip(&events.durations);
    let (starts, durations) = kept.filter(|(start, _)| is_member(beat, **start)).unzip();
    Events {
        starts,
        durations,
        observed: events.observed.clone(),
    }
}

/// Whether two beats may have one period: their intervals meet, or they differ by less than what
/// a detector's own choice of events can move them.
pub(super) fn agree(a: &Beat, b: &Beat) -> bool {
    a.period.agrees(&b.period) || (a.period.value / b.period.value - 1.0).abs() < 1e-3
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Events, share_holding, share_inside};

    fn events(at: &[(i64, i64)]) -> Events {
        let (starts, durations) = at.iter().map(|&(s, d)| (Nanos(s), Nanos(d))).unzip();
        Events::new(Nanos(0), Nanos(1_000_000), starts, durations)
    }

    #[test]
    fn an_event_lies_in_the_gap_around_it() {
        let gaps = events(&[(100_000, 50_000), (300_000, 10_000), (500_000, 10_000)]);
        let source = events(&[(120_000, 5), (130_000, 5), (305_000, 5), (700_000, 5)]);
        assert_eq!(share_inside(&source, &gaps), (0.75, 4));
        let (share, looked) = share_holding(&gaps, &source);
        assert!((share - 2.0 / 3.0).abs() < 1e-9 && looked == 3);
    }

    #[test]
    fn what_was_not_observed_counts_for_neither() {
        let mut gaps = events(&[(100_000, 50_000)]);
        gaps.observed = vec![(Nanos(0), Nanos(200_000))];
        let source = events(&[(120_000, 5), (700_000, 5)]);
        assert_eq!(share_inside(&source, &gaps), (1.0, 1));
        assert_eq!(share_inside(&Events::default(), &gaps), (0.0, 0));
    }
}
