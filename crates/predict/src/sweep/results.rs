//! Reads the results back to report failures and extreme values.

use std::collections::BTreeMap;
use std::path::Path;

use ticktax_model::Nanos;
use ticktax_model::sweep::{ArmFailure, GridStatement, RankedArm, Ranking};
use ticktax_model::table::Cell;
use ticktax_store::table::{TableError, TableReader};

use super::SweepError;
use super::journal;
use super::plan::{Identity, Plan};

/// Maximum number of failed arms to list.
const LISTED_FAILURES: usize = 3;
/// Number of arms to list at each end of a ranking.
const EXTREMES: usize = 5;

/// Contents of a results file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ResultsSummary {
    /// Number of failed arms.
    pub(super) failed: u64,
    /// The first few failed arms.
    pub(super) failures: Vec<ArmFailure>,
    /// Axes on which all failed arms have the same value, with this value.
    pub(super) failed_at: Vec<(String, String)>,
    /// The arms at which a column has its highest and its lowest values.
    pub(super) ranking: Option<Ranking>,
}

/// Statistics of running a sweep once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Number of arms that had already finished in an earlier run.
    pub found: u64,
    /// Number of damaged journal records. Their arms were run again.
    pub damaged: u64,
    /// Number of events simulated in this run.
    pub events: u64,
    /// Duration of this run.
    pub took: Nanos,
}

/// Summarizes complete results. If `column` is given, lists the arms with its highest and its
/// lowest values.
///
/// # Errors
/// Returns an error if the results cannot be read.
pub fn statement(
    plan: &Plan,
    results: &Path,
    column: Option<&str>,
    ran: Ran,
) -> Result<GridStatement, SweepError> {
    let count = |len| u64::try_from(len).unwrap_or(u64::MAX);
    let axes = plan.grid().axes().iter();
    let axes = axes.map(|axis| (axis.name().to_owned(), count(axis.values().len())));
    let ResultsSummary {
        failed,
        failures,
        failed_at,
        ranking,
    } = read(results, plan, column)?;
    Ok(GridStatement {
        scenario: plan.file().to_owned(),
        axes: axes.collect(),
        arms: plan.grid().len() as u64,
        found: ran.found,
        damaged: ran.damaged,
        failed,
        failures,
        failed_at,
        events: ran.events,
        took: ran.took,
        results: results.display().to_string(),
        ranking,
    })
}

/// Describes how the sweep that wrote `metadata` differs from ours. Returns `None` if they are the
/// same.
pub(super) fn difference(metadata: &BTreeMap<String, String>, ours: &Identity) -> Option<String> {
    let value_of = |key: &str| metadata.get(key).cloned().unwrap_or_default();
    let Some(Ok(sweep)) = metadata.get("ticktax.sweep").map(|text| text.parse()) else {
        return Some("exists, and does not contain results of a sweep".to_owned());
    };
    let theirs = Identity {
        sweep,
        ticktax: value_of("ticktax.version"),
        axes: serde_json::from_str(&value_of("ticktax.axes")).unwrap_or_default(),
        scenario: value_of("ticktax.scenario"),
    };
    journal::difference(&theirs, ours).map(|what| format!("contains the results of a sweep {what}"))
}

/// Removes the values from `shared` that another failed arm does not have.
fn share(shared: &mut Option<Vec<Option<String>>>, values: Vec<String>) {
    let Some(shared) = shared else {
        *shared = Some(values.into_iter().map(Some).collect());
        return;
    };
    for (kept, value) in shared.iter_mut().zip(values) {
        if kept.as_ref() != Some(&value) {
            *kept = None;
        }
    }
}

/// Reads a sweep's results. If `column` is given, ranks the arms by it.
pub(super) fn read(
    results: &Path,
    plan: &Plan,
    column: Option<&str>,
) -> Result<ResultsSummary, TableError> {
    let mut summary = ResultsSummary::default();
    let Some(table) = TableReader::open(results)? else {
        return Ok(summary);
    };
    let place = |name: &str| plan.columns().iter().position(|column| column.name == name);
    let error = place("error").unwrap_or(0);
    let ranked = column.and_then(place);
    let values = |arm: usize| -> Vec<String> {
        let values = plan.grid().values(arm);
        values.map(ToString::to_string).collect()
    };
    let mut order: Vec<(f64, usize)> = Vec::new();
    let mut shared: Option<Vec<Option<String>>> = None;
    let mut arm = 0;
    table.rows(|row| {
        if let Some(Cell::Text(why)) = row.get(error) {
            summary.failed += 1;
            share(&mut shared, values(arm));
            if summary.failures.len() < LISTED_FAILURES {
                summary.failures.push(ArmFailure {
                    arm: arm as u64,
                    values: values(arm),
                    why: why.clone(),
                });
            }
        }
        let value = ranked.and_then(|place| row.get(place)?.number());
        order.extend(value.map(|value| (value, arm)));
        arm += 1;
    })?;
    let axes = plan.grid().axes().iter();
    let at = axes.zip(shared.unwrap_or_default());
    let at = at.filter(|(axis, _)| axis.values().len() > 1);
    summary.failed_at = at
        .filter_map(|(axis, value)| Some((axis.name().to_owned(), value?)))
        .collect();
    // At both ends of the ranking, list arms with equal values in the order of the grid.
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let ranking = |column: &str| {
        let ranked = |&(value, arm): &(f64, usize)| RankedArm {
            arm: arm as u64,
            values: values(arm),
            value,
        };
        let high = order.len().div_ceil(2).min(EXTREMES);
        let highest = order[..high].iter().map(ranked).collect();
        let mut rest = order[high..].to_vec();
        rest.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        Ranking {
            column: column.to_owned(),
            arms: order.len() as u64,
            highest,
            lowest: rest.iter().take(EXTREMES).map(ranked).collect(),
        }
    };
    summary.ranking = column.map(ranking);
    Ok(summary)
}
