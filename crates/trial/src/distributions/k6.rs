//! Reads summaries of k6, which have percentiles without counts: the text at the end of a run, the
//! JSON of `--summary-export`, and the data that `handleSummary` gets.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use ticktax_model::comparison::{Better, Unit};

use super::duration::nanoseconds;
use super::{Distribution, Distributions, Percentile, Values, broken};
use crate::numbers::Problem;

/// The metric that is compared unless the user chooses another.
const MAIN: &str = "http_req_duration";
/// Starts of the names of k6's own metrics that are times. In JSON, they are in ms.
const TIMES: [&str; 6] = [
    "http_req_",
    "iteration_duration",
    "group_duration",
    "ws_",
    "grpc_req_",
    "browser_",
];
const MILLISECOND: f64 = 1e6;

#[derive(Deserialize)]
struct Export {
    metrics: BTreeMap<String, Metric>,
}

/// A metric in JSON. `handleSummary` has the figures in `values`, and `--summary-export` has them
/// in the metric itself.
#[derive(Deserialize)]
struct Metric {
    contains: Option<String>,
    values: Option<BTreeMap<String, Value>>,
    #[serde(flatten)]
    own: BTreeMap<String, Value>,
}

/// Reads JSON. Returns `None` if `json` is something else.
pub(super) fn read_json(json: &str) -> Option<Result<Distributions, Problem>> {
    let export: Export = serde_json::from_str(json).ok()?;
    let metrics = export.metrics.into_iter().filter_map(|(name, metric)| {
        let contains = metric.contains;
        let figures = metric.values.unwrap_or(metric.own);
        let figures = figures.iter();
        let figures = figures.filter_map(|(name, value)| Some((&**name, value.as_f64()?)));
        let is_time = match &contains {
            Some(contains) => contains == "time",
            None => TIMES.iter().any(|start| name.starts_with(start)),
        };
        let (unit, factor) = if is_time {
            (Unit::Ns, MILLISECOND)
        } else {
            (Unit::None, 1.0)
        };
        let percentiles = percentiles(figures.map(|(name, value)| (name, value * factor)));
        (percentiles.len() > 1).then(|| trend(&name, unit, percentiles))
    });
    Some(distributions(metrics.collect()))
}

/// Returns whether a line is the summary of a metric with percentiles.
pub(super) fn is_trend(line: &str) -> bool {
    let fields = line.split_once(':').map(|(_, fields)| fields);
    fields.is_some_and(|fields| {
        fields.contains(" avg=") && (fields.contains(" med=") || fields.contains(" p("))
    })
}

/// Reads the text.
pub(super) fn read(text: &str) -> Result<Distributions, Problem> {
    let mut found: Vec<Distribution> = Vec::new();
    for line in text.lines().filter(|line| is_trend(line)) {
        let (name, fields) = line.split_once(':').unwrap_or_default();
        let name = name.trim_end_matches('.').trim_start();
        let name = name.trim_start_matches(['✓', '✗']).trim();
        // A part of the metric before it: `{ expected_response:true }`.
        if name.starts_with('{') || found.iter().any(|other| other.name == name) {
            continue;
        }
        let fields = fields
            .split_whitespace()
            .filter_map(|field| field.split_once('='));
        let mut figures = Vec::new();
        let mut unit = Unit::Ns;
        for (figure, value) in fields {
            let plain = value.parse::<f64>().ok();
            if plain.is_some() {
                unit = Unit::None;
            }
            let value = plain.or_else(|| nanoseconds(value));
            let value =
                value.ok_or_else(|| broken(format!("the metric {name} has an unknown unit")))?;
            figures.push((figure, value));
        }
        found.push(trend(name, unit, percentiles(figures.into_iter())));
    }
    distributions(found)
}

fn trend(name: &str, unit: Unit, percentiles: Vec<Percentile>) -> Distribution {
    let is_time = unit == Unit::Ns;
    Distribution {
        unit,
        better: if is_time {
            Better::Lower
        } else {
            Better::Unknown
        },
        ..Distribution::times(name, Values::Percentiles(percentiles))
    }
}

/// Returns the median, the percentiles and the maximum among a metric's figures, in this order.
fn percentiles<'a>(figures: impl Iterator<Item = (&'a str, f64)>) -> Vec<Percentile> {
    let mut found: Vec<(f64, f64)> = Vec::new();
    for (name, value) in figures {
        let percent = match name {
            "med" => Some(50.0),
            "max" => Some(100.0),
            _ => name
                .strip_prefix("p(")
                .and_then(|name| name.strip_suffix(')'))
                .and_then(|percent| percent.parse().ok()),
        };
        found.extend(percent.map(|percent| (percent, value)));
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let named = found.into_iter().map(|(percent, value)| Percentile {
        name: if percent >= 100.0 {
            "max".to_owned()
        } else {
            format!("p{percent}")
        },
        value,
    });
    named.collect()
}

fn distributions(found: Vec<Distribution>) -> Result<Distributions, Problem> {
    if found.is_empty() {
        return Err(broken("it is a summary of k6 without percentiles"));
    }
    let (main, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|one| one.name == MAIN);
    let (main, others) = if main.is_empty() {
        (others, main)
    } else {
        (main, others)
    };
    Ok(Distributions {
        kind: "k6 summary",
        main,
        others,
    })
}
