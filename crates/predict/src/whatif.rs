//! Predicts the effect of other settings by running the work of a recording or a scenario in the
//! model.
//!
//! Each setting is simulated several times. For a recording, each run resamples the work in blocks,
//! so that correlated work stays together. For a scenario, each run uses a different seed. The
//! interval of a figure depends only on the order of its values in these runs. For any
//! distribution, the value of another run lies between the k-th smallest and the k-th largest of n
//! values with the probability (n + 1 - 2k)/(n + 1).

mod calibrate;
mod draw;
mod judge;
mod load;
mod machine;
mod words;

use ticktax_model::Nanos;
use ticktax_model::comparison::{
    Arm, ArmEffect, Comparison, Contrast, Experiment, Figure, Measure, Origin, PredictionRecord,
    Setting, tabulate,
};
use ticktax_model::pace::SleepMethod;
use ticktax_sim::{Setup, SetupError, Step, TaskId};

use crate::axes::Grid;
use ticktax_experiment::statistics::median;
use ticktax_experiment::vary::{ArmError, Loops, MOST_ARMS, Pacing, Vary, VaryError, loops};

pub use draw::replicate;
pub use judge::rows;
pub use load::{Load, LoadError, Loaded, load};
pub use machine::machine;

/// Probability that an interval contains the value of another run.
pub const COVERAGE: f64 = 0.95;

/// Largest accepted error of the model, as a share of the measured frame rate.
pub const CONTROL: f64 = 0.03;

/// Number of runs. With this many, the value of another run lies between the minimum and maximum
/// with probability [`COVERAGE`].
pub const RUNS: u32 = 39;

/// Why a prediction failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhatIfError {
    /// A parameter or its values are invalid.
    #[error(transparent)]
    Vary(#[from] VaryError),
    /// A combination of settings is invalid.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// The user asked for a different rate, rule or sleep method, but the program has no frames.
    #[error("cannot change the rate, rule or sleep: {0}")]
    Pacing(&'static str),
    /// The work does not result in a valid setup of the simulator.
    #[error("cannot simulate the work: {0}")]
    Setup(#[from] SetupError),
}

/// Parameters of the recorded loop that can be varied. In the list of arms, the first one changes
/// slowest.
const LOOP: [&str; 3] = ["rate", "rule", "sleep"];

/// A prediction to compute: what to vary, and how many runs to simulate.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Parameters to vary, in all combinations. They belong to the recorded loop, the machine, or
    /// its load.
    pub vary: Vec<Vary>,
    /// Number of runs per setting (at least 1).
    pub runs: u32,
    /// Seed of the first run. Each following run uses the next one.
    pub seed: u64,
    /// Length of each run. `None` means the length of the recording or scenario.
    pub length: Option<Nanos>,
    /// Whether to predict other settings even if the model does not reproduce the file's own frame
    /// rate within [`CONTROL`].
    pub force: bool,
}

/// Result of a plan.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The document that contains all arms.
    pub comparison: Comparison,
    /// The first run's setup with the last setting, and the task that is observed in it.
    pub last: (Setup, Option<TaskId>),
}

/// The arms of the recorded loop and those of the machine. An arm of the prediction combines one of
/// each.
struct Grids {
    loops: Loops,
    machine: Grid,
}

/// An arm, by its numbers in both grids. `None` means that the loop or the machine is unchanged.
type ArmNumbers = (Option<usize>, Option<usize>);

impl Grids {
    /// Returns how an arm changes the loop.
    fn pacing(&self, (number, _): &ArmNumbers) -> Result<Pacing, ArmError> {
        number.map_or_else(|| Ok(Pacing::default()), |number| self.loops.arm(number))
    }

    /// Validates all machines, then lists the arms. The first arm changes nothing.
    fn arms(&self) -> Result<Vec<ArmNumbers>, ArmError> {
        let machine = &self.machine;
        for number in 0..machine.len() {
            machine.arm(number)?;
        }
        let mut arms = vec![(None, None)];
        if machine.is_empty() && self.loops.is_empty() {
            return Ok(arms);
        }
        let paced: Vec<Option<usize>> = if self.loops.is_empty() {
            vec![None]
        } else {
            (0..self.loops.len()).map(Some).collect()
        };
        for paced in paced {
            // Skip an arm that changes nothing, because the first arm is the same.
            let differs = |number: &usize| {
                paced.is_some() || machine.arm(*number).as_ref() != Ok(machine.base())
            };
            let numbers = (0..machine.len()).filter(differs);
            arms.extend(numbers.map(|number| (paced, Some(number))));
        }
        Ok(arms)
    }

    /// Returns what an arm changes.
    fn settings(&self, (paced, machine): &ArmNumbers) -> Vec<Setting> {
        let mut settings = paced.map_or_else(Vec::new, |number| self.loops.settings(number));
        settings.extend(machine.map_or_else(Vec::new, |number| self.machine.settings(number)));
        settings
    }
}

impl Plan {
    /// Predicts the figures for every setting. The file's own setting comes first and serves as a
    /// control: unless the model reproduces its frame rate, no other setting is predicted.
    /// `progress` is called with the number of finished runs and the total.
    ///
    /// # Errors
    /// Returns an error if a parameter, a combination of settings or the work is invalid. Where
    /// possible, errors are detected before the first run.
    pub fn predict(
        &self,
        loaded: Loaded,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Prediction, WhatIfError> {
        let typed = self.vary.iter().cloned();
        let (paced, machine): (Vec<Vary>, Vec<Vary>) =
            typed.partition(|vary| LOOP.contains(&vary.name()));
        let loops = loops(&paced, &LOOP)?;
        if !loops.is_empty() && !loaded.is_paced {
            return Err(WhatIfError::Pacing(if loaded.machine.is_some() {
                "the recording has no periodic program"
            } else {
                "this is possible only for recordings; in a scenario, vary the task's own steps \
                 (task.NAME.…)"
            }));
        }
        let work = Work {
            plan: self,
            length: self.length.unwrap_or(loaded.length),
            loaded: &loaded,
        };
        let (base, _) = work.base(0, &Pacing::default());
        let grids = Grids {
            loops,
            machine: Grid::new(&machine, base, MOST_ARMS)?,
        };
        let arms = grids.arms()?;
        let runs = u64::from(self.runs.max(1));
        let all = arms.len() as u64 * runs;
        let mut predicted: Vec<(Arm, Vec<(Measure, Figure)>)> = Vec::with_capacity(arms.len());
        let mut control = None;
        let mut last = None;
        for (number, arm) in (0..).zip(&arms) {
            let mut report_done = |done| progress(number * runs + done, all);
            let (runs, first) = work.runs(arm, &grids, &mut report_done)?;
            last = first.or(last);
            let figures = figures(&runs);
            if let (0, Some((_, measured))) = (number, &loaded.row) {
                control = deviation(measured, &figures);
            }
            predicted.push((Arm::new(Origin::Predicted, grids.settings(arm)), figures));
            let has_failed = control.is_some_and(|control| control.verdict.differs());
            if has_failed && !self.force {
                break;
            }
        }
        let length = work.length;
        let last = last.unwrap_or_else(|| work.base(0, &Pacing::default()));
        Ok(Prediction {
            comparison: self.comparison(loaded, length, control, predicted),
            last,
        })
    }

    fn comparison(
        &self,
        loaded: Loaded,
        length: Nanos,
        control: Option<Contrast>,
        predicted: Vec<(Arm, Vec<(Measure, Figure)>)>,
    ) -> Comparison {
        let record = PredictionRecord {
            load: loaded.file,
            recorded: loaded.machine.is_some(),
            program: loaded.program,
            length,
            runs: self.runs,
            coverage: coverage(self.runs),
            seed: self.seed,
            taken: loaded.taken,
            assumed: loaded.assumed,
            left_out: words::LEFT_OUT.map(str::to_owned).to_vec(),
        };
        let measured = loaded.row.map(|(arm, figures)| {
            let figures = figures.into_iter();
            let figures = figures.map(|(measure, value)| (measure, Figure::from(value)));
            (arm, figures.collect())
        });
        let (metrics, arms) = tabulate(measured.into_iter().chain(predicted).collect());
        let mut comparison = Comparison {
            machine: loaded.machine,
            arms,
            metrics,
            ..Comparison::new(
                env!("CARGO_PKG_VERSION"),
                Experiment::Prediction(Box::new(record)),
            )
        };
        let metric = comparison.metric(Measure::Fps.id());
        let control = control.zip(metric).map(|(contrast, metric)| ArmEffect {
            metric,
            arm: 1,
            contrast,
            tolerance: Some(CONTROL),
            ..ArmEffect::default()
        });
        comparison.effects.extend(control);
        comparison
    }
}

/// Returns how far the predicted frame rate is from the measured one, as a share. Returns `None` if
/// either is unknown.
fn deviation(measured: &[(Measure, f64)], predicted: &[(Measure, Figure)]) -> Option<Contrast> {
    let (_, measured) = measured
        .iter()
        .find(|(measure, _)| *measure == Measure::Fps)?;
    let (_, predicted) = predicted
        .iter()
        .find(|(measure, _)| *measure == Measure::Fps)?;
    let deviation = predicted.value? / measured.max(f64::MIN_POSITIVE) - 1.0;
    Some(Contrast::tolerance(deviation, CONTROL))
}

struct Work<'a> {
    plan: &'a Plan,
    loaded: &'a Loaded,
    length: Nanos,
}

impl Work<'_> {
    /// Returns the setup for run `number` with this pacing, before the machine is changed. A
    /// recording's work is resampled. A scenario's work is used as it stands.
    fn base(&self, number: u32, pacing: &Pacing) -> Drawn {
        let seed = self.plan.seed.wrapping_add(u64::from(number));
        match &self.loaded.load {
            Load::Recorded(work, machine) => replicate(work, machine, pacing, self.length, seed),
            Load::Scenario(setup, task) => {
                let mut setup = (**setup).clone();
                setup.seed = seed;
                setup.length = self.length;
                (setup, *task)
            }
        }
    }

    /// Simulates a setting `plan.runs` times. Returns each run's figures, and the setup of the
    /// first run. `report_done` is called with the number of finished runs.
    fn runs(
        &self,
        arm: &ArmNumbers,
        grids: &Grids,
        report_done: &mut dyn FnMut(u64),
    ) -> Result<(Vec<Values>, Option<Drawn>), WhatIfError> {
        let mut first = None;
        let mut runs = Vec::new();
        for number in 0..self.plan.runs.max(1) {
            let (setup, task) = self.setup(number, arm, grids)?;
            runs.push(judge::judge(judge::SimulatedRun {
                setup: &setup,
                task,
                asked_for: self.loaded.asked_for,
            })?);
            first.get_or_insert((setup, task));
            report_done(u64::from(number) + 1);
        }
        Ok((runs, first))
    }

    /// Returns the setup of run `number` with a setting.
    fn setup(&self, number: u32, arm: &ArmNumbers, grids: &Grids) -> Result<Drawn, WhatIfError> {
        let pacing = grids.pacing(arm)?;
        let (base, task) = self.base(number, &pacing);
        let mut setup = match arm.1 {
            Some(number) => grids.machine.arm_over(base, number)?,
            None => base,
        };
        if let (Some(SleepMethod::Hybrid), Some(task)) = (pacing.sleep, task) {
            // Calibrate separately for each setting, because how late sleeps end depends on the
            // setting.
            calibrate::calibrate(&mut setup, task)?;
        }
        Ok((setup, task))
    }
}

/// One simulated run's figures.
type Values = Vec<(Measure, f64)>;

/// A setup, and the task to observe in it.
type Drawn = (Setup, Option<TaskId>);

/// Returns the task to observe in a scenario: the one called `name` if a name is given, otherwise
/// the first that has frames. Returns `None` if there is no such task.
pub fn subject(setup: &Setup, name: Option<&str>) -> Option<TaskId> {
    let index = setup.tasks.iter().position(|task| match name {
        Some(name) => task.name == name,
        None => task.program.contains(&Step::Frame),
    });
    index
        .and_then(|index| u32::try_from(index).ok())
        .map(TaskId)
}

/// Returns the median and the interval of each figure over several runs.
fn figures(runs: &[Values]) -> Vec<(Measure, Figure)> {
    let figure = |&measure: &Measure| {
        let all = runs.iter().flatten();
        let mut values: Vec<f64> = all
            .filter(|(of, _)| *of == measure)
            .map(|(_, value)| *value)
            .collect();
        // Omit a figure that some runs lack, because its median would be biased.
        if values.len() < runs.len() || values.is_empty() {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let cut = cut(values.len());
        let interval = (values[cut], values[values.len() - 1 - cut]);
        let figure = Figure {
            interval: (values.len() > 1).then_some(interval),
            ..Figure::from(median(&values))
        };
        Some((measure, figure))
    };
    Measure::ALL.iter().filter_map(figure).collect()
}

/// Returns how many values to leave out of the interval at each end. This is the highest number
/// that still gives a coverage of at least [`COVERAGE`].
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

/// Returns the probability that another run's value lies within the interval over `runs` runs.
pub fn coverage(runs: u32) -> f64 {
    let n = f64::from(runs.max(1));
    let kept = 1.0 + cut(runs as usize) as f64;
    ((n + 1.0 - 2.0 * kept) / (n + 1.0)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::{RUNS, coverage, cut};

    #[test]
    fn thirty_nine_runs_cover_the_next_with_95_percent() {
        assert!((coverage(RUNS) - 0.95).abs() < 1e-12);
        assert_eq!((cut(39), cut(78), cut(79), cut(1)), (0, 0, 1, 0));
        assert!((coverage(20) - 19.0 / 21.0).abs() < 1e-12);
        assert!((coverage(79) - 0.95).abs() < 1e-12);
        assert!(coverage(1).abs() < 1e-12);
    }
}
