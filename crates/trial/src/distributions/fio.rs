//! Reads fio's JSON output and its latency logs.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use ticktax_model::comparison::{Better, Unit};

use super::histogram::{Bin, Histogram, HistogramError};
use super::{Distribution, Distributions, Percentile, Values, broken};
use crate::numbers::{MAX_VALUES, Problem};

/// Kind of a log whose quantity is unknown.
pub(super) const LOG: &str = "fio log";
/// Directions in JSON, and in logs by their number.
const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];
/// Bits of a value that its bin keeps, after the first (`FIO_IO_U_PLAT_BITS` in fio's `stat.h`).
const BITS: u32 = 6;
/// Smallest number of columns in a line of a log of histograms (`log_hist_msec`).
const HISTOGRAM_COLUMNS: usize = 20;

#[derive(Deserialize)]
struct Export {
    #[serde(rename = "fio version")]
    version: Option<IgnoredAny>,
    #[serde(default)]
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    #[serde(default)]
    jobname: String,
    read: Option<Direction>,
    write: Option<Direction>,
    trim: Option<Direction>,
}

#[derive(Deserialize)]
struct Direction {
    clat_ns: Option<Latency>,
    lat_ns: Option<Latency>,
}

#[derive(Deserialize)]
struct Latency {
    #[serde(default, rename = "N")]
    count: u64,
    #[serde(default)]
    max: f64,
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
    /// Number of values in each bin, by the bin's middle (`--output-format=json+`).
    #[serde(default)]
    bins: BTreeMap<u64, u64>,
}

/// Reads JSON output. Returns `None` if `json` is something else.
pub(super) fn read_json(json: &str) -> Option<Result<Distributions, Problem>> {
    // fio can print text after the document.
    let mut documents = serde_json::Deserializer::from_str(json).into_iter::<Export>();
    let export = documents.next()?.ok()?;
    export.version?;
    Some(distributions(export.jobs))
}

fn distributions(jobs: Vec<Job>) -> Result<Distributions, Problem> {
    let is_single = jobs.len() == 1;
    let mut main: Vec<Distribution> = Vec::new();
    for job in jobs {
        for (direction, stats) in DIRECTIONS.into_iter().zip([job.read, job.write, job.trim]) {
            let Some(stats) = stats else {
                continue;
            };
            for (latency, name) in [(stats.clat_ns, "clat"), (stats.lat_ns, "lat")] {
                let Some(values) = latency.as_ref().map(values).transpose()?.flatten() else {
                    continue;
                };
                let name = format!("{direction} {name}");
                let name = if is_single {
                    name
                } else {
                    format!("{} {name}", job.jobname)
                };
                let same = main.iter().filter(|other| {
                    let rest = other.name.strip_prefix(&name);
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" #"))
                });
                let name = match same.count() {
                    0 => name,
                    before => format!("{name} #{}", before + 1),
                };
                main.push(Distribution::times(&name, values));
            }
        }
    }
    if main.is_empty() {
        let why = "fio wrote no latencies to it; don't disable clat_percentiles or latencies";
        return Err(broken(why));
    }
    Ok(Distributions {
        kind: "fio JSON output",
        main,
        others: Vec::new(),
    })
}

/// Returns the histogram or, if it is missing, the percentiles. Returns `None` if both are missing.
fn values(latency: &Latency) -> Result<Option<Values>, Problem> {
    if latency.count == 0 {
        return Ok(None);
    }
    if !latency.bins.is_empty() {
        let bins = latency
            .bins
            .iter()
            .map(|(&middle, &count)| bin(middle, count));
        let histogram = Histogram::new(bins, 0, Some(latency.max));
        let histogram = histogram.map_err(|error| broken(error.to_string()))?;
        return if histogram.count() == latency.count {
            Ok(Some(Values::Counted(histogram)))
        } else {
            let (have, all) = (histogram.count(), latency.count);
            Err(broken(format!(
                "its bins have {have} values, but N is {all}"
            )))
        };
    }
    let mut percentiles: Vec<(f64, f64)> = Vec::with_capacity(latency.percentile.len());
    for (percent, value) in &latency.percentile {
        let percent = percent.parse();
        percentiles.push((
            percent.map_err(|_| broken("a percentile has no number"))?,
            *value,
        ));
    }
    if percentiles.is_empty() {
        return Ok(None);
    }
    percentiles.sort_by(|a, b| a.0.total_cmp(&b.0));
    let percentiles = percentiles.into_iter().map(|(percent, value)| Percentile {
        name: format!("p{percent}"),
        value,
    });
    let max = Percentile {
        name: "max".to_owned(),
        value: latency.max,
    };
    Ok(Some(Values::Percentiles(
        percentiles.chain([max]).collect(),
    )))
}

/// Returns the bin with this middle. Values below 128 have their own bins. Above that, each power
/// of two is divided into 64 bins of the same width (`plat_val_to_idx` in fio's `stat.c`).
fn bin(middle: u64, count: u64) -> Bin {
    let dropped = (u64::BITS - middle.leading_zeros()).saturating_sub(BITS + 1);
    if dropped == 0 {
        return Bin::exact(middle as f64, count);
    }
    let low = middle >> dropped << dropped;
    Bin {
        low: low as f64,
        value: middle as f64,
        high: low as f64 + (1_u64 << dropped) as f64,
        count,
    }
}

/// Reads a latency log (`write_lat_log`): a line per operation, with its time in ms, its latency in
/// ns, its direction, its size and more. Returns `None` if the first line is something else.
pub(super) fn read_log(text: &str) -> Option<Result<Distributions, Problem>> {
    let first = text.lines().next()?;
    let columns = first.split(',').count();
    let numbers = first
        .split(',')
        .map(|word| word.trim().parse::<u64>().is_ok());
    // The priority, the fifth column, can be hexadecimal.
    if columns < 4 || !numbers.take(4).all(|is_number| is_number) {
        return None;
    }
    if columns >= HISTOGRAM_COLUMNS {
        let why = "it is fio's log of histograms; use --output-format=json+ or write_lat_log";
        return Some(Err(broken(why)));
    }
    direction(first)?;
    Some(log(text))
}

/// Returns a line's value and direction; `None` if it is not a line of a log.
fn direction(line: &str) -> Option<(u64, usize)> {
    let mut words = line.split(',').map(str::trim);
    let value = words.nth(1)?.parse().ok()?;
    let direction = words.next()?.parse().ok()?;
    let is_known = words.next().is_some() && direction < DIRECTIONS.len();
    is_known.then_some((value, direction))
}

fn log(text: &str) -> Result<Distributions, Problem> {
    let mut counts: [BTreeMap<u64, u64>; 3] = Default::default();
    let mut lines = 0;
    for (number, line) in (1_u64..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let (value, direction) = direction(line)
            .ok_or_else(|| broken(format!("line {number} is not a line of a fio log")))?;
        *counts[direction].entry(value).or_default() += 1;
        lines += 1;
        if lines > MAX_VALUES {
            let why = format!("it contains more than {MAX_VALUES} values; compare a part of them");
            return Err(broken(why));
        }
    }
    let mut main = Vec::new();
    for (direction, counts) in DIRECTIONS.into_iter().zip(counts) {
        let bins = counts
            .into_iter()
            .map(|(value, count)| Bin::exact(value as f64, count));
        match Histogram::new(bins, 0, None) {
            Ok(histogram) => {
                let values = Values::Counted(histogram);
                main.push(Distribution::times(direction, values));
            }
            Err(HistogramError::Empty) => {}
            Err(error) => return Err(broken(error.to_string())),
        }
    }
    Ok(Distributions {
        kind: LOG,
        main,
        others: Vec::new(),
    })
}

/// Sets the logged quantity by the end of the file's name: `_lat`, `_clat` and `_slat` are in ns,
/// `_bw` in KiB/s and `_iops` in operations per second. The contents of the logs are alike.
pub(super) fn name_quantity(file: &str, distributions: &mut Distributions) {
    let stem = file.strip_suffix(".log").unwrap_or(file);
    // Each job has a log, with its number: `name_clat.1.log`.
    let stem = stem.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let (kind, unit, better) = match stem.rsplit_once('_').map(|(_, kind)| kind) {
        Some("lat" | "clat" | "slat") => ("fio latency log", Unit::Ns, Better::Lower),
        Some("bw") => ("fio bandwidth log", Unit::None, Better::Higher),
        Some("iops") => ("fio IOPS log", Unit::None, Better::Higher),
        _ => (LOG, Unit::None, Better::Unknown),
    };
    distributions.kind = kind;
    for distribution in &mut distributions.main {
        (distribution.unit, distribution.better) = (unit, better);
    }
}
