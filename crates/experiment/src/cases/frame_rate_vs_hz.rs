//! `frame-rate-vs-hz`: a loop that sleeps in ticks, and an accounting that samples at them.

mod kernels;

use std::collections::BTreeMap;

use ticktax_model::Nanos;
use ticktax_sim::{
    Call, Device, Law, Machine, Policy, Report, Setup, Step, TaskSpec, TimerRule, run,
};

use super::{Case, millis, rate, remark};
use crate::file::{CaseFile, Values};
use crate::judge::{Modelled, lines};
use crate::kernels::KernelCase;
use crate::statistics::{choices, line, mean};
use ticktax_model::case::Remark;

/// The case.
pub(super) const CASE: FrameRate = FrameRate;

pub(super) struct FrameRate;

/// Simulated time for each row, in s: long enough for the rate of frames to ±0.01.
const LENGTH: i64 = 120;

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
            let report = server(hz, values, LENGTH);
            aligned.push((hz, share(report.tasks[0].ran, LENGTH)));
            random.push((hz, unaligned(hz, values)));
        }
        let list = |shares: &[(u64, f64)]| {
            let each: Vec<String> = shares
                .iter()
                .map(|(hz, it)| format!("{hz}: {it:.1}"))
                .collect();
            each.join(", ")
        };
        vec![
            remark(
                "true CPU use, % by tick rate",
                format!(
                    "{}: what a lower rate seems to save is not saved, but not seen",
                    list(&aligned)
                ),
            ),
            remark(
                "the same work at random phase, % as sampled",
                format!(
                    "{}: without the tick's own phase sampling is fair",
                    list(&random)
                ),
            ),
        ]
    }

    fn hold_out(&self, file: &CaseFile) -> Vec<Remark> {
        let score = splits(file);
        vec![
            remark(
                "hold-out: fitted to three rates, predicting the others, all 20 ways",
                format!(
                    "mean error {:.2} frames/s; a straight line in the rate of the tick: {:.2}",
                    score.model, score.line
                ),
            ),
            remark(
                "fitted to 1000, 500 and 200 Hz alone",
                format!("off by {}", score.single.join(", ")),
            ),
        ]
    }
}

fn rates(file: &CaseFile) -> Vec<u64> {
    let rows = file.series("frames").map_or(&[][..], |series| &series.rows);
    rows.iter().filter_map(|row| rate(&row.at)).collect()
}

fn model(file: &CaseFile, values: &Values, length: i64) -> Modelled {
    let mut modelled = Modelled::new();
    for hz in rates(file) {
        let report = server(hz, values, length);
        let task = report.tasks[0];
        let secs = length as f64;
        let mut tell =
            |series: &str, value| modelled.insert((series.to_owned(), hz.to_string()), value);
        tell("frames", task.frames as f64 / secs);
        tell("cpu", sampled(&report, hz) / secs * 100.0);
        tell("overshot", task.overshot as f64 / secs);
    }
    modelled
}

/// The server: a loop that aims at 27 ms, with a fixed step of the game whenever one is due.
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

/// The server under a tick rate of its own machine.
fn server(hz: u64, values: &Values, length: i64) -> Report {
    let mut machine = Machine::new(1, hz, Policy::O1);
    machine.device = Device::Pit;
    machine.timers = TimerRule::Jiffies;
    let tick = 1e3 / hz as f64;
    machine.phases = vec![millis(values.get("phase") * tick)];
    let mut setup = Setup::new(machine, Nanos::from_secs(length));
    setup.tasks.push(program(values));
    run(&setup).unwrap_or_else(|error| panic!("the case's own machine: {error}"))
}

/// A loop whose sleep may be nothing needs a step that always takes time.
fn program_with_an_end(mut program: Vec<Step>) -> Vec<Step> {
    program.push(Step::Work(Law::Fixed(Nanos(1))));
    program
}

/// CPU time as the kernel's accounting has it: whole ticks, in s.
fn sampled(report: &Report, hz: u64) -> f64 {
    let tick = Device::Pit
        .grid(hz, Nanos::ZERO, 0)
        .map_or(0.0, |grid| grid.step_f64());
    report.tasks[0].sampled as f64 * tick / 1e9
}

fn share(time: Nanos, length: i64) -> f64 {
    time.as_secs_f64() / length as f64 * 100.0
}

/// The share that sampling sees of the same work when it begins at any time.
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

/// Mean absolute errors on rows that were left out.
#[derive(Clone, Debug, PartialEq)]
struct Score {
    /// Of the model.
    model: f64,
    /// Of a straight line.
    line: f64,
    /// Each error where the rows that calibrate the CPU's share are those that are known.
    single: Vec<String>,
}

/// Fits phase and work to the frame rates and shares of three rows and predicts the frame rates of
/// the others, for each choice of three.
fn splits(file: &CaseFile) -> Score {
    let hz = rates(file);
    let published: Vec<f64> = hz.iter().map(|hz| row(file, "frames", *hz)).collect();
    let mut tried: Vec<(BTreeMap<u64, f64>, BTreeMap<u64, f64>)> = Vec::new();
    for phase in 0..25 {
        for work in 0..11 {
            let values = file
                .values()
                .with("phase", f64::from(phase) / 25.0)
                .with("work", 2.9 + f64::from(work) * 0.03);
            let all = lines(file, &model(file, &values, 20));
            let of = |series: &str, f: fn(&ticktax_model::case::Line) -> f64| {
                let those = all.iter().filter(|line| line.series == series);
                those
                    .filter_map(|line| Some((rate(&line.at)?, f(line))))
                    .collect()
            };
            let misfits = all.iter().filter(|line| line.series != "overshot");
            let mut misfit: BTreeMap<u64, f64> = BTreeMap::new();
            for line in misfits {
                if let Some(hz) = rate(&line.at) {
                    *misfit.entry(hz).or_default() += (line.residual / line.allowed).powi(2);
                }
            }
            tried.push((of("frames", |line| line.modelled), misfit));
        }
    }
    let known: Vec<u64> = file
        .series("cpu")
        .map_or(&[][..], |series| &series.rows)
        .iter()
        .filter(|row| row.fit)
        .filter_map(|row| rate(&row.at))
        .collect();
    let mut single = Vec::new();
    let (mut model, mut straight) = (Vec::new(), Vec::new());
    for chosen in choices(hz.len(), 3) {
        let is_in = |place: usize| chosen >> place & 1 == 1;
        let best = tried.iter().min_by(|a, b| {
            let cost = |it: &BTreeMap<u64, f64>| -> f64 {
                let those = (0..hz.len()).filter(|&place| is_in(place));
                those.map(|place| it[&hz[place]]).sum()
            };
            cost(&a.1).total_cmp(&cost(&b.1))
        });
        let points: Vec<(f64, f64)> = (0..hz.len())
            .filter(|&place| is_in(place))
            .map(|place| (hz[place] as f64, published[place]))
            .collect();
        let (at_0, slope) = line(&points);
        for place in (0..hz.len()).filter(|&place| !is_in(place)) {
            if let Some((frames, _)) = best {
                let error = frames[&hz[place]] - published[place];
                model.push(error.abs());
                if known
                    .iter()
                    .all(|rate| (0..hz.len()).any(|at| is_in(at) && hz[at] == *rate))
                {
                    single.push(format!("{error:+.2} at {} Hz", hz[place]));
                }
            }
            straight.push((at_0 + slope * hz[place] as f64 - published[place]).abs());
        }
    }
    Score {
        model: mean(&model),
        line: mean(&straight),
        single,
    }
}

fn row(file: &CaseFile, series: &str, hz: u64) -> f64 {
    let rows = file.series(series).map_or(&[][..], |series| &series.rows);
    let row = rows.iter().find(|row| rate(&row.at) == Some(hz));
    row.map_or(f64::NAN, crate::file::Published::middle)
}
