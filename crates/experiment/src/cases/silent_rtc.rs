//! `silent-rtc`: the kernel sets the hardware clock, and what that costs whoever measures its
//! drift.

use ticktax_model::Nanos;
use ticktax_sim::{Device, Law, Stream, rtc};

use super::{Case, rate, remark};
use crate::file::{CaseFile, Values};
use crate::judge::Modelled;
use ticktax_model::case::Remark;

/// The case.
pub(super) const CASE: Rtc = Rtc;

pub(super) struct Rtc;

/// Phases of the tick that are tried.
const PHASES: i64 = 4_000;

impl Case for Rtc {
    fn text(&self) -> &'static str {
        include_str!("../../../../cases/silent-rtc.toml")
    }

    fn name(&self) -> &'static str {
        "silent-rtc"
    }

    fn model(&self, file: &CaseFile, values: &Values) -> Modelled {
        let mut modelled = Modelled::new();
        let day = 86_400.0;
        let read = values.get("read");
        let set = deviation(&errors(100));
        // The phase of a read is as good as random.
        let read_deviation = read / 3_f64.sqrt();
        let by_set = set.hypot(read_deviation) / day * 1e6;
        let by_reads = (read_deviation * 2_f64.sqrt()) / day * 1e6;
        for series in &file.series {
            for row in &series.rows {
                let value = match (series.name.as_str(), row.at.as_str()) {
                    ("interval", at) => interval(at),
                    ("error", at) => worst(&errors(rate(at).unwrap_or(100))) * 1e3,
                    ("drift over a day", "a set and a read") => by_set,
                    ("drift over a day", "two reads") => by_reads,
                    ("ratio", "a set and a read to two reads") => by_set / by_reads,
                    ("ratio", "a set to a read") => set / read_deviation,
                    _ => continue,
                };
                modelled.insert((series.name.clone(), row.at.clone()), value);
            }
        }
        modelled
    }

    fn remarks(&self, _: &CaseFile, _: &Values, _: &Modelled) -> Vec<Remark> {
        let mean = errors(100).iter().sum::<f64>() / PHASES as f64;
        vec![remark(
            "averaging over sets",
            format!(
                "does not help: the tick keeps its phase from one to the next, so that all sets \
                 of a boot are off by the same (the mean over boots is {:.2} ms)",
                mean * 1e3
            ),
        )]
    }
}

/// The errors of the first set, in s, over boots at random phases of the tick.
fn errors(hz: u64) -> Vec<f64> {
    let mut stream = Stream::new(1, hz);
    let tick = 1_000_000_000 / i64::try_from(hz).unwrap_or(1);
    let boots = (0..PHASES).filter_map(|_| {
        let phase = stream.draw(&Law::Uniform(Nanos::ZERO, Nanos(tick)));
        let grid = Device::TscDeadline.grid(hz, phase, 0)?;
        let sets = rtc::sets(&grid, Nanos::from_secs(700));
        Some(sets.first()?.error.as_secs_f64())
    });
    boots.collect()
}

fn interval(at: &str) -> f64 {
    let grid = Device::Pit.grid(rate(at).unwrap_or(100), Nanos(123_456), 0);
    let sets = grid
        .map(|grid| rtc::sets(&grid, Nanos::from_secs(10_000)))
        .unwrap_or_default();
    let whole = |at: Nanos| (at.0 / 1_000_000_000) as f64;
    sets.windows(2)
        .map(|pair| whole(pair[1].at) - whole(pair[0].at))
        .fold(0.0, f64::max)
}

fn worst(errors: &[f64]) -> f64 {
    errors.iter().fold(0.0, |max, error| max.max(error.abs()))
}

fn deviation(values: &[f64]) -> f64 {
    let mean = crate::statistics::mean(values);
    let squares: Vec<f64> = values.iter().map(|value| (value - mean).powi(2)).collect();
    crate::statistics::mean(&squares).sqrt()
}
