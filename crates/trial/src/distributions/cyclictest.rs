//! Reads cyclictest's histograms: the text that `cyclictest -h` prints, and its JSON file
//! (`--json`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::histogram::{Bin, Histogram, HistogramError};
use super::{Distribution, Distributions, Values, broken};
use crate::numbers::Problem;

/// Width of a bin in ns, unless cyclictest measured in ns (`-N`). The text does not show it.
const MICROSECOND: f64 = 1e3;
const KIND: &str = "cyclictest histogram";

/// Reads the text. Each row is a latency in µs, followed by the number of cycles of each thread.
/// Each latency is rounded down.
pub(super) fn read(text: &str) -> Result<Distributions, Problem> {
    let lines = (1_u64..).zip(text.lines());
    let mut lines = lines.skip_while(|(_, line)| line.trim_end() != "# Histogram");
    lines.next();
    let mut rows: Vec<(u64, Vec<u64>)> = Vec::new();
    let mut footer: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (number, line) in lines {
        if let Some((name, values)) = line.strip_prefix('#').and_then(|line| line.split_once(':')) {
            let values: Result<_, _> = values.split_whitespace().map(str::parse).collect();
            if let Ok(values) = values {
                footer.insert(name.trim().to_owned(), values);
            }
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
            let numbers =
                numbers.map_err(|_| broken(format!("line {number} is not a row of counts")))?;
            rows.push((numbers[0], numbers[1..].to_vec()));
        }
    }
    let of = |name: &str| footer.get(name).map(Vec::as_slice).unwrap_or_default();
    let threads = of("Min Latencies").len();
    if threads == 0 {
        let why = "it is a cyclictest histogram whose end is missing (no line `# Min Latencies`)";
        return Err(broken(why));
    }
    let mut all = Vec::with_capacity(threads);
    for thread in 0..threads {
        let over = of("Histogram Overflows").get(thread).copied().unwrap_or(0);
        let max = of("Max Latencies")
            .get(thread)
            .map(|&max| max as f64 * MICROSECOND);
        let mut bins = Vec::with_capacity(rows.len());
        for (latency, counts) in &rows {
            let count = *counts.get(thread).ok_or_else(|| {
                broken(format!(
                    "the row of {latency} µs has no count for thread {thread}"
                ))
            })?;
            bins.push(bin(*latency, count, MICROSECOND));
        }
        let sum: u64 = bins
            .iter()
            .fold(0, |sum, bin| bin.count.saturating_add(sum));
        if let Some(&total) = of("Total").get(thread)
            && total != sum
            && total != sum.saturating_add(over)
        {
            return Err(broken(format!(
                "rows are missing: thread {thread} has {sum} cycles in its rows, but {total} in \
                 total"
            )));
        }
        all.push((thread.to_string(), Histogram::new(bins, over, max)));
    }
    threads_and_sum(all)
}

fn bin(latency: u64, count: u64, width: f64) -> Bin {
    let low = latency as f64 * width;
    Bin {
        low,
        value: low,
        high: low + width,
        count,
    }
}

#[derive(Deserialize)]
struct Export {
    #[serde(rename = "rt_test_version:", alias = "rt_test_version")]
    version: Option<IgnoredAny>,
    #[serde(default)]
    resolution_in_ns: u64,
    #[serde(default)]
    thread: BTreeMap<u64, Thread>,
}

#[derive(Deserialize)]
struct Thread {
    #[serde(default)]
    histogram: BTreeMap<u64, u64>,
    cycles: u64,
    max: u64,
}

/// Reads the JSON file. Cycles that are not in the histogram were above it.
pub(super) fn read_json(json: &str) -> Option<Result<Distributions, Problem>> {
    let export: Export = serde_json::from_str(json).ok()?;
    export.version?;
    let width = if export.resolution_in_ns > 0 {
        1.0
    } else {
        MICROSECOND
    };
    let has_histogram = export
        .thread
        .values()
        .any(|thread| !thread.histogram.is_empty());
    if !has_histogram {
        let why = "it is output of cyclictest without a histogram; add -h 400 to its options";
        return Some(Err(broken(why)));
    }
    let threads = export.thread.into_iter().map(|(name, thread)| {
        let sum = thread
            .histogram
            .values()
            .fold(0_u64, |sum, count| sum.saturating_add(*count));
        let bins = thread.histogram.iter();
        let bins = bins.map(|(latency, count)| bin(*latency, *count, width));
        let over = thread.cycles.saturating_sub(sum);
        let max = thread.max as f64 * width;
        (name.to_string(), Histogram::new(bins, over, Some(max)))
    });
    Some(threads_and_sum(threads.collect()))
}

/// Returns the sum of all threads and, if there are several, each thread.
fn threads_and_sum(
    threads: Vec<(String, Result<Histogram, HistogramError>)>,
) -> Result<Distributions, Problem> {
    let mut named = Vec::with_capacity(threads.len());
    for (name, histogram) in threads {
        match histogram {
            Ok(histogram) => named.push((name, histogram)),
            // A thread can be stopped before its first cycle.
            Err(HistogramError::Empty) => {}
            Err(error) => return Err(broken(error.to_string())),
        }
    }
    let sum = Histogram::sum(named.iter().map(|(_, histogram)| histogram));
    let sum = sum.map_err(|error| broken(error.to_string()))?;
    let is_single = named.len() == 1;
    let name = if is_single { "latency" } else { "all threads" };
    let others = named.into_iter().filter(|_| !is_single);
    Ok(Distributions {
        kind: KIND,
        main: vec![Distribution::times(name, Values::Counted(sum))],
        others: others
            .map(|(name, histogram)| {
                Distribution::times(&format!("thread {name}"), Values::Counted(histogram))
            })
            .collect(),
    })
}
