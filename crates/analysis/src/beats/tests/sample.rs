//! Tests the samples used for plots, on recordings with a known period.

use ticktax_fixture::{SplitMix64, process};
use ticktax_model::beats::{BeatStatement, EventSample, PeriodSpectrum};
use ticktax_model::{Nanos, Owner};

use super::{MS, Story, US, every, names};

const PERIOD: i64 = 20 * MS;
const JITTER: i64 = 40 * US;

/// Searches a 20-second recording of a thread that runs every 20 ms, but up to 40 µs late.
fn late_by_up_to_40_us() -> BeatStatement {
    let length = 20_000 * MS;
    let mut world = Story::default();
    let mut random = SplitMix64::new(17);
    world.observe(0, length, (0, 0));
    for at in every(PERIOD, length) {
        let at = at + random.between(0, JITTER);
        world.add(process(Owner::Program, "mixer", 70), 0, at, 300 * US);
    }
    world.search(length)
}

#[test]
fn a_steady_beat_has_one_phase() {
    let found = late_by_up_to_40_us();
    assert_eq!(names(&found), ["mixer"], "{found:#?}");
    let line = &found.beats[0];
    let sample = line.sample.as_ref().unwrap();
    assert_eq!(sample.began.len(), EventSample::MAX);
    assert!(
        sample.events > 900 && sample.began.is_sorted(),
        "{sample:?}"
    );
    let times = sample.began.iter();
    let phases = times.map(|&time| sample.phase(time, line.rhythm.period));
    let (low, high) = phases.fold((f64::MAX, f64::MIN), |ends, phase| {
        (ends.0.min(phase), ends.1.max(phase))
    });
    // The phases are close to the grid and spread no wider than the jitter.
    assert!(high - low <= JITTER as f64 * 1.01, "{low} to {high}");
    assert!(
        low > -(JITTER as f64) && high < JITTER as f64,
        "{low} to {high}"
    );
    assert!(sample.began[0] < Nanos::from_secs(1));
    assert!(sample.began[EventSample::MAX - 1] > Nanos::from_secs(19));
}

#[test]
fn the_period_stands_out_of_its_spectrum() {
    let found = late_by_up_to_40_us();
    let spectrum = found.spectrum.unwrap();
    assert_eq!(spectrum.sources, ["mixer"]);
    assert!(spectrum.periods.len() <= PeriodSpectrum::COLUMNS && spectrum.periods.is_sorted());
    assert_eq!(spectrum.periods.len(), spectrum.strengths.len());
    assert_eq!(spectrum.periods.len(), spectrum.source_index.len());
    assert!(spectrum.source_index.iter().all(|&of| of == 0));
    // Peaks at fractions of the period are as strong as the peak at the period itself. Among longer
    // periods, only the true one has a strong peak.
    let peaks = spectrum.periods.iter().zip(&spectrum.strengths);
    let long = peaks.filter(|(period, _)| **period > 0.75 * PERIOD as f64);
    let best = long.max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
    assert!((best.0 / PERIOD as f64 - 1.0).abs() < 1e-3, "{spectrum:#?}");
}
