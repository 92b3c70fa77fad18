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
        let successive = &boots(ppb(values))[0];
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
                ("error of successive sets, 20 ppm", at) => nth(successive, at),
                ("error of successive sets, 0 ppm", at) => nth(&boots(0)[0], at),
                ("error of a mean", at) => mean_error(at, values),
                ("drift between two corrections", _) => {
                    Some(values.get("drift") / day * interval("100") * 1e3)
                }
                _ => None,
            };
            if let Some(value) = value {
                modelled.insert((series.name.clone(), row.at.clone()), value);
            }
        }
        modelled
    }

    fn remarks(&self, _: &CaseFile, values: &Values, modelled: &Modelled) -> Vec<Remark> {
        let list = |series: &str| {
            let errors = (1..=4).filter_map(|n| {
                let value = modelled.get(&(series.to_owned(), n.to_string()))?;
                Some(format!("{value:+.2}"))
            });
            errors.collect::<Vec<String>>().join(", ")
        };
        let mean = |at: &str| {
            let key = ("error of a mean".to_owned(), at.to_owned());
            modelled.get(&key).copied().unwrap_or_default()
        };
        vec![
            remark(
                "errors of four successive sets, ms",
                format!(
                    "{} without clock discipline, because the tick keeps its phase; {} if NTP \
                     steers the system clock by {} ppm, because the phase slides",
                    list("error of successive sets, 0 ppm"),
                    list("error of successive sets, 20 ppm"),
                    values.get("steering")
                ),
            ),
            remark(
                "averaging over 16 sets",
                format!(
                    "leaves {:.2} of {:.2} ms without clock discipline, and {:.2} of {:.2} ms with \
                     it. In both cases, the error of the system clock itself, a few ms, is added, \
                     and bounds what sets and reads can show",
                    mean("16 sets, 0 ppm"),
                    mean("1 set, 0 ppm"),
                    mean("16 sets, 20 ppm"),
                    mean("1 set, 20 ppm"),
                ),
            ),
        ]
    }
}

/// Number of successive sets to simulate in each boot.
const SETS: usize = 16;
/// Time in which that many sets happen.
const SETS_LENGTH: Nanos = Nanos::from_secs(16 * 700);
/// Number of boots with successive sets.
const BOOTS: usize = 400;

/// Returns how fast NTP makes the system clock run, in parts per billion.
fn ppb(values: &Values) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "clocks are off by a few hundred ppm at most"
    )]
    let ppb = (values.get("steering") * 1e3).round() as i64;
    ppb
}

/// Returns the errors, in ms, of successive sets at 100 Hz, for each boot. In system time, the
/// ticks of a boot come `ppb` parts per billion too fast, so their phase slides between sets. The first
/// boot's tick is 3.55 ms after the middle of a second at the first set.
fn boots(ppb: i64) -> Vec<Vec<f64>> {
    const FIRST: Nanos = Nanos(3_550_000);
    let tick = 10_000_000;
    let mut stream = Stream::new(1, 100);
    let slid = Nanos(661_500_000_000).times(ppb as f64 / 1e9);
    let phases = std::iter::once(FIRST + slid).chain(std::iter::from_fn(|| {
        Some(stream.draw(&Law::Uniform(Nanos::ZERO, Nanos(tick))))
    }));
    let sets = |phase: Nanos| {
        let origin = Nanos(phase.0.rem_euclid(tick));
        let grid = Device::TscDeadline.grid(100, origin, ppb)?;
        let sets = rtc::sets(&grid, SETS_LENGTH);
        let errors = sets.iter().take(SETS);
        Some(errors.map(|set| set.error.as_secs_f64() * 1e3).collect())
    };
    phases.take(BOOTS).filter_map(sets).collect()
}

/// Returns the error of the set with this number, which counts from 1.
fn nth(errors: &[f64], number: &str) -> Option<f64> {
    let number: usize = number.parse().ok()?;
    errors.get(number.checked_sub(1)?).copied()
}

/// Returns the error of the mean of several sets, in ms, as the root mean square over boots. The
/// label of the row has the form `N sets, PPM ppm`. Returns `None` for any other label.
fn mean_error(at: &str, values: &Values) -> Option<f64> {
    let (sets, steering) = at.split_once(", ")?;
    let sets: usize = sets.split(' ').next()?.parse().ok()?;
    let is_steered = steering != "0 ppm";
    let boots = boots(if is_steered { ppb(values) } else { 0 });
    let squares: Vec<f64> = boots
        .iter()
        .map(|errors| ticktax_experiment::statistics::mean(&errors[..sets.min(errors.len())]))
        .map(|mean| mean * mean)
        .collect();
    Some(ticktax_experiment::statistics::mean(&squares).sqrt())
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

#[cfg(test)]
mod tests {
    use super::boots;

    /// Follows the tick by hand: it slides by 20 ppm of 661 s between sets. The error is what is
    /// left after whole ticks.
    #[test]
    fn steering_slides_the_tick_between_sets() {
        let errors = &boots(20_000)[0];
        let mut expected = -3.55;
        for error in errors {
            assert!((error - expected).abs() < 0.001, "{errors:?}");
            expected += 661e3 * 20e-6;
            expected -= (expected / 10.0).round() * 10.0;
        }
        for errors in boots(0) {
            let first = errors[0];
            assert!(errors.iter().all(|error| (error - first).abs() < 1e-6));
        }
    }
}
