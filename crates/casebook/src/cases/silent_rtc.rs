//! `silent-rtc`: the kernel sets the hardware clock, which spoils measurements of that clock's
//! drift.

use ticktax_model::Nanos;
use ticktax_sim::{Device, Law, Stream, rtc};

use super::{Case, rate, remark};
use crate::file::{CaseFile, Values};
use crate::judge::Modelled;
use ticktax_model::case::Remark;

pub(super) const CASE: Rtc = Rtc;

pub(super) struct Rtc;

/// Number of tick phases to simulate.
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
        let read = values.get("read");
        let sets = errors(100);
        let set = worst(&sets);
        // A read happens at an effectively random phase of the tick.
        let deviation_of_read = read / 3_f64.sqrt();
        let deviation_of_set_and_read = deviation(&sets).hypot(deviation_of_read);
        let day = 86_400.0;
        for (series, row) in file.rows() {
            let days = || row.at.split(' ').next()?.parse::<f64>().ok();
            let ppm = |error: f64| days().map(|days| error / (days * day) * 1e6);
            let hours = |seconds: f64| seconds / values.get("drift") * 24.0;
            let value = match (series.name.as_str(), row.at.as_str()) {
                ("interval", at) => Some(interval(at)),
                ("error of a set", at) => Some(worst(&errors(rate(at).unwrap_or(100))) * 1e3),
                ("drift by a set and a read", _) => ppm(set + read),
                ("drift by two reads", _) => ppm(2.0 * read),
                ("a set and a read to two reads", "bounds") => Some((set + read) / (2.0 * read)),
                ("a set and a read to two reads", _) => {
                    Some(deviation_of_set_and_read / (2_f64.sqrt() * deviation_of_read))
                }
                ("time off until ntpd is at a loss", "steps (128 ms)") => {
                    Some(hours(values.get("step-threshold")))
                }
                ("time off until ntpd is at a loss", _) => {
                    Some(hours(values.get("panic-threshold")))
                }
                _ => None,
            };
            if let Some(value) = value {
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
                "does not help: the tick keeps its phase between sets, so all sets of one boot \
                 have the same error (mean over boots {:.2} ms)",
                mean * 1e3
            ),
        )]
    }
}

/// Returns the error, in seconds, of the clock after it is first set, for each boot. Each boot is
/// at a random phase of the tick.
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
    let seconds = |at: Nanos| (at.0 / 1_000_000_000) as f64;
    sets.windows(2)
        .map(|pair| seconds(pair[1].at) - seconds(pair[0].at))
        .fold(0.0, f64::max)
}

fn worst(errors: &[f64]) -> f64 {
    errors.iter().fold(0.0, |max, error| max.max(error.abs()))
}

fn deviation(values: &[f64]) -> f64 {
    let mean = ticktax_experiment::statistics::mean(values);
    let squares: Vec<f64> = values.iter().map(|value| (value - mean).powi(2)).collect();
    ticktax_experiment::statistics::mean(&squares).sqrt()
}
