//! Reads the output of `rtla timerlat hist` and `rtla osnoise hist`.
//!
//! The format is that of `timerlat_hist.c` and `osnoise_hist.c` in the kernel's
//! `tools/tracing/rtla`. A heading names the columns (`IRQ-000`, `Thr-000`, `Usr-000` or `CPU-000`
//! for each CPU). Each row counts the values that, rounded down, equal its index. Rows without
//! values are left out. The row `over:` counts larger values, and `count:` all of them.

use super::histogram::{Bin, Histogram, HistogramError};
use super::{Distribution, Distributions, Values, broken};
use crate::numbers::Problem;

/// Names of the columns' kinds.
const KINDS: [(&str, &str); 4] = [
    ("IRQ", "irq"),
    ("Thr", "thread"),
    ("Usr", "user"),
    ("CPU", "noise"),
];

/// The rows of the output, each without its first word.
#[derive(Default)]
struct Table {
    columns: Vec<String>,
    rows: Vec<(u64, Vec<u64>)>,
    over: Vec<u64>,
    count: Vec<u64>,
    max: Vec<Option<u64>>,
}

pub(super) fn read(text: &str) -> Result<Distributions, Problem> {
    let first = text.lines().find(|line| line.starts_with("# RTLA "));
    let first = first.unwrap_or_default();
    let kind = match first.trim_end() {
        "# RTLA timerlat histogram" => "rtla timerlat histogram",
        "# RTLA osnoise histogram" => "rtla osnoise histogram",
        _ => {
            return Err(broken(
                "it is output of rtla, but not of timerlat hist or osnoise hist",
            ));
        }
    };
    let unit = text.lines().find(|line| line.starts_with("# Time unit"));
    let unit = match unit.unwrap_or_default() {
        unit if unit.ends_with("(us)") => 1e3,
        unit if unit.ends_with("(ns)") => 1.0,
        _ => return Err(broken("it has no line `# Time unit is microseconds (us)`")),
    };
    let table = Table::read(text)?;
    // The smallest distance of two rows is the width of a bin or, with few rows, a multiple of it.
    let indices = table.rows.windows(2);
    let width = indices.map(|rows| rows[1].0 - rows[0].0).min().unwrap_or(1);
    let mut columns = Vec::with_capacity(table.columns.len());
    for (place, name) in table.columns.iter().enumerate() {
        match table.column(place, name, unit, width as f64 * unit) {
            Ok(histogram) => columns.push((name, histogram)),
            Err(ColumnProblem::Histogram(HistogramError::Empty)) => {}
            Err(ColumnProblem::Histogram(error)) => return Err(broken(error.to_string())),
            Err(ColumnProblem::Other(problem)) => return Err(problem),
        }
    }
    let mut main = Vec::new();
    for (prefix, name) in KINDS {
        let of_kind = columns
            .iter()
            .filter(|(column, _)| column.starts_with(prefix));
        let of_kind = of_kind.map(|(_, histogram)| histogram);
        match Histogram::sum(of_kind) {
            Ok(sum) => main.push(Distribution::times(name, Values::Counted(sum))),
            Err(HistogramError::Empty) => {}
            Err(error) => return Err(broken(error.to_string())),
        }
    }
    if main.is_empty() {
        return Err(broken(HistogramError::Empty.to_string()));
    }
    let others = columns.into_iter();
    let others = others.map(|(name, sum)| Distribution::times(name, Values::Counted(sum)));
    Ok(Distributions {
        kind,
        main,
        others: others.collect(),
    })
}

enum ColumnProblem {
    Histogram(HistogramError),
    Other(Problem),
}

impl Table {
    /// Reads the table up to its row `max:`. Newer versions repeat the last rows for all CPUs
    /// together.
    fn read(text: &str) -> Result<Self, Problem> {
        let mut table = Self::default();
        let mut ended = false;
        for (number, line) in (1_u64..).zip(text.lines()) {
            let mut words = line.split_whitespace();
            let Some(first) = words.next() else {
                continue;
            };
            let counts = || -> Result<Vec<u64>, Problem> {
                let words = line.split_whitespace().skip(1);
                let counts: Result<_, _> = words.map(str::parse).collect();
                counts.map_err(|_| broken(format!("line {number} is not a row of counts")))
            };
            match first {
                "Index" => table.columns = words.map(str::to_owned).collect(),
                _ if table.columns.is_empty() => {}
                "over:" => table.over = counts()?,
                "count:" => table.count = counts()?,
                "max:" => {
                    // A column without values has a dash.
                    table.max = words.map(|word| word.parse().ok()).collect();
                    ended = true;
                    break;
                }
                index if index.starts_with(|first: char| first.is_ascii_digit()) => {
                    let index = index.parse();
                    let index = index
                        .map_err(|_| broken(format!("line {number} is not a row of counts")))?;
                    if table.rows.last().is_some_and(|(last, _)| *last >= index) {
                        return Err(broken(format!("line {number} is not in ascending order")));
                    }
                    table.rows.push((index, counts()?));
                }
                _ => {}
            }
        }
        match (table.columns.is_empty(), ended) {
            (true, _) => Err(broken(
                "it has no line that starts with `Index`; omit --no-index",
            )),
            (_, false) => Err(broken(
                "the end of the histogram is missing (no line `max:`)",
            )),
            _ => Ok(table),
        }
    }

    fn column(
        &self,
        place: usize,
        name: &str,
        unit: f64,
        width: f64,
    ) -> Result<Histogram, ColumnProblem> {
        let mut bins = Vec::with_capacity(self.rows.len());
        for (index, counts) in &self.rows {
            let count = *counts.get(place).ok_or_else(|| {
                ColumnProblem::Other(broken(format!("the row {index} has no count for {name}")))
            })?;
            let low = *index as f64 * unit;
            bins.push(Bin {
                low,
                value: low,
                high: low + width,
                count,
            });
        }
        let over = self.over.get(place).copied().unwrap_or(0);
        let max = self.max.get(place).copied().flatten();
        let histogram = Histogram::new(bins, over, max.map(|max| max as f64 * unit));
        let histogram = histogram.map_err(ColumnProblem::Histogram)?;
        match self.count.get(place) {
            Some(&count) if count != histogram.count() => {
                Err(ColumnProblem::Other(broken(format!(
                    "rows are missing: {name} has {} values in its rows, but {count} in total",
                    histogram.count()
                ))))
            }
            _ => Ok(histogram),
        }
    }
}
