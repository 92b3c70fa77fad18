//! How much a case of one's own takes: refused before it begins, rather than silent for hours.

use std::collections::BTreeSet;

use ticktax_model::Nanos;
use ticktax_sim::{Report, Setup, SetupError, run_within};

use super::{OwnCase, OwnCaseError};
use crate::file::Parameter;
use crate::fit;

/// The most events that a case may simulate, which is about a minute.
const MAX_EVENTS: u64 = 200_000_000;
/// What a simulation takes beside its events, in events.
const OF_EACH_RUN: u64 = 500;

/// What is to be made of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Its page, with what other values of its parameters give.
    Run,
    /// Its constants, from the rows that calibrate.
    Fit,
}

impl OwnCase {
    /// Whether it can be done in about a minute: the model is run with the constants of the file, and the
    /// rest is counted.
    ///
    /// # Errors
    /// Where it takes more than 200 million simulated events.
    pub fn check_effort(&self, asked: Asked) -> Result<(), OwnCaseError> {
        let (all, calibrating) = self.events()?;
        let steps = |it: &Parameter| it.fit.map(|range| values_of(range, it));
        let total = match asked {
            Asked::Run => self.file.parameters.values().fold(all, |sum, it| {
                let refitted = it.refit.iter();
                let refitted = refitted.filter_map(|name| self.file.parameters.get(name));
                let runs = fit::max_runs(refitted.filter_map(steps));
                let point = all.saturating_add(calibrating.saturating_mul(runs));
                // The value of the file is one of the points.
                let points = if it.others.is_empty() {
                    0
                } else {
                    it.others.len() as u64 + 1
                };
                sum.saturating_add(point.saturating_mul(points))
            }),
            Asked::Fit => {
                let runs = fit::max_runs(self.file.parameters.values().filter_map(steps));
                calibrating.saturating_mul(runs)
            }
        };
        if total <= MAX_EVENTS {
            return Ok(());
        }
        let what = match asked {
            Asked::Run => "or use fewer rows or values to `try`",
            Asked::Fit => "or use fewer `steps`",
        };
        Err(self.error(&format!(
            "it takes about {} million simulated events, but at most {} are allowed: shorten the \
             scenario's `length`, {what}",
            total.div_ceil(1_000_000),
            MAX_EVENTS / 1_000_000
        )))
    }

    /// Events of the model in all rows, and in those that calibrate.
    fn events(&self) -> Result<(u64, u64), OwnCaseError> {
        let values = self.file.values();
        let mut found: BTreeSet<&str> = BTreeSet::new();
        let (mut all, mut calibrating) = (0_u64, 0_u64);
        for (_, row) in self
            .file
            .rows()
            .filter(|(series, _)| series.measure.is_some())
        {
            if !found.insert(&row.at) {
                continue;
            }
            let setup = self
                .point(&row.at, &values)
                .map_err(|why| self.error(&why))?;
            let report = simulated(&setup, MAX_EVENTS.saturating_sub(all));
            let report = report.map_err(|why| self.error(&why.to_string()))?;
            let Some(report) = report else {
                return Err(self.error(&format!(
                    "its rows take more than {} million simulated events: shorten the scenario's \
                     `length`, or use fewer rows",
                    MAX_EVENTS / 1_000_000
                )));
            };
            let events = report.events.saturating_add(OF_EACH_RUN);
            all = all.saturating_add(events);
            let calibrates = self.file.rows().any(|(_, it)| it.at == row.at && it.fit);
            if calibrates {
                calibrating = calibrating.saturating_add(events);
            }
        }
        Ok((all, calibrating))
    }
}

/// Runs a simulation, unless it takes more events than that; a hundredth of it is tried first, so that this
/// is known in a second.
fn simulated(setup: &Setup, max_events: u64) -> Result<Option<Report>, SetupError> {
    const PARTS: u16 = 100;
    let length = Nanos(setup.length.0 / i64::from(PARTS));
    let part = Setup {
        length,
        ..setup.clone()
    };
    if run_within(&part, max_events / u64::from(PARTS) + OF_EACH_RUN)?.is_none() {
        return Ok(None);
    }
    run_within(setup, max_events)
}

/// How many values of a parameter a fit tries first.
fn values_of([low, high]: [f64; 2], it: &Parameter) -> u64 {
    let steps = u64::from(it.steps);
    if !it.whole {
        return steps;
    }
    let mut whole = 0;
    while whole < steps && low.ceil() + whole as f64 <= high {
        whole += 1;
    }
    whole.max(1)
}
