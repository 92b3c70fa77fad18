//! Reads the percentile distribution that `HdrHistogram` prints (`.hgrm`), also as part of the
//! output of wrk2.
//!
//! Each row has a value, the share of values up to it, and their number. So the values counted
//! between two rows are between the values of the rows.

use ticktax_model::comparison::{Better, Unit};

use super::histogram::{Bin, Histogram};
use super::{Distribution, Distributions, Values, broken};
use crate::numbers::Problem;

/// Start of the line before each distribution in the output of wrk2.
const WRK: &str = "Latency Distribution (HdrHistogram - ";
/// wrk2 prints ms.
const MILLISECOND: f64 = 1e6;

/// Returns whether a line is the heading of a percentile distribution.
pub(super) fn is_heading(line: &str) -> bool {
    let words: Vec<&str> = words(line).collect();
    words.starts_with(&["Value", "Percentile", "TotalCount"])
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| c.is_whitespace() || c == ',');
    words
        .map(|word| word.trim_matches('"'))
        .filter(|word| !word.is_empty())
}

/// Reads all distributions in a text. `is_wrk` is whether wrk2 printed it.
pub(super) fn read(text: &str, is_wrk: bool) -> Result<Distributions, Problem> {
    let (unit, factor) = if is_wrk {
        (Unit::Ns, MILLISECOND)
    } else {
        (Unit::None, 1.0)
    };
    let mut main: Vec<Distribution> = Vec::new();
    let mut name = "values".to_owned();
    let mut lines = (1_u64..).zip(text.lines());
    while let Some((_, line)) = lines.next() {
        if let Some(kind) = line.trim().strip_prefix(WRK) {
            let words = kind.split_whitespace().take(2);
            name = words
                .collect::<Vec<_>>()
                .join(" ")
                .trim_end_matches(')')
                .to_lowercase();
        }
        if !is_heading(line) {
            continue;
        }
        let rows = lines
            .by_ref()
            .skip_while(|(_, line)| line.trim().is_empty());
        let histogram = rows_of(rows, factor)?;
        let is_taken = main.iter().any(|other| other.name == name);
        main.push(Distribution {
            name: if is_taken {
                format!("{name} #{}", main.len() + 1)
            } else {
                name.clone()
            },
            unit,
            better: Better::Lower,
            values: Values::Counted(histogram),
        });
    }
    Ok(Distributions {
        kind: if is_wrk {
            "wrk2 output"
        } else {
            "HdrHistogram percentiles"
        },
        main,
        others: Vec::new(),
    })
}

fn rows_of<'a>(
    rows: impl Iterator<Item = (u64, &'a str)>,
    factor: f64,
) -> Result<Histogram, Problem> {
    let mut bins = Vec::new();
    let mut last: Option<(f64, u64)> = None;
    for (number, line) in rows {
        let mut words = words(line);
        let Some(first) = words.next().filter(|first| !first.starts_with('#')) else {
            break;
        };
        let row = first.parse::<f64>().ok();
        let row = row.zip(words.nth(1).and_then(|total| total.parse::<u64>().ok()));
        let (value, total) =
            row.ok_or_else(|| broken(format!("line {number} is not a row of a distribution")))?;
        let value = value * factor;
        let (before, counted) = last.unwrap_or((value, 0));
        if total < counted || value < before {
            return Err(broken(format!("line {number} is not in ascending order")));
        }
        bins.push(Bin {
            low: before,
            value,
            high: value,
            count: total - counted,
        });
        last = Some((value, total));
    }
    Histogram::new(bins, 0, None).map_err(|error| broken(error.to_string()))
}
