//! Reads the interval logs of `HdrHistogram` (`.hlog`).
//!
//! Each line has an optional tag, the start and the length of an interval, its largest value, and a
//! histogram in base64: compressed, in the format V2. The crate `hdrhistogram` decodes the
//! histogram. It trusts the lengths in it, so they are checked first.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::Deserializer;
use ticktax_model::comparison::{Better, Unit};

use super::histogram::{Bin, Histogram};
use super::{Distribution, Distributions, Values, broken};
use crate::numbers::Problem;

/// First bytes of a compressed histogram in the format V2.
const COMPRESSED: [u8; 4] = [0x1c, 0x84, 0x93, 0x14];
/// Number of bytes of the header of a histogram, before its counts.
const HEADER: usize = 40;
/// Maximum size of a histogram's contents, which is more than the largest histogram has.
const MAX_INFLATED: usize = 64 << 20;
/// Maximum number of intervals.
const MAX_INTERVALS: usize = 100_000;
/// Bytes of a count that the crate cannot negate.
const LOWEST: [u8; 9] = [0xff; 9];

/// Counts by bin, as the lowest and the highest value in it.
type Counts = BTreeMap<(u64, u64), u64>;

/// Returns whether a text without a heading is a log.
pub(super) fn is_log(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.starts_with(['#', '"']));
    lines.next().is_some_and(|line| {
        let payload = line.rsplit(',').next();
        line.split(',').count() >= 4 && payload.is_some_and(|payload| payload.starts_with("HIST"))
    })
}

pub(super) fn read(text: &str) -> Result<Distributions, Problem> {
    let mut tags: Vec<(String, Counts)> = Vec::new();
    let mut deserializer = Deserializer::new();
    let mut intervals = 0;
    for (number, line) in (1_u64..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '"']) {
            continue;
        }
        intervals += 1;
        if intervals > MAX_INTERVALS {
            return Err(broken(format!(
                "it has more than {MAX_INTERVALS} intervals"
            )));
        }
        let (tag, rest) = match line
            .strip_prefix("Tag=")
            .and_then(|line| line.split_once(','))
        {
            Some((tag, rest)) => (tag, rest),
            None => ("", line),
        };
        let payload = rest.splitn(4, ',').nth(3);
        let payload = payload.ok_or("it has no histogram");
        let name = if tag.is_empty() { "untagged" } else { tag };
        let at = tags
            .iter()
            .position(|(name, _)| name == tag)
            .unwrap_or_else(|| {
                tags.push((tag.to_owned(), Counts::new()));
                tags.len() - 1
            });
        let counts = &mut tags[at].1;
        let added = payload.and_then(|payload| add(counts, payload, &mut deserializer));
        added.map_err(|why| broken(format!("line {number} ({name}): {why}")))?;
    }
    let is_single = tags.len() == 1;
    let mut main = Vec::with_capacity(tags.len());
    for (tag, counts) in tags {
        let bins = counts.into_iter().map(|((low, high), count)| Bin {
            low: low as f64,
            value: high as f64,
            high: high as f64,
            count,
        });
        let name = match &*tag {
            "" if is_single => "values",
            "" => "untagged",
            tag => tag,
        };
        // An interval can be empty. A tag with only empty intervals has nothing to compare.
        let Ok(histogram) = Histogram::new(bins, 0, None) else {
            continue;
        };
        main.push(Distribution {
            name: name.to_owned(),
            unit: Unit::None,
            better: Better::Lower,
            values: Values::Counted(histogram),
        });
    }
    if main.is_empty() {
        return Err(broken("it is an HdrHistogram log without values"));
    }
    Ok(Distributions {
        kind: "HdrHistogram log",
        main,
        others: Vec::new(),
    })
}

/// Adds a histogram's counts.
fn add(
    counts: &mut Counts,
    payload: &str,
    deserializer: &mut Deserializer,
) -> Result<(), &'static str> {
    const DAMAGED: &str = "the histogram is damaged";
    let bytes = STANDARD.decode(payload.trim()).map_err(|_| DAMAGED)?;
    let compressed = bytes.strip_prefix(&COMPRESSED);
    let compressed = compressed.ok_or("the histogram is not in the compressed format V2")?;
    let compressed = compressed.get(4..).ok_or(DAMAGED)?;
    let inflated =
        miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(compressed, MAX_INFLATED);
    let inflated = inflated.map_err(|_| DAMAGED)?;
    let length = inflated.get(4..8).and_then(|length| length.try_into().ok());
    let length = length.map(u32::from_be_bytes).ok_or(DAMAGED)?;
    let rest = inflated.get(HEADER..).ok_or(DAMAGED)?;
    if usize::try_from(length).is_ok_and(|length| length > rest.len())
        || memchr::memmem::find(rest, &LOWEST).is_some()
    {
        return Err(DAMAGED);
    }
    let histogram: hdrhistogram::Histogram<u64> = deserializer
        .deserialize(&mut &*inflated)
        .map_err(|_| DAMAGED)?;
    for step in histogram.iter_recorded() {
        let value = step.value_iterated_to();
        let bin = (
            histogram.lowest_equivalent(value),
            histogram.highest_equivalent(value),
        );
        let count = counts.entry(bin).or_default();
        *count = count.saturating_add(step.count_at_value());
    }
    Ok(())
}
