//! `frame-rate-vs-hz`: a frame loop whose sleeps end on ticks, and whose CPU time is sampled at
//! ticks.

mod kernels;

use std::collections::BTreeMap;

use ticktax_model::Nanos;
use ticktax_sim::{
    Call, Device, Law, Machine, Policy, Report, Setup, Step, TaskSpec, TimerRule, run,
};

use super::{Case, millis, remark};
use crate::file::{CaseFile, Values};
use crate::judge::{Modelled, lines};
use crate::kernels::KernelCase;
use ticktax_experiment::statistics::{choices, line, mean};
use ticktax_model::case::{Line, Remark};

pub(super) const CASE: FrameRate = FrameRate;

pub(super) struct FrameRate;

/// Number of seconds simulated per row. At this length, the frame rate is accurate to ±0.01 frames
/// per second.
const LENGTH: i64 = 120;
/// Number of seconds simulated per row in fits and sweeps. At this length, the frame rate is
/// accurate to ±0.05 frames per second.
const SAMPLE: i64 = 20;
/// CPU share that a loaded server actually uses: the midpoint of the published 50 to 70 %.
const LOADED: f64 = 0.6;
/// Label of the row measured under the server's previous kernel.
const KERNEL_24: &str = "100, kernel 2.4";
/// Label of the rows about the servers in production, whose kernel ticked at 200 Hz.
const PRODUCTION: &str = "200, in production";
/// Series of the CPU time that the loop really uses.
const TRUE_CPU: &str = "cpu, true";
/// Series of the CPU time that sampling shows for the same work at random phases of the tick.
const RANDOM_PHASE: &str = "cpu, random phase";

impl Case for FrameRate {
    fn text(&self) -> &'static str {
        include_str!("../../../../cases/frame-rate-vs-hz.toml")
    }

    fn name(&self) -> &'static str {
        "frame-rate-vs-hz"
    }

    fn model(&self, file: &CaseFile, values: &Values) -> Modelled {
        model(file, values, LENGTH)
    }

    fn sample(&self, file: &CaseFile, values: &Values) -> Modelled {
        model(file, values, SAMPLE)
    }

    fn kernels(&self) -> Option<&'static dyn KernelCase> {
        Some(&kernels::Frames)
    }

    fn programs(&self, values: &Values) -> Vec<TaskSpec> {
        vec![program(values)]
    }

    fn remarks(&self, file: &CaseFile, _: &Values, modelled: &Modelled) -> Vec<Remark> {
        let list = |series: &str| {
            let each = rates(file).into_iter().filter_map(|hz| {
                let value = modelled.get(&(series.to_owned(), hz.to_string()))?;
                Some(format!("{hz}: {value:.1}"))
            });
            each.collect::<Vec<String>>().join(", ")
        };
        vec![
            remark(
                "true CPU use in the model, % by tick rate",
                format!(
                    "{}. The published saving at 200 Hz and increase at 400 Hz are consistent with \
                     accounting that misses the work, if work and phase are fitted to that",
                    list(TRUE_CPU)
                ),
            ),
            remark(
                "CPU use as sampled, same work at random phase, %",
                format!(
                    "{}: sampling is fair when the work is not in phase with the tick",
                    list(RANDOM_PHASE)
                ),
            ),
        ]
    }

    fn hold_out(&self, file: &CaseFile) -> Vec<Remark> {
        let score = splits(file);
        let list = |errors: &[(u64, f64)]| {
            let each = errors
                .iter()
                .map(|(hz, error)| format!("{error:+.2} at {hz} Hz"));
            each.collect::<Vec<String>>().join(", ")
        };
        let (model, by_length) = (&score.model, &score.by_length);
        vec![
            remark(
                "fitted to three rates and tested on the others, all 20 combinations",
                format!(
                    "the model's mean error is {:.2} frames/s. A straight line over the tick's \
                     length has {:.2}, and one over the tick rate {:.2}",
                    model.mean, by_length.mean, score.by_rate.mean
                ),
            ),
            remark(
                "fitted to 1000, 500 and 200 Hz only, error in frames/s",
                format!(
                    "the model has {}. The line over the tick's length has {}, so it is the better \
                     one here",
                    list(&model.single),
                    list(&by_length.single)
                ),
            ),
            remark(
                "not a prediction",
                "phase and work are fitted, but the aim of 27 ms and the spread of the work were \
                 chosen by looking at all six rates, and no constant of the lines was"
                    .to_owned(),
            ),
        ]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rate {
    /// Linux 2.6 with this tick rate.
    Of(u64),
    /// Linux 2.4, which ticks at 100 Hz.
    Kernel24,
}

impl Rate {
    /// Parses the label of a modelled row, which is a rate such as `1000`, [`KERNEL_24`] or
    /// [`PRODUCTION`]. Returns `None` for other maps in the source, which are not modelled.
    fn from_row(at: &str) -> Option<Self> {
        match at {
            KERNEL_24 => Some(Self::Kernel24),
            PRODUCTION => Some(Self::Of(200)),
            _ => at.parse().ok().map(Self::Of),
        }
    }
}

/// Returns the tick rates that have a published frame rate.
fn rates(file: &CaseFile) -> Vec<u64> {
    let rows = file.series("frames").map_or(&[][..], |series| &series.rows);
    rows.iter().filter_map(|row| row.at.parse().ok()).collect()
}

fn model(file: &CaseFile, values: &Values, length: i64) -> Modelled {
    let mut modelled = Modelled::new();
    let mut runs: BTreeMap<(Rate, bool), (Report, u64)> = BTreeMap::new();
    let loaded = values.with("work", LOADED * 1e3 / values.get("steps"));
    for (series, row) in file.rows() {
        let Some(rate) = Rate::from_row(&row.at) else {
            continue;
        };
        let is_loaded = series.name.starts_with("loaded");
        let values = if is_loaded { &loaded } else { values };
        if let (RANDOM_PHASE, Rate::Of(hz)) = (series.name.as_str(), rate) {
            let key = (series.name.clone(), row.at.clone());
            modelled.insert(key, unaligned(hz, values));
            continue;
        }
        let (report, hz) = runs.entry((rate, is_loaded)).or_insert_with(|| {
            let hz = match rate {
                Rate::Of(hz) => hz,
                Rate::Kernel24 => 100,
            };
            (server(rate, values, length), hz)
        });
        let (task, secs) = (report.tasks[0], length as f64);
        let value = match series.name.rsplit(": ").next() {
            Some("frames") => task.frames as f64 / secs,
            Some("cpu") => sampled(report, *hz) / secs * 100.0,
            Some("overshot") => task.overshot as f64 / secs,
            Some(TRUE_CPU) => share(task.ran, length),
            // 1 % of a CPU is 10 ms per second.
            Some("charged") => sampled(report, *hz) / secs * 1e3 / values.get("steps"),
            _ => continue,
        };
        modelled.insert((series.name.clone(), row.at.clone()), value);
    }
    modelled
}

fn program(values: &Values) -> TaskSpec {
    let program = vec![
        Step::Frame,
        Step::Every {
            period: millis(1e3 / values.get("steps")),
            work: Law::Normal(millis(values.get("work")), millis(values.get("work_sd"))),
        },
        Step::SleepRest {
            call: Call::Nanosleep,
            time: millis(values.get("aim")),
            unit: millis(1.0),
        },
    ];
    TaskSpec::new("server", program_with_an_end(program))
}

fn server(rate: Rate, values: &Values, length: i64) -> Report {
    let (hz, policy, timers) = match rate {
        Rate::Of(hz) => (hz, Policy::O1, TimerRule::Jiffies),
        Rate::Kernel24 => (100, Policy::Goodness, TimerRule::NominalJiffies),
    };
    let mut machine = Machine::new(1, hz, policy);
    machine.device = Device::Pit;
    machine.timers = timers;
    let tick = 1e3 / hz as f64;
    machine.phases = vec![millis(values.get("phase") * tick)];
    let mut setup = Setup::new(machine, Nanos::from_secs(length));
    setup.tasks.push(program(values));
    run(&setup).unwrap_or_else(|error| panic!("the case's own machine: {error}"))
}

/// Appends a 1 ns step to `program`. A loop in which all sleeps can be zero needs a step that
/// always takes time.
fn program_with_an_end(mut program: Vec<Step>) -> Vec<Step> {
    program.push(Step::Work(Law::Fixed(Nanos(1))));
    program
}

/// Returns how much CPU time tick sampling would charge, in seconds. The result is a whole number
/// of ticks.
fn sampled(report: &Report, hz: u64) -> f64 {
    let tick = Device::Pit
        .grid(hz, Nanos::ZERO, 0)
        .map_or(0.0, |grid| grid.step_f64());
    report.tasks[0].sampled as f64 * tick / 1e9
}

fn share(time: Nanos, length: i64) -> f64 {
    time.as_secs_f64() / length as f64 * 100.0
}

/// Returns the CPU share, in %, that sampling would show if the same work started at random phases
/// of the tick.
fn unaligned(hz: u64, values: &Values) -> f64 {
    let mut machine = Machine::new(1, hz, Policy::O1);
    machine.device = Device::Pit;
    machine.timers = TimerRule::HighResolution;
    let length = 20 * LENGTH;
    let mut setup = Setup::new(machine, Nanos::from_secs(length));
    let period = 1e3 / values.get("steps");
    let rest = period - values.get("work");
    let sleep = Law::Uniform(millis(rest / 2.0), millis(rest * 1.5));
    let work = Law::Normal(millis(values.get("work")), millis(values.get("work_sd")));
    let program = vec![Step::Sleep(Call::Nanosleep, sleep), Step::Work(work)];
    setup.tasks.push(TaskSpec::new("server", program));
    let report = run(&setup).unwrap_or_else(|error| panic!("the case's own machine: {error}"));
    sampled(&report, hz) / length as f64 * 100.0
}

/// Errors of frame rates that were not used for fitting.
#[derive(Clone, Debug, Default, PartialEq)]
struct Errors {
    /// Mean absolute error over all splits.
    mean: f64,
    /// Error at each tick rate, if fitted to the rows that the file fits.
    single: Vec<(u64, f64)>,
}

/// Errors of the model and of two simpler baselines, each fitted to the same rows.
#[derive(Clone, Debug, PartialEq)]
struct Score {
    /// The model.
    model: Errors,
    /// A straight line over the length of the tick.
    by_length: Errors,
    /// A straight line over the tick rate.
    by_rate: Errors,
}

/// Misfit and frame rate error by tick rate, at one point of the grid.
type Tried = BTreeMap<u64, (f64, f64)>;

/// Simulates every point of a grid over the phase and the work.
fn grid(file: &CaseFile) -> Vec<Tried> {
    let rows = file.with_rows(|row| row.at.parse::<u64>().is_ok() && row.target().is_some());
    let grid = (0..25).flat_map(|phase| (0..11).map(move |work| (phase, work)));
    let points = grid.map(|(phase, work)| {
        let values = file
            .values()
            .with("phase", f64::from(phase) / 25.0)
            .with("work", 2.9 + f64::from(work) * 0.03);
        tried(&lines(&rows, &model(&rows, &values, SAMPLE)))
    });
    points.collect()
}

/// Fits the phase and the work to every combination of three rows, using their frame rates and CPU
/// shares. Each fit then predicts the frame rates of the remaining rows. The baselines are straight
/// lines through the frame rates of the same three rows.
fn splits(file: &CaseFile) -> Score {
    let tried = grid(file);
    let best = |fitted: &[u64]| {
        let cost = |tried: &Tried| -> f64 { fitted.iter().map(|hz| tried[hz].0).sum() };
        tried.iter().min_by(|a, b| cost(a).total_cmp(&cost(b)))
    };
    Score {
        model: held_out(file, |fitted, hz| Some(best(fitted)?[&hz].1)),
        by_length: held_out(file, |fitted, hz| {
            off_the_line(file, fitted, hz, |hz| 1.0 / hz as f64)
        }),
        by_rate: held_out(file, |fitted, hz| {
            off_the_line(file, fitted, hz, |hz| hz as f64)
        }),
    }
}

/// Calls `error` for every choice of three tick rates to fit and each of the other rates. `error`
/// returns how far the frame rate is off there.
fn held_out(file: &CaseFile, error: impl Fn(&[u64], u64) -> Option<f64>) -> Errors {
    let hz = rates(file);
    let is_fit = |rate: &u64| {
        let row = file.row("cpu", &rate.to_string());
        row.is_some_and(|row| row.fit)
    };
    let known: Vec<u64> = hz.iter().copied().filter(is_fit).collect();
    let mut all = Vec::new();
    let mut single = Vec::new();
    for chosen in choices(hz.len(), 3) {
        let places = 0..hz.len();
        let (fitted, others): (Vec<usize>, Vec<usize>) =
            places.partition(|&place| chosen >> place & 1 == 1);
        let fitted: Vec<u64> = fitted.into_iter().map(|place| hz[place]).collect();
        for rate in others.into_iter().map(|place| hz[place]) {
            let Some(error) = error(&fitted, rate) else {
                continue;
            };
            all.push(error.abs());
            if fitted == known {
                single.push((rate, error));
            }
        }
    }
    Errors {
        mean: mean(&all),
        single,
    }
}

/// Returns how far the published frame rate at `hz` is from a straight line through the frame rates
/// at the rates `fitted`. `x` maps a tick rate to the horizontal axis.
fn off_the_line(file: &CaseFile, fitted: &[u64], hz: u64, x: impl Fn(u64) -> f64) -> Option<f64> {
    let row = |hz: u64| file.row("frames", &hz.to_string());
    let points: Vec<(f64, f64)> = fitted
        .iter()
        .filter_map(|&hz| Some((x(hz), row(hz)?.middle()?)))
        .collect();
    let (at_0, slope) = line(&points);
    row(hz)?.residual(at_0 + slope * x(hz))
}

fn tried(lines: &[Line]) -> Tried {
    let mut tried = Tried::new();
    for line in lines.iter().filter(|line| line.series != "overshot") {
        if let Some((hz, residual)) = line.label.parse().ok().zip(line.residual) {
            let (misfit, frames) = tried.entry(hz).or_default();
            *misfit += (residual / line.allowed.max(0.1)).powi(2);
            if line.series == "frames" {
                *frames = residual;
            }
        }
    }
    tried
}

#[cfg(test)]
mod tests {
    use super::{CASE, held_out, off_the_line, splits};
    use crate::cases::Case;

    /// Published frame rates by tick length in ms, as the lowest and highest that fit the source's
    /// words.
    const PUBLISHED: [(u64, f64, f64); 6] = [
        (1000, 33.8, 33.8),
        (800, 32.0, 33.0),
        (600, 33.0, 33.0),
        (500, 31.8, 31.8),
        (400, 32.0, 33.0),
        (200, 29.0, 29.0),
    ];

    /// Fits a line over the tick's length to three rows by solving the normal equations. Returns by
    /// how much the line misses the range at `hz`.
    fn missed(fitted: &[u64], hz: u64) -> f64 {
        let find = |hz: u64| PUBLISHED.iter().find(|row| row.0 == hz).unwrap();
        let (mut n, mut sx, mut sy, mut sxx, mut sxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &hz in fitted {
            let (_, low, high) = *find(hz);
            let (x, y) = (1000.0 / hz as f64, f64::midpoint(low, high));
            n += 1.0;
            sx += x;
            sy += y;
            sxx += x * x;
            sxy += x * y;
        }
        let slope = (n * sxy - sx * sy) / (n * sxx - sx * sx);
        let value = (sy - slope * sx) / n + slope * 1000.0 / hz as f64;
        let (_, low, high) = *find(hz);
        if value < low {
            value - low
        } else if value > high {
            value - high
        } else {
            0.0
        }
    }

    #[test]
    fn the_baseline_is_the_line_over_the_ticks_length() {
        let file = CASE.file().unwrap();
        let errors = held_out(&file, |fitted, hz| {
            off_the_line(&file, fitted, hz, |hz| 1.0 / hz as f64)
        });
        let again = held_out(&file, |fitted, hz| Some(missed(fitted, hz)));
        assert!(
            (errors.mean - again.mean).abs() < 1e-9,
            "{errors:?} {again:?}"
        );
        assert_eq!(errors.single.len(), 3);
        for (one, other) in errors.single.iter().zip(&again.single) {
            assert_eq!(one.0, other.0);
            assert!((one.1 - other.1).abs() < 1e-9, "{errors:?} {again:?}");
        }
    }

    /// The model wins on average, but not on the split that the file uses.
    #[test]
    fn the_baseline_wins_on_the_files_own_split() {
        let score = splits(&CASE.file().unwrap());
        let sum = |errors: &[(u64, f64)]| errors.iter().map(|one| one.1.abs()).sum::<f64>();
        assert!(score.model.mean < 0.7 * score.by_length.mean, "{score:?}");
        assert!(score.by_length.mean < score.by_rate.mean, "{score:?}");
        assert!(
            sum(&score.by_length.single) < sum(&score.model.single),
            "{score:?}"
        );
    }
}
