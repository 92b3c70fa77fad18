//! Reads the results back to report failures and extreme values.

use std::collections::BTreeMap;
use std::path::Path;

use ticktax_model::Nanos;
use ticktax_model::comparison::{
    Arm, Better, Comparison, Experiment, Metric, Origin, Setting, SweepRecord, Unit,
};
use ticktax_model::table::Cell;
use ticktax_store::table::{TableError, TableReader};

use super::SweepError;
use super::journal;
use super::plan::{Identity, Plan};

/// Maximum number of failed arms to list.
const LISTED_FAILURES: usize = 3;
/// Number of arms to list at each end of a ranking.
const EXTREMES: usize = 5;

/// Statistics about running a sweep once.
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

/// Summarizes complete results. If `column` is given, lists the arms with its highest and lowest
/// values.
///
/// # Errors
/// Returns an error if the results cannot be read.
pub fn summarize(
    plan: &Plan,
    results: &Path,
    column: Option<&str>,
    ran: Ran,
) -> Result<Comparison, SweepError> {
    let axes = plan.grid().axes().iter();
    let axes = axes.map(|axis| (axis.name().to_owned(), axis.values().len() as u64));
    let record = SweepRecord {
        scenario: plan.file().to_owned(),
        axes: axes.collect(),
        combinations: plan.grid().len() as u64,
        found: ran.found,
        damaged: ran.damaged,
        events: ran.events,
        took: ran.took,
        results: results.display().to_string(),
        ..SweepRecord::default()
    };
    Ok(read(results, plan, column, record)?)
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

/// Returns the metric for a column of the results. The end of the column's name shows its unit.
fn metric(column: &str) -> Metric {
    let unit = match column.rsplit(['.', '_']).next() {
        Some("ns") => Unit::Ns,
        Some("share") => Unit::Share,
        Some("fps") => Unit::Hz,
        _ => Unit::None,
    };
    Metric::new(column, unit, Better::Unknown)
}

/// Reads a sweep's results. If `column` is given, ranks the arms by it.
fn read(
    results: &Path,
    plan: &Plan,
    column: Option<&str>,
    mut record: SweepRecord,
) -> Result<Comparison, TableError> {
    let place = |name: &str| plan.columns().iter().position(|column| column.name == name);
    let error = place("error").unwrap_or(0);
    let ranked = column.and_then(place);
    let new_arm = |number: usize| Arm {
        label: format!("#{number}"),
        ..Arm::new(Origin::Simulated, plan.grid().settings(number))
    };
    let mut order: Vec<(f64, usize)> = Vec::new();
    let mut failed: Vec<Arm> = Vec::new();
    let mut shared: Option<Vec<Setting>> = None;
    if let Some(table) = TableReader::open(results)? {
        let mut number = 0;
        table.rows(|row| {
            if let Some(Cell::Text(why)) = row.get(error) {
                record.failed += 1;
                let settings = plan.grid().settings(number);
                match &mut shared {
                    Some(shared) => shared.retain(|setting| settings.contains(setting)),
                    none => *none = Some(settings),
                }
                if failed.len() < LISTED_FAILURES {
                    failed.push(Arm {
                        excluded: Some(why.clone()),
                        ..new_arm(number)
                    });
                }
            }
            let value = ranked.and_then(|place| row.get(place)?.number());
            order.extend(value.map(|value| (value, number)));
            number += 1;
        })?;
    }
    let has_others = |setting: &Setting| {
        let mut axes = record.axes.iter();
        axes.any(|(name, count)| *name == setting.name && *count > 1)
    };
    record.failed_at = shared.unwrap_or_default();
    record.failed_at = record
        .failed_at
        .iter()
        .filter(|at| has_others(at))
        .cloned()
        .collect();
    // At both ends of the ranking, list arms with equal values in grid order.
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    record.ranked = order.len() as u64;
    record.highest = order.len().div_ceil(2).min(EXTREMES);
    let mut lowest = order.split_off(record.highest);
    lowest.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    lowest.truncate(EXTREMES);
    order.extend(lowest.iter().rev());
    let arms = order.iter().map(|&(value, number)| Arm {
        figures: vec![Some(value.into())],
        ..new_arm(number)
    });
    Ok(Comparison {
        arms: arms.chain(failed).collect(),
        metrics: column.map(metric).into_iter().collect(),
        ..Comparison::new(
            env!("CARGO_PKG_VERSION"),
            Experiment::Sweep(Box::new(record)),
        )
    })
}
