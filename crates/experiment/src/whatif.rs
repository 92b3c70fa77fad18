//! What if: the work of a recording, or a scenario, run by the model under other settings.
//!
//! Each setting is run a number of times. Of a recording, the work is drawn again for each run, in
//! blocks, so that what comes together stays together; of a scenario, the seed is another. The
//! interval of a figure is from the order of these runs alone: one more run lies between the k-th
//! from below and the k-th from above of n with probability (n + 1 - 2k)/(n + 1), whatever its
//! distribution.

mod calibrate;
mod draw;
mod machine;

use ticktax_model::Nanos;
use ticktax_model::pace::{PaceRule, SleepMethod};
use ticktax_model::prediction::{Figure, Measure, Origin, PredictionRow};
use ticktax_model::workload::Workload;
use ticktax_sim::{Machine, Setup, SetupError, Step, TaskId};

use crate::axes::{Axis, AxisError, Grid, PointError};
use crate::vary::Vary;

pub use draw::replicate;
pub use machine::{in_words, machine};

/// The coverage that an interval is to have.
pub const COVERAGE: f64 = 0.95;

/// Runs of which the least and the most cover one more with [`COVERAGE`].
pub const RUNS: u32 = 39;

/// Why nothing is predicted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhatIfError {
    /// An axis makes no sense.
    #[error(transparent)]
    Axis(#[from] AxisError),
    /// The settings make no sense together.
    #[error(transparent)]
    Point(#[from] PointError),
    /// The work makes no machine.
    #[error("the work cannot be simulated: {0}")]
    Setup(#[from] SetupError),
}

/// What the work is taken from.
#[derive(Clone, Debug)]
pub enum Load {
    /// A recording: its work, and the machine as it was set.
    Recorded(Box<Workload>, Box<Machine>),
    /// A scenario, and the task that is asked about.
    Scenario(Box<Setup>, Option<TaskId>),
}

/// How the paced program of a recording waits, where that is to be another way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pacing {
    /// Frames a second.
    pub rate: Option<f64>,
    /// When frames are due.
    pub rule: Option<PaceRule>,
    /// The call: what it counts in and whether it spins is all that is modelled of it.
    pub sleep: Option<SleepMethod>,
}

impl Pacing {
    /// Its settings as words.
    fn words(&self) -> Vec<String> {
        let rate = self.rate.map(|rate| format!("rate={rate}"));
        let rule = self.rule.map(|rule| format!("rule={rule}"));
        let sleep = self.sleep.map(|sleep| format!("sleep={sleep}"));
        [rate, rule, sleep].into_iter().flatten().collect()
    }
}

/// What is to be predicted.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The work.
    pub load: Load,
    /// What of the machine and its load to vary; all combinations are run.
    pub vary: Vec<Vary>,
    /// Ways of pacing; each is combined with all of these.
    pub pacings: Vec<Pacing>,
    /// How often each is run, 1 at least.
    pub runs: u32,
    /// The seed of the first run; the next has the next.
    pub seed: u64,
    /// How long a run is.
    pub length: Nanos,
}

/// A run that is to be judged.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What is run.
    pub setup: &'a Setup,
    /// The task that is asked about.
    pub task: Option<TaskId>,
    /// The period of its frames, where it has one.
    pub period: Option<Nanos>,
    /// Which setting, from 0 on, and which run of it.
    pub place: (usize, u32),
}

/// Runs the model and tells what it gave.
pub type Judge<'a> = &'a mut dyn FnMut(&Run<'_>) -> Result<Vec<Figure>, SetupError>;

impl Plan {
    /// The axes, read for this machine.
    fn axes(&self, base: &Setup) -> Result<Vec<Axis>, AxisError> {
        self.vary.iter().map(|vary| Axis::new(vary, base)).collect()
    }

    /// The base of run `number` with this pacing: as recorded, or as written.
    fn base(&self, number: u32, pacing: &Pacing) -> (Setup, Option<TaskId>) {
        let seed = self.seed.wrapping_add(u64::from(number));
        match &self.load {
            Load::Recorded(work, machine) => replicate(work, machine, pacing, self.length, seed),
            Load::Scenario(setup, task) => {
                let mut setup = (**setup).clone();
                setup.seed = seed;
                setup.length = self.length;
                (setup, *task)
            }
        }
    }

    /// Predicts each setting: first that of the file itself, then all others. `progress` is told
    /// how many runs of how many are done.
    ///
    /// # Errors
    /// Where an axis, a combination of settings or the work makes no sense, before anything is run
    /// as far as that can be known.
    pub fn predict(
        &self,
        judge: Judge<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<PredictionRow>, WhatIfError> {
        let none = [Pacing::default()];
        let pacings = if self.pacings.is_empty() {
            &none[..]
        } else {
            &self.pacings
        };
        let (base, _) = self.base(0, &none[0]);
        let axes = self.axes(&base)?;
        let grid = Grid::new(base, axes.clone())?;
        // All points are tried before any is run.
        for point in 0..grid.len() {
            grid.setup(point)?;
        }
        let mut settings: Vec<(Pacing, Option<usize>)> = vec![(none[0], None)];
        if !(axes.is_empty() && self.pacings.is_empty()) {
            for pacing in pacings {
                // What changes nothing is there already.
                let differs = |point: &usize| {
                    *pacing != none[0] || grid.setup(*point).as_ref() != Ok(grid.base())
                };
                let points = (0..grid.len()).filter(differs);
                settings.extend(points.map(|point| (*pacing, Some(point))));
            }
        }
        let all = settings.len() as u64 * u64::from(self.runs);
        let mut done = 0;
        let mut rows = Vec::with_capacity(settings.len());
        for (place, (pacing, point)) in settings.iter().enumerate() {
            let mut runs: Vec<Vec<Figure>> = Vec::new();
            for number in 0..self.runs.max(1) {
                let (base, task) = self.base(number, pacing);
                let mut setup = match point {
                    Some(point) => Grid::new(base, axes.clone())?.setup(*point)?,
                    None => base,
                };
                if let (Some(SleepMethod::Hybrid), Some(task)) = (pacing.sleep, task) {
                    // Here rather than before: how late its sleeps end is the setting's doing.
                    calibrate::calibrate(&mut setup, task)?;
                }
                runs.push(judge(&Run {
                    setup: &setup,
                    task,
                    period: task.and_then(|task| period(&setup, task)),
                    place: (place, number),
                })?);
                done += 1;
                progress(done, all);
            }
            let mut words = pacing.words();
            if let Some(point) = point {
                let values = grid.axes().iter().zip(grid.values(*point));
                words.extend(values.map(|(axis, value)| format!("{}={value}", axis.name())));
            }
            rows.push(PredictionRow {
                origin: Origin::Predicted,
                settings: words,
                figures: figures(&runs),
            });
        }
        Ok(rows)
    }
}

/// The time from frame to frame that a task aims at.
fn period(setup: &Setup, task: TaskId) -> Option<Nanos> {
    let mut steps = setup.tasks.get(task.index())?.program.iter();
    steps.find_map(|step| match step {
        Step::Pace { period, .. } | Step::SleepUntil(_, period) => Some(*period),
        Step::SleepRest { time, .. } => Some(*time),
        _ => None,
    })
}

/// The task of a scenario that is asked about: the one of this name, or the first that has frames.
pub fn subject(setup: &Setup, name: Option<&str>) -> Option<TaskId> {
    let place = setup.tasks.iter().position(|task| match name {
        Some(name) => task.name == name,
        None => task.program.contains(&Step::Frame),
    });
    place
        .and_then(|place| u32::try_from(place).ok())
        .map(TaskId)
}

/// The medians and intervals of several runs.
fn figures(runs: &[Vec<Figure>]) -> Vec<Figure> {
    Measure::ALL
        .into_iter()
        .filter_map(|measure| {
            let mut values: Vec<f64> = runs
                .iter()
                .flatten()
                .filter(|figure| figure.measure == measure)
                .map(|figure| figure.value)
                .collect();
            // What only some runs can tell would be told of those alone.
            if values.len() < runs.len() || values.is_empty() {
                return None;
            }
            values.sort_by(f64::total_cmp);
            let cut = cut(values.len());
            let interval = (values[cut], values[values.len() - 1 - cut]);
            let middle = values.len() / 2;
            let value = if values.len().is_multiple_of(2) {
                f64::midpoint(values[middle - 1], values[middle])
            } else {
                values[middle]
            };
            Some(Figure {
                measure,
                value,
                interval: (values.len() > 1).then_some(interval),
            })
        })
        .collect()
}

/// How many runs at each end an interval leaves out: as many as [`COVERAGE`] allows.
fn cut(runs: usize) -> usize {
    let n = runs as f64;
    let max = ((n + 1.0) * (1.0 - COVERAGE) / 2.0 + 1e-9).floor();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count"
    )]
    let max = max as usize;
    max.max(1) - 1
}

/// The probability with which one more run lies within an interval from so many.
pub fn coverage(runs: u32) -> f64 {
    let n = f64::from(runs.max(1));
    let kept = 1.0 + cut(runs as usize) as f64;
    ((n + 1.0 - 2.0 * kept) / (n + 1.0)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::{RUNS, coverage, cut};

    #[test]
    fn thirty_nine_runs_cover_the_next_with_95_of_100() {
        assert!((coverage(RUNS) - 0.95).abs() < 1e-12);
        assert_eq!((cut(39), cut(78), cut(79), cut(1)), (0, 0, 1, 0));
        assert!((coverage(20) - 19.0 / 21.0).abs() < 1e-12);
        assert!((coverage(79) - 0.95).abs() < 1e-12);
        assert!(coverage(1).abs() < 1e-12);
    }
}
