//! Predicts the effect of other settings by running a recording's work, or a scenario, in the
//! model.
//!
//! Each setting is simulated several times. For a recording, each run resamples the work in blocks,
//! so that correlated work stays together. For a scenario, each run uses a different seed. A
//! figure's interval depends only on the order of these runs. For any distribution, another run
//! lies between the k-th smallest and the k-th largest of n runs with probability (n + 1 - 2k)/(n +
//! 1).

mod calibrate;
mod draw;
mod judge;
mod load;
mod machine;
mod words;

use ticktax_model::Nanos;
use ticktax_model::pace::{PaceRule, SleepMethod};
use ticktax_model::prediction::{
    Control, Figure, Measure, Origin, PredictionRow, PredictionStatement,
};
use ticktax_sim::{Setup, SetupError, Step, TaskId};

use crate::axes::{Axis, AxisError, Grid, PointError};
use crate::vary::Vary;

pub use draw::replicate;
pub use judge::rows;
pub use load::{Load, LoadError, Loaded, load};
pub use machine::machine;

/// Target coverage of the intervals.
pub const COVERAGE: f64 = 0.95;

/// Number of runs whose minimum and maximum enclose another run with probability [`COVERAGE`].
pub const RUNS: u32 = 39;

/// Why a prediction failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhatIfError {
    /// An axis is invalid.
    #[error(transparent)]
    Axis(#[from] AxisError),
    /// A combination of settings is invalid.
    #[error(transparent)]
    Point(#[from] PointError),
    /// The user asked for a different pacing, but the program has no frames.
    #[error("cannot change the rate, rule or sleep: {0}")]
    Pacing(&'static str),
    /// The work does not form a valid machine.
    #[error("cannot simulate the work: {0}")]
    Setup(#[from] SetupError),
}

/// Changes to a recorded program's pacing. `None` keeps the recorded value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pacing {
    /// Frames per second.
    pub rate: Option<f64>,
    /// Rule for when frames are due.
    pub rule: Option<PaceRule>,
    /// Sleep method. Only its resolution and whether it spins affect the model.
    pub sleep: Option<SleepMethod>,
}

impl Pacing {
    /// All combinations of the given values. If a list is empty, the recorded value is kept.
    /// Returns nothing if all lists are empty.
    pub fn combinations(rates: &[f64], rules: &[PaceRule], sleeps: &[SleepMethod]) -> Vec<Self> {
        fn or_none<T: Copy>(list: &[T]) -> Vec<Option<T>> {
            match list {
                [] => vec![None],
                list => list.iter().copied().map(Some).collect(),
            }
        }
        let mut all = Vec::new();
        for rate in or_none(rates) {
            for rule in or_none(rules) {
                for sleep in or_none(sleeps) {
                    all.push(Self { rate, rule, sleep });
                }
            }
        }
        all.retain(|pacing| *pacing != Self::default());
        all
    }

    /// The changes in the form `NAME=VALUE`.
    fn words(&self) -> Vec<String> {
        let rate = self.rate.map(|rate| format!("rate={rate}"));
        let rule = self.rule.map(|rule| format!("rule={rule}"));
        let sleep = self.sleep.map(|sleep| format!("sleep={sleep}"));
        [rate, rule, sleep].into_iter().flatten().collect()
    }
}

/// A prediction to compute.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Parameters of the machine and its load to vary, in all combinations.
    pub vary: Vec<Vary>,
    /// Pacings to try, each combined with every point of `vary`.
    pub pacings: Vec<Pacing>,
    /// Number of runs per setting (at least 1).
    pub runs: u32,
    /// Seed of the first run. Each later run increments it.
    pub seed: u64,
    /// Length of each run. If `None`, it is the length of the recording or scenario.
    pub length: Option<Nanos>,
    /// Whether to predict other settings even if the [control](Control) fails.
    pub force: bool,
}

/// Result of a plan.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The document with all rows.
    pub statement: PredictionStatement,
    /// The setup of the last setting's first run, with the task that it observes.
    pub last: (Setup, Option<TaskId>),
}

/// A setting to run: a pacing and a grid point. A point of `None` stands for the file's own setup.
type Place = (Pacing, Option<usize>);

impl Plan {
    /// Predicts every setting, starting with the file's own. If that one fails as a
    /// [control](Control), the others are skipped. `progress` is called with the number of finished
    /// runs and the total.
    ///
    /// # Errors
    /// Returns an error if an axis, a combination of settings or the work is invalid. Errors are
    /// found before the first run if possible.
    pub fn predict(
        &self,
        loaded: Loaded,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Prediction, WhatIfError> {
        if !self.pacings.is_empty() && !loaded.is_paced {
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
        let axes: Result<Vec<Axis>, AxisError> = self
            .vary
            .iter()
            .map(|vary| Axis::new(vary, &base))
            .collect();
        let grid = Grid::new(base, axes?)?;
        let places = self.places(&grid)?;
        let runs = u64::from(self.runs.max(1));
        let all = places.len() as u64 * runs;
        let mut predicted: Vec<PredictionRow> = Vec::with_capacity(places.len());
        let mut control = None;
        let mut last = None;
        for (number, place) in (0..).zip(&places) {
            let mut report_done = |done| progress(number * runs + done, all);
            let (runs, first) = work.runs(place, &grid, &mut report_done)?;
            last = first.or(last);
            predicted.push(PredictionRow {
                origin: Origin::Predicted,
                settings: settings(place, &grid),
                figures: figures(&runs),
            });
            if let ([as_it_was], Some(measured)) = (&*predicted, &loaded.row) {
                control = Control::of(measured, as_it_was);
                if control.is_some_and(|control| control.failed) && !self.force {
                    break;
                }
            }
        }
        let length = work.length;
        let last = last.unwrap_or_else(|| work.base(0, &Pacing::default()));
        Ok(Prediction {
            statement: self.statement(loaded, length, control, predicted),
            last,
        })
    }

    /// Lists the settings to run. Validates every grid point first.
    fn places(&self, grid: &Grid) -> Result<Vec<Place>, PointError> {
        for point in 0..grid.len() {
            grid.setup(point)?;
        }
        let own = Pacing::default();
        let mut places = vec![(own, None)];
        if grid.axes().is_empty() && self.pacings.is_empty() {
            return Ok(places);
        }
        let pacings = match &self.pacings[..] {
            [] => std::slice::from_ref(&own),
            pacings => pacings,
        };
        for pacing in pacings {
            // A point that changes nothing equals the file's own setting, which is already in the
            // list.
            let differs =
                |point: &usize| *pacing != own || grid.setup(*point).as_ref() != Ok(grid.base());
            let points = (0..grid.len()).filter(differs);
            places.extend(points.map(|point| (*pacing, Some(point))));
        }
        Ok(places)
    }

    fn statement(
        &self,
        loaded: Loaded,
        length: Nanos,
        control: Option<Control>,
        predicted: Vec<PredictionRow>,
    ) -> PredictionStatement {
        PredictionStatement {
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            load: loaded.file,
            recorded: loaded.machine.is_some(),
            machine: loaded.machine,
            program: loaded.program,
            length,
            runs: self.runs,
            coverage: coverage(self.runs),
            seed: self.seed,
            control,
            rows: loaded.row.into_iter().chain(predicted).collect(),
            taken: loaded.taken,
            assumed: loaded.assumed,
            left_out: words::LEFT_OUT.map(str::to_owned).to_vec(),
        }
    }
}

struct Work<'a> {
    plan: &'a Plan,
    loaded: &'a Loaded,
    length: Nanos,
}

impl Work<'_> {
    /// The base setup for run `number` with this pacing, either resampled from the recording or as
    /// defined in the scenario.
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

    /// Runs a setting `plan.runs` times. Returns each run's figures, and the first run's setup.
    /// `report_done` is called with the number of finished runs.
    fn runs(
        &self,
        place: &Place,
        grid: &Grid,
        report_done: &mut dyn FnMut(u64),
    ) -> Result<(Vec<Vec<Figure>>, Option<Drawn>), WhatIfError> {
        let mut first = None;
        let mut runs = Vec::new();
        for number in 0..self.plan.runs.max(1) {
            let (setup, task) = self.setup(number, place, grid)?;
            runs.push(judge::judge(judge::Run {
                setup: &setup,
                task,
                asked_for: self.loaded.asked_for,
            })?);
            first.get_or_insert((setup, task));
            report_done(u64::from(number) + 1);
        }
        Ok((runs, first))
    }

    /// The setup of a setting's run `number`.
    fn setup(
        &self,
        number: u32,
        (pacing, point): &Place,
        grid: &Grid,
    ) -> Result<Drawn, WhatIfError> {
        let (base, task) = self.base(number, pacing);
        let mut setup = match point {
            Some(point) => Grid::new(base, grid.axes().to_vec())?.setup(*point)?,
            None => base,
        };
        if let (Some(SleepMethod::Hybrid), Some(task)) = (pacing.sleep, task) {
            // Calibrate separately for each setting, because settings determine how late sleeps
            // end.
            calibrate::calibrate(&mut setup, task)?;
        }
        Ok((setup, task))
    }
}

/// A setup and the task to observe in it.
type Drawn = (Setup, Option<TaskId>);

/// Formats a setting in the form `NAME=VALUE`.
fn settings((pacing, point): &Place, grid: &Grid) -> Vec<String> {
    let mut words = pacing.words();
    if let Some(point) = point {
        let values = grid.axes().iter().zip(grid.values(*point));
        words.extend(values.map(|(axis, value)| format!("{}={value}", axis.name())));
    }
    words
}

/// The task to observe in a scenario: the one called `name` if given, otherwise the first one with
/// frames.
pub fn subject(setup: &Setup, name: Option<&str>) -> Option<TaskId> {
    let place = setup.tasks.iter().position(|task| match name {
        Some(name) => task.name == name,
        None => task.program.contains(&Step::Frame),
    });
    place
        .and_then(|place| u32::try_from(place).ok())
        .map(TaskId)
}

/// Median and interval of each figure over several runs.
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
            // If some runs lack the figure, its median would be biased.
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

/// Number of runs to exclude from the interval at each end: the most that [`COVERAGE`] permits.
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

/// Probability that another run lies within the interval of `runs` runs.
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
