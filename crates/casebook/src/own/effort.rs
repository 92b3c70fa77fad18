//! Estimates how long a user's case takes, so that one that would run for hours is rejected
//! immediately.

use std::collections::BTreeSet;

use ticktax_model::Nanos;
use ticktax_sim::{Setup, SetupError, run_within};

use super::{OwnCase, OwnCaseError, OwnCaseFault, RowError};
use crate::file::Parameter;
use crate::fit;

/// Maximum number of events to simulate, which takes about a minute.
pub(super) const MAX_EVENTS: u64 = 200_000_000;
/// Cost of starting a simulation, as an equivalent number of events.
const OF_EACH_RUN: u64 = 500;

/// The operation whose duration is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Report on the case, including its sensitivity to the parameters.
    Run,
    /// Fit the constants to the calibration rows.
    Fit,
}

impl OwnCase {
    /// Checks that an operation takes no longer than about a minute. The estimate is extrapolated
    /// from a single run of the model with the constants in the file.
    ///
    /// # Errors
    /// Returns an error if the operation would simulate more than 200 million events.
    pub fn check_effort(&self, asked: Asked) -> Result<(), OwnCaseError> {
        let (all, calibrating) = self.events()?;
        let steps = |parameter: &Parameter| parameter.fit.map(|range| values_of(range, parameter));
        let total = match asked {
            Asked::Run => self.file.parameters.values().fold(all, |sum, parameter| {
                let refitted = parameter.refit.iter();
                let refitted = refitted.filter_map(|name| self.file.parameters.get(name));
                let runs = fit::max_runs(refitted.filter_map(steps));
                let point = all.saturating_add(calibrating.saturating_mul(runs));
                // Add 1, because the sensitivity analysis also tries the value in the file.
                let points = if parameter.others.is_empty() {
                    0
                } else {
                    parameter.others.len() as u64 + 1
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
        Err(self.unusable(OwnCaseFault::TooLong {
            asked,
            events: total,
        }))
    }

    /// Counts the events needed to simulate all rows, and those for the calibration rows alone.
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
                .map_err(|why| self.unusable(why))?;
            let events = estimated(&setup, MAX_EVENTS.saturating_sub(all));
            let events = events.map_err(|why| self.unusable(RowError::from(why)))?;
            let Some(events) = events else {
                return Err(self.unusable(OwnCaseFault::RowsTooLong));
            };
            let events = events.saturating_add(OF_EACH_RUN);
            all = all.saturating_add(events);
            let calibrates = self
                .file
                .rows()
                .any(|(_, other)| other.at == row.at && other.fit);
            if calibrates {
                calibrating = calibrating.saturating_add(events);
            }
        }
        Ok((all, calibrating))
    }
}

/// Estimates the number of events in a simulation from a hundredth of its length. Counts them if
/// they are so few that this takes no time. Returns `None` if there are more than `max_events`.
fn estimated(setup: &Setup, max_events: u64) -> Result<Option<u64>, SetupError> {
    const PARTS: u16 = 100;
    const FEW: u64 = 1_000_000;
    let length = Nanos(setup.length.0 / i64::from(PARTS));
    let part = Setup {
        length,
        ..setup.clone()
    };
    let Some(report) = run_within(&part, max_events / u64::from(PARTS) + OF_EACH_RUN)? else {
        return Ok(None);
    };
    let events = report.events.saturating_mul(u64::from(PARTS));
    if events > FEW {
        return Ok((events <= max_events).then_some(events));
    }
    Ok(run_within(setup, max_events)?.map(|report| report.events))
}

/// Returns how many values a fit tries for a parameter in its first round.
fn values_of([low, high]: [f64; 2], parameter: &Parameter) -> u64 {
    let steps = u64::from(parameter.steps);
    if !parameter.whole {
        return steps;
    }
    let mut integers = 0;
    while integers < steps && low.ceil() + integers as f64 <= high {
        integers += 1;
    }
    integers.max(1)
}
