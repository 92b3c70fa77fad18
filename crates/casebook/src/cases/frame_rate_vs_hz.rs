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

    fn remarks(&self, file: &CaseFile, values: &Values, _: &Modelled) -> Vec<Remark> {
        let mut aligned = Vec::new();
        let mut random = Vec::new();
        for hz in rates(file) {
            let report = server(Rate::Of(hz), values, LENGTH);
            aligned.push((hz, share(report.tasks[0].ran, LENGTH)));
            random.push((hz, unaligned(hz, values)));
        }
        let list = |shares: &[(u64, f64)]| {
            let each: Vec<String> = shares
                .iter()
                .map(|(hz, share)| format!("{hz}: {share:.1}"))
                .collect();
            each.join(", ")
        };
        vec![
            remark(
                "true CPU use in the model, % by tick rate",
                format!(
                    "{}. The published saving at 200 Hz and increase at 400 Hz are consistent with \
                     accounting that misses the work, if work, phase and steps are fitted to that",
                    list(&aligned)
                ),
            ),
            remark(
                "CPU use as sampled, same work at random phase, %",
                format!(
                    "{}: sampling is fair when the work is not in phase with the tick",
                    list(&random)
                ),
            ),
        ]
    }

    fn hold_out(&self, file: &CaseFile) -> Vec<Remark> {
        let score = splits(file);
        vec![
            remark(
                "model fitted to three rates and tested on the others, all 20 combinations",
                format!(
                    "mean error {:.2} frames/s; {:.2} for a straight line over the tick rate",
                    score.model, score.line
                ),
            ),
            remark(
                "model fitted to 1000, 500 and 200 Hz only, error in frames/s",
                score.single.join(", "),
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
    /// Parses the label of a modelled row, which is a rate such as `1000`, or [`KERNEL_24`].
    /// Returns `None` for other servers in the source, which are not modelled.
    fn from_row(at: &str) -> Option<Self> {
        if at == KERNEL_24 {
            return Some(Self::Kernel24);
        }
        at.parse().ok().map(Self::Of)
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

/// Mean absolute errors of the frame rate on rows that were not used for fitting.
#[derive(Clone, Debug, PartialEq)]
struct Score {
    /// Error of the model.
    model: f64,
    /// Error of a straight line fitted to the same rows as the model.
    line: f64,
    /// Error, on each row, of the model when fitted to the file's calibration rows.
    single: Vec<String>,
}

/// Misfit and frame rate error by tick rate, at one point of the grid.
type Tried = BTreeMap<u64, (f64, f64)>;

/// Fits the phase and the work to every combination of three rows, using their frame rates and CPU
/// shares. Each fit then predicts the frame rates of the remaining rows.
fn splits(file: &CaseFile) -> Score {
    let hz = rates(file);
    let rows = file.with_rows(|row| row.at.parse::<u64>().is_ok() && row.target().is_some());
    let grid = (0..25).flat_map(|phase| (0..11).map(move |work| (phase, work)));
    let tried: Vec<Tried> = grid
        .map(|(phase, work)| {
            let values = file
                .values()
                .with("phase", f64::from(phase) / 25.0)
                .with("work", 2.9 + f64::from(work) * 0.03);
            tried(&lines(&rows, &model(&rows, &values, SAMPLE)))
        })
        .collect();
    let is_fit = |rate: &u64| {
        let row = file.row("cpu", &rate.to_string());
        row.is_some_and(|row| row.fit)
    };
    let known: Vec<u64> = hz.iter().copied().filter(is_fit).collect();
    let mut single = Vec::new();
    let (mut model, mut straight) = (Vec::new(), Vec::new());
    for chosen in choices(hz.len(), 3) {
        let (is_in, is_out): (Vec<usize>, Vec<usize>) =
            (0..hz.len()).partition(|&place| chosen >> place & 1 == 1);
        let best = tried.iter().min_by(|a, b| {
            let cost = |tried: &Tried| -> f64 { is_in.iter().map(|&at| tried[&hz[at]].0).sum() };
            cost(a).total_cmp(&cost(b))
        });
        let is_known = is_in.iter().map(|&at| hz[at]).eq(known.iter().copied());
        let points = is_in.iter().filter_map(|&at| {
            let row = file.row("frames", &hz[at].to_string())?;
            Some((hz[at] as f64, row.middle()?))
        });
        let (at_0, slope) = line(&points.collect::<Vec<_>>());
        for rate in is_out.iter().map(|&at| hz[at]) {
            if let Some(error) = best.map(|errors| errors[&rate].1) {
                model.push(error.abs());
                if is_known {
                    single.push(format!("{error:+.2} at {rate} Hz"));
                }
            }
            let row = file.row("frames", &rate.to_string());
            let error = row.and_then(|row| row.residual(at_0 + slope * rate as f64));
            straight.extend(error.map(f64::abs));
        }
    }
    Score {
        model: mean(&model),
        line: mean(&straight),
        single,
    }
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
