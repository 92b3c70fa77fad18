//! The binary format that Prometheus requests if it accepts native histograms. It consists of
//! length-delimited `MetricFamily` messages, with the field numbers of Prometheus's
//! `metrics.proto`.
//!
//! Each histogram has both kinds of buckets: the classic buckets of the text format, and native
//! buckets. Prometheus uses the kind it is configured for.

use prost::Message;
use ticktax_model::Histogram;
use ticktax_model::totals::IntervalSum;

use super::Label;
use super::families::{Family, FamilyKind, bucket_ends};

/// Native histogram schema with four buckets per power of two, like a ticktax [`Histogram`].
const SCHEMA: i32 = 2;
const STEPS: f64 = 4.0;

/// Threshold of the native zero bucket, in seconds. The first bucket of a ticktax histogram, which
/// counts lengths below 1 ns, maps to the zero bucket.
const ZERO: f64 = 1e-9;

/// Appends a family to `bytes`.
pub(super) fn write(family: &Family, bytes: &mut Vec<u8>) {
    let values = family.values.iter().map(|(labels, value)| {
        let value = Number {
            value: Some(family.kind.value(*value)),
        };
        let mut metric = Metric {
            label: pairs(labels),
            ..Metric::default()
        };
        match family.kind {
            FamilyKind::Counter => metric.counter = Some(value),
            _ => metric.gauge = Some(value),
        }
        metric
    });
    let histograms = family.histograms.iter().map(|(labels, sum)| Metric {
        label: pairs(labels),
        histogram: Some(histogram(sum)),
        ..Metric::default()
    });
    let message = MetricFamily {
        name: Some(format!("ticktax_{}{}", family.name, family.kind.suffix())),
        help: Some(family.help.to_owned()),
        r#type: Some(match family.kind {
            FamilyKind::Counter => MetricType::Counter.into(),
            FamilyKind::Gauge | FamilyKind::Info => MetricType::Gauge.into(),
            FamilyKind::Histogram => MetricType::Histogram.into(),
        }),
        metric: values.chain(histograms).collect(),
    };
    // Encoding cannot fail, because a `Vec` grows as needed.
    let _ = message.encode_length_delimited(bytes);
}

fn pairs(labels: &[Label]) -> Vec<LabelPair> {
    let labels = labels.iter();
    let pair = |(name, value): &Label| LabelPair {
        name: Some((*name).to_owned()),
        value: Some(value.clone()),
    };
    labels.map(pair).collect()
}

fn histogram(sum: &IntervalSum) -> HistogramMessage {
    let counts = sum.histogram.counts();
    let classic = bucket_ends().map(|end| Bucket {
        cumulative_count: Some(counts[..Histogram::bucket(end)].iter().sum()),
        upper_bound: Some(end.as_secs_f64()),
    });
    let (positive_span, positive_delta) = native(&sum.histogram);
    HistogramMessage {
        sample_count: Some(sum.histogram.total()),
        sample_sum: Some(FamilyKind::Counter.value(sum.time.as_secs_f64())),
        bucket: classic.collect(),
        schema: Some(SCHEMA),
        zero_threshold: Some(ZERO),
        zero_count: Some(counts[0]),
        positive_span,
        positive_delta,
    }
}

/// Returns the index of the native bucket for bucket `index` of a ticktax histogram, which is the
/// native bucket that contains the upper bound of the ticktax bucket. The bounds differ, because a
/// power of two in nanoseconds is not a power of two in seconds. A length may therefore be reported
/// up to 11 % too long, but never too short. At 4 ns and above, no two ticktax buckets share a
/// native bucket.
fn native_index(index: usize) -> i32 {
    let end = Histogram::lower(index + 1).as_secs_f64();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "-120 to 25 for all possible lengths of an interval"
    )]
    let native = (end.log2() * STEPS).ceil() as i32;
    native
}

/// Converts all buckets of a ticktax histogram, except the first, to native buckets. Returns the
/// spans of consecutive buckets, and the difference of each count from the previous count.
fn native(histogram: &Histogram) -> (Vec<BucketSpan>, Vec<i64>) {
    let (mut spans, mut deltas) = (Vec::<BucketSpan>::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    let counts = histogram.counts().iter().enumerate().skip(1);
    for (index, &count) in counts.filter(|(_, count)| **count > 0) {
        let native = native_index(index);
        match spans.last_mut() {
            Some(span) if native == next => span.length = span.length.map(|length| length + 1),
            _ => spans.push(BucketSpan {
                offset: Some(native - next),
                length: Some(1),
            }),
        }
        next = native + 1;
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        deltas.push(count - before);
        before = count;
    }
    (spans, deltas)
}

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    help: Option<String>,
    #[prost(enumeration = "MetricType", optional, tag = "3")]
    r#type: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Number>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<HistogramMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

/// A message that can be encoded as either `Gauge` or `Counter`, which have the same fields.
#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct HistogramMessage {
    #[prost(uint64, optional, tag = "1")]
    sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<BucketSpan>,
    // By default, proto2 does not pack repeated numbers.
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    upper_bound: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct BucketSpan {
    #[prost(sint32, optional, tag = "1")]
    offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    length: Option<u32>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;
    use ticktax_model::totals::{IntervalSum, Totals};
    use ticktax_model::{Cpu, Histogram, Nanos};

    use super::{HistogramMessage, MetricFamily, STEPS, native_index};
    use crate::openmetrics::families::Families;
    use crate::openmetrics::{metrics, metrics_protobuf};

    fn families(mut bytes: &[u8]) -> Vec<MetricFamily> {
        let mut families = Vec::new();
        while !bytes.is_empty() {
            families.push(MetricFamily::decode_length_delimited(&mut bytes).unwrap());
        }
        families
    }

    fn totals(lengths: &[i64]) -> Totals {
        let mut sum = IntervalSum::default();
        for &length in lengths {
            sum.record(Nanos(length), Nanos(length));
        }
        let mut totals = Totals::default();
        totals.ticks.insert(Cpu(0), sum);
        totals
    }

    /// Returns the histogram of tick durations.
    fn ticks(totals: &Totals) -> HistogramMessage {
        let families = families(&metrics_protobuf(totals));
        let name = Some("ticktax_tick_duration_seconds".to_owned());
        let family = families
            .into_iter()
            .find(|family| family.name == name)
            .unwrap();
        family.metric[0].histogram.clone().unwrap()
    }

    /// Decodes the native buckets into pairs of a bucket index and a count.
    fn counts(histogram: &HistogramMessage) -> Vec<(i32, i64)> {
        let (mut index, mut count) = (0, 0);
        let mut deltas = histogram.positive_delta.iter();
        let mut found = Vec::new();
        for span in &histogram.positive_span {
            index += span.offset.unwrap();
            for _ in 0..span.length.unwrap() {
                count += deltas.next().unwrap();
                found.push((index, count));
                index += 1;
            }
        }
        assert_eq!(deltas.next(), None);
        found
    }

    /// Returns the upper bound of the native bucket `index`, in ns.
    fn end(index: i32) -> f64 {
        (f64::from(index) / STEPS).exp2() * 1e9
    }

    proptest! {
        #[test]
        fn native_buckets_count_every_length_once(
            lengths in prop::collection::vec(0i64..60_000_000_000, 0..300),
        ) {
            let histogram = ticks(&totals(&lengths));
            let counts = counts(&histogram);
            let all: i64 = counts.iter().map(|bucket| bucket.1).sum();
            let zeros = histogram.zero_count.unwrap();
            prop_assert_eq!(all.unsigned_abs() + zeros, lengths.len() as u64);
            prop_assert_eq!(histogram.sample_count, Some(lengths.len() as u64));
            // Check that no length exceeds the upper bound of the native bucket that counts it.
            let mut lengths = lengths.clone();
            lengths.sort_unstable();
            let mut longest = 0;
            for (index, count) in counts {
                longest += usize::try_from(count).unwrap();
                let last = lengths[longest + usize::try_from(zeros).unwrap() - 1];
                prop_assert!((last as f64) < end(index), "{} in {}", last, end(index));
            }
        }
    }

    #[test]
    fn our_buckets_map_to_distinct_native_ones_at_most_11_percent_longer() {
        let mut before = native_index(3);
        for index in 4..Histogram::BUCKETS - 1 {
            let native = native_index(index);
            assert!(native > before, "{index}");
            before = native;
            let own = Histogram::lower(index + 1).0 as f64;
            let longer = end(native) / own;
            assert!((1.0..1.11).contains(&longer), "{index}: {longer}");
        }
    }

    #[test]
    fn an_empty_histogram_is_still_a_native_one() {
        let histogram = ticks(&totals(&[]));
        // Prometheus recognizes a native histogram by its zero bucket.
        assert_eq!(histogram.zero_threshold, Some(1e-9));
        assert_eq!(histogram.schema, Some(2));
        assert!(histogram.positive_span.is_empty());
    }

    #[test]
    fn the_binary_format_has_the_values_of_the_text() {
        let totals = totals(&[900, 1_024, 5_000_000_000]);
        let text = metrics(&totals);
        for family in families(&metrics_protobuf(&totals)) {
            let name = family.name.unwrap();
            for metric in family.metric {
                let Some(histogram) = metric.histogram else {
                    let value = metric.counter.or(metric.gauge).unwrap().value.unwrap();
                    let labels: Vec<String> = metric
                        .label
                        .iter()
                        .map(|pair| format!("{}=\"{}\"", pair.name(), pair.value()))
                        .collect();
                    let labels = labels.join(",");
                    let labels = if labels.is_empty() {
                        labels
                    } else {
                        format!("{{{labels}}}")
                    };
                    let line = format!("{name}{labels} {value}\n");
                    assert!(text.contains(&line), "no {line} in {text}");
                    continue;
                };
                for bucket in histogram.bucket {
                    let (end, count) = (bucket.upper_bound(), bucket.cumulative_count());
                    let line = format!("{name}_bucket{{cpu=\"0\",le=\"{end}\"}} {count}\n");
                    assert!(text.contains(&line), "no {line} in {text}");
                }
            }
        }
    }

    #[test]
    fn the_encoding_matches_one_worked_out_by_hand() {
        // Encoded by hand: the length of the message, then a family with one gauge.
        let mut all = Families::default();
        all.gauge("x", "y").value(&[("a", "b")], 1.0);
        let expected = [
            &[0x25][..],
            &[0x0a, 9],
            b"ticktax_x",
            &[0x12, 1],
            b"y",
            &[0x18, 1],
            &[0x22, 0x13],
            &[0x0a, 6, 0x0a, 1, b'a', 0x12, 1, b'b'],
            &[0x12, 9, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        ]
        .concat();
        assert_eq!(all.finish_protobuf(), expected);
    }
}
