//! Reads the output of `wrk --latency`, which has percentiles without counts.

use super::duration::nanoseconds;
use super::{Distribution, Distributions, Percentile, Values, broken};
use crate::numbers::Problem;

pub(super) fn read(text: &str) -> Result<Distributions, Problem> {
    let mut percentiles = Vec::new();
    let mut max = None;
    let mut is_table = false;
    for line in text.lines().map(str::trim) {
        let mut words = line.split_whitespace();
        match words.next() {
            // Average, standard deviation, maximum and the share within one standard deviation.
            Some("Latency") if words.clone().count() == 4 => {
                max = words.nth(2).and_then(nanoseconds);
            }
            Some("Latency") => is_table = line.starts_with("Latency Distribution"),
            Some(percent) if is_table && percent.ends_with('%') => {
                let number: Option<f64> = percent.trim_end_matches('%').parse().ok();
                let value = words.next().and_then(nanoseconds);
                let (number, value) = number.zip(value).ok_or_else(|| {
                    broken(format!("its latency distribution has the line `{line}`"))
                })?;
                percentiles.push(Percentile {
                    name: format!("p{number}"),
                    value,
                });
            }
            _ => is_table = false,
        }
    }
    if percentiles.is_empty() {
        let why = "it is output of wrk without a latency distribution; run wrk with --latency";
        return Err(broken(why));
    }
    percentiles.extend(max.map(|value| Percentile {
        name: "max".to_owned(),
        value,
    }));
    Ok(Distributions {
        kind: "wrk output",
        main: vec![Distribution::times(
            "latency",
            Values::Percentiles(percentiles),
        )],
        others: Vec::new(),
    })
}
