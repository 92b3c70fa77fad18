//! Tests the detector's guarantees with generated events.

mod nulls;

use proptest::prelude::*;
use ticktax_fixture::Draws;

use super::{Events, FEWEST, Rhythm, Unknown, detect, knowable};
use ticktax_model::Nanos;

/// Returns events at `times` (ns), observed from 0 to `window` ns, that last 1 µs each.
#[expect(clippy::cast_possible_truncation, reason = "times of hours at most")]
fn events(mut times: Vec<f64>, window: f64) -> Events {
    times.retain(|t| (0.0..window).contains(t));
    times.sort_by(f64::total_cmp);
    let starts: Vec<Nanos> = times.iter().map(|t| Nanos(t.round() as i64)).collect();
    let durations = vec![Nanos::from_micros(1); starts.len()];
    Events::new(Nanos::ZERO, Nanos(window as i64), starts, durations)
}

fn grid(random: &mut Draws, period: f64, count: u32, jitter: f64) -> Vec<f64> {
    (0..count)
        .map(|k| period * (f64::from(k) + 0.3 + jitter * random.normal()))
        .collect()
}

#[test]
fn a_period_of_30_999_s_is_not_reported_as_31_s() {
    let mut random = Draws::new(3);
    let times = grid(&mut random, 30.999e9, 40, 1e-4);
    let beats = detect(&events(times, 40.0 * 30.999e9));
    assert_eq!(beats.len(), 1, "{beats:?}");
    let beat = &beats[0];
    assert!(
        beat.period.low <= 30.999e9 && 30.999e9 <= beat.period.high,
        "{beat:?}"
    );
    assert!(beat.period.high < 31e9);
    assert_eq!(
        (beat.seen, beat.expected, beat.rhythm),
        (40, 40, Rhythm::Grid)
    );
    assert!(beat.false_alarm < 1e-3);
    assert!((beat.first.as_secs_f64() - 0.3 * 30.999).abs() < 0.01);
}

#[test]
fn a_rearmed_timer_has_a_wider_confidence_interval() {
    let mut random = Draws::new(5);
    let (mut t, mut times) = (0.0, Vec::new());
    for _ in 0..400 {
        t += 1e7 * (1.0 + 0.03 * random.normal());
        times.push(t);
    }
    let beats = detect(&events(times, t + 1e6));
    assert_eq!(beats.len(), 1);
    let period = beats[0].period;
    assert_eq!(beats[0].rhythm, Rhythm::Rearmed);
    assert!(period.low <= 1e7 && 1e7 <= period.high, "{period:?}");
    // The width of the interval is ~ σ/√n. If the events were on a grid, it would be a hundredth of
    // this.
    assert!((period.high - period.low) > 1e7 * 0.03 / 20.0);
}

/// A real-time thread of higher priority stops a loop for 94 ms every 345 ms, which makes the loop
/// miss its frames.
#[test]
fn regular_stalls_do_not_hide_the_period_of_a_loop() {
    for (window, every) in [(1.6e9, 345e6), (20e9, 3_070e6), (30e9, 5_000e6)] {
        let is_missed = |t: &f64| t % every > 250e6 && t % every < 344e6;
        let frames = grid(&mut Draws::new(4), 2e7, 2_000, 1e-4);
        let frames: Vec<f64> = frames.into_iter().filter(|t| !is_missed(t)).collect();
        let beats = detect(&events(frames, window));
        let period = beats.first().map(|beat| (beat.period.value / 1e5).round());
        assert_eq!(period, Some(200.0), "every {every}: {beats:?}");
    }
}

#[test]
fn two_beats_in_noise_are_separated() {
    let mut random = Draws::new(8);
    let mut times = grid(&mut random, 1e7, 3000, 0.02);
    times.extend(grid(&mut random, 3.7e7, 810, 0.01));
    times.extend((0..2000).map(|_| random.uniform() * 3e10));
    let mut beats = detect(&events(times, 3e10));
    beats.sort_by(|a, b| a.period.value.total_cmp(&b.period.value));
    assert_eq!(beats.len(), 2, "{beats:?}");
    assert!((beats[0].period.value / 1e7 - 1.0).abs() < 1e-4);
    assert!((beats[1].period.value / 3.7e7 - 1.0).abs() < 1e-4);
}

#[test]
fn a_restarted_timer_is_one_beat_with_a_restart() {
    let mut times = grid(&mut Draws::new(1), 2e7, 200, 0.005);
    times.iter_mut().skip(100).for_each(|t| *t += 0.37 * 2e7);
    let beats = detect(&events(times, 201.0 * 2e7));
    assert_eq!(beats.len(), 1, "{beats:?}");
    assert_eq!(beats[0].restarts, 1);
    assert!((beats[0].period.value / 2e7 - 1.0).abs() < 1e-3);
}

#[test]
fn a_burst_is_one_beat_of_several_events() {
    let mut times = grid(&mut Draws::new(2), 1e9, 100, 0.001);
    let later: Vec<f64> = times.iter().flat_map(|t| [t + 2e7, t + 4e7]).collect();
    times.extend(later);
    let beats = detect(&events(times, 1e11));
    assert_eq!(beats.len(), 1, "{beats:?}");
    assert!((beats[0].burst - 3.0).abs() < 0.1);
    assert!((beats[0].share - 3e5 / 1e11).abs() < 1e-7);
}

#[test]
fn too_few_events_or_too_short_a_window_are_reported() {
    let few = events(vec![1e9, 2e9, 3e9, 4e9], 5e9);
    assert_eq!(knowable(&few), Err(Unknown::FewEvents(4)));
    assert!(detect(&few).is_empty());
    // The four periods of 31 s that a beat needs take 124 s, so a window of 90 s is too short.
    let short = events(grid(&mut Draws::new(4), 31e9, 3, 0.0), 9e10);
    assert!(detect(&short).is_empty());
    let six = events((0..6).map(|k| 1e9 * (f64::from(k) + 0.5)).collect(), 6e9);
    assert!(knowable(&six).is_ok_and(|r| r.1 == Nanos(1_500_000_000)));
    assert_eq!(detect(&six).len(), 1);
}

#[test]
fn regular_clusters_at_random_times_are_not_a_beat() {
    let mut random = Draws::new(11);
    let (mut t, mut times) = (0.0, Vec::new());
    while t < 1e11 {
        t += 2e9 * random.exponential();
        times.extend((0..10).map(|i| t + f64::from(i) * 1e7));
    }
    assert!(detect(&events(times, 1e11)).is_empty());
}

/// A thread sleeps for 50 ms at a time and is sometimes woken late. The events include the ticks of
/// its CPU, and any tick close to the time of the next wake-up could be mistaken for it.
#[test]
fn unrelated_events_do_not_produce_a_wrong_period() {
    for seed in 0..6 {
        let mut random = Draws::new(seed);
        let mut times: Vec<f64> = (0..6_250)
            .map(|k| 4e6 * (f64::from(k) + 0.15) + 1e4 * random.uniform())
            .collect();
        let (mut at, mut count) = (1e7, 0.0);
        while at < 25e9 {
            times.push(at);
            count += 1.0;
            let late = if random.uniform() < 0.15 { 4e6 } else { 2e4 };
            at += 50.1e6 + late * random.uniform();
        }
        let mean = (at - 1e7) / count;
        for beat in detect(&events(times, 25e9)) {
            let period = beat.period;
            let is_tick = (period.value / 4e6 - 1.0).abs() < 1e-3;
            let near = (period.value / mean - 1.0).abs() < 2e-3;
            assert!(is_tick || near, "{seed}: {mean} {beat:?}");
        }
    }
}

#[test]
fn degenerate_inputs_are_handled() {
    let at = |starts: Vec<Nanos>, end| {
        let durations = vec![Nanos::ZERO; starts.len()];
        detect(&Events::new(Nanos::ZERO, end, starts, durations)).len()
    };
    assert_eq!(at(vec![Nanos(5); 1000], Nanos::from_secs(1)), 0);
    assert_eq!(at(vec![Nanos::ZERO; 10], Nanos::ZERO), 0);
    assert_eq!(at((0..5000).map(Nanos).collect(), Nanos::from_secs(10)), 0);
    // The events are at exact multiples of a period, with one at each end of the window.
    assert_eq!(
        at(
            (0..=100).map(Nanos::from_millis).collect(),
            Nanos::from_millis(100)
        ),
        1
    );
    assert!(detect(&Events::default()).is_empty());
}

proptest! {
    #[test]
    fn shifting_all_times_shifts_only_the_phase(
        seed in 0_u64..1000,
        shift in -1_000_000_000_i64..1_000_000_000,
    ) {
        let times = grid(&mut Draws::new(seed), 1e7, 60, 0.02);
        let here = events(times, 6e8);
        let shifted = Events {
            starts: here.starts.iter().map(|&t| t + Nanos(shift)).collect(),
            durations: here.durations.clone(),
            observed: here
                .observed
                .iter()
                .map(|&(from, to)| (from + Nanos(shift), to + Nanos(shift)))
                .collect(),
            tick: None,
        };
        let (a, b) = (detect(&here), detect(&shifted));
        prop_assert_eq!(a.len(), 1);
        prop_assert_eq!(b.len(), 1);
        prop_assert!((a[0].period.value - b[0].period.value).abs() < 1e-3);
        prop_assert_eq!(a[0].first + Nanos(shift), b[0].first);
    }

    #[test]
    fn beats_of_random_events_are_within_bounds(
        mut times in prop::collection::vec(0_i64..10_000_000_000, 0..400),
    ) {
        times.sort_unstable();
        let count = times.len() as u64;
        let durations = vec![Nanos(100); times.len()];
        let starts = times.into_iter().map(Nanos).collect();
        for beat in detect(&Events::new(Nanos::ZERO, Nanos::from_secs(10), starts, durations)) {
            prop_assert!(beat.seen >= FEWEST as u64 && beat.seen <= count);
            prop_assert!(beat.seen <= beat.expected);
            let period = beat.period;
            prop_assert!(period.low <= period.value && period.value <= period.high);
            prop_assert!((0.0..=5e-3).contains(&beat.false_alarm));
        }
    }
}
