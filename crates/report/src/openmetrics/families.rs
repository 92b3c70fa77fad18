//! Metric families with their names, help texts and values. Both the text format and the binary
//! format declare each family before its values.

use std::collections::HashMap;
use std::fmt::Write;

use ticktax_model::totals::IntervalSum;
use ticktax_model::{Histogram, Nanos};

use super::{Label, protobuf};
use crate::clean::name_hidden;

/// Labels that distinguish one value of a family from the others.
type Labels = Vec<Label>;

/// Metric families added so far.
#[derive(Default)]
pub(super) struct Families(Vec<Family>);

impl Families {
    /// Adds a family of totals. The names of its values end in `_total`.
    pub(super) fn counter(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, FamilyKind::Counter)
    }

    /// Adds a family of values that can rise and fall.
    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, FamilyKind::Gauge)
    }

    /// Adds a family of histograms of interval lengths.
    pub(super) fn histogram(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, FamilyKind::Histogram)
    }

    /// Adds a family whose labels carry the information. Its value is always 1.
    pub(super) fn info(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, FamilyKind::Info)
    }

    /// Renders the families as OpenMetrics text.
    pub(super) fn finish(self) -> String {
        let mut text = String::new();
        for family in self.ready() {
            family.write(&mut text);
        }
        text.push_str("# EOF\n");
        text
    }

    /// Renders the families as Prometheus protocol buffers.
    pub(super) fn finish_protobuf(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for family in self.ready() {
            protobuf::write(&family, &mut bytes);
        }
        bytes
    }

    /// Returns the families that have values, because parsers reject empty families.
    fn ready(self) -> impl Iterator<Item = Family> {
        let families = self.0.into_iter();
        let families =
            families.filter(|family| !family.values.is_empty() || !family.histograms.is_empty());
        families.map(|mut family| {
            family.number();
            family
        })
    }

    fn family(&mut self, name: &'static str, help: &'static str, kind: FamilyKind) -> &mut Family {
        self.0.push(Family {
            name,
            help,
            kind,
            values: Vec::new(),
            histograms: Vec::new(),
        });
        self.0.last_mut().expect("one was just added")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyKind {
    /// Totals, which only grow.
    Counter,
    /// Values that can rise and fall.
    Gauge,
    /// Histograms of interval lengths.
    Histogram,
    /// Labels that carry information; the value is 1.
    Info,
}

impl FamilyKind {
    /// Returns the name of the kind in OpenMetrics text.
    const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    /// Returns the suffix that this kind adds to the names of a family's values.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

/// A metric family under construction.
pub(super) struct Family {
    /// Name of the family without the prefix `ticktax_`.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: FamilyKind,
    pub(super) values: Vec<(Labels, f64)>,
    /// Values of the family if it consists of histograms.
    pub(super) histograms: Vec<(Labels, IntervalSum)>,
}

/// Returns the upper bounds of the exported histogram buckets, from 1 µs to 4.3 s in steps of a
/// factor of 4. Each is also a bucket bound of a ticktax [`Histogram`], so no bucket has to be
/// split.
pub(super) fn bucket_ends() -> impl Iterator<Item = Nanos> {
    (10..=32).step_by(2).map(|power| Nanos(1 << power))
}

impl Family {
    /// Adds a time, which is written in seconds.
    pub(super) fn time(&mut self, labels: &[(&'static str, &str)], time: Nanos) {
        self.value(labels, time.as_secs_f64());
    }

    pub(super) fn value(&mut self, labels: &[(&'static str, &str)], value: f64) {
        self.values.push((owned(labels), value));
    }

    /// Adds a histogram of interval lengths. Its sum is the intervals' total own time, which
    /// excludes interruptions.
    pub(super) fn intervals(&mut self, labels: &[(&'static str, &str)], sum: &IntervalSum) {
        self.histograms.push((owned(labels), sum.clone()));
    }

    /// Makes label sets unique, as the format requires. If any two are equal, every set gets the
    /// label `nth`, because all sets in a family must have the same label names.
    fn number(&mut self) {
        let mut seen: HashMap<Labels, u32> = HashMap::new();
        let mut places = Vec::with_capacity(self.values.len());
        for (labels, _) in &self.values {
            let count = seen.entry(labels.clone()).or_default();
            *count += 1;
            places.push(*count);
        }
        if places.iter().all(|place| *place == 1) {
            return;
        }
        for ((labels, _), place) in self.values.iter_mut().zip(places) {
            labels.push(("nth", place.to_string()));
        }
    }

    fn write(&self, text: &mut String) {
        let name = self.name;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# TYPE ticktax_{name} {}", self.kind.word());
        let units = ["seconds", "bytes", "hertz", "ratio"];
        let unit = units.into_iter().find(|unit| name.ends_with(unit));
        // Some parsers reject a unit for histograms.
        if let Some(unit) = unit.filter(|_| self.histograms.is_empty()) {
            let _ = writeln!(text, "# UNIT ticktax_{name} {unit}");
        }
        let _ = writeln!(text, "# HELP ticktax_{name} {}", escaped(self.help));
        for (labels, value) in &self.values {
            let _ = write!(text, "ticktax_{name}{}", self.kind.suffix());
            if !labels.is_empty() {
                let _ = write!(text, "{{{}}}", written(labels));
            }
            let _ = writeln!(text, " {}", number(self.kind.value(*value)));
        }
        for (labels, sum) in &self.histograms {
            write_histogram(text, name, &written(labels), sum);
        }
    }
}

/// Writes one histogram. Lengths above the last bound are counted only in the `+Inf` bucket.
fn write_histogram(text: &mut String, name: &str, labels: &str, lengths: &IntervalSum) {
    let comma = if labels.is_empty() { "" } else { "," };
    let counts = lengths.histogram.counts();
    let mut bucket = |end: &str, count: u64| {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "ticktax_{name}_bucket{{{labels}{comma}le=\"{end}\"}} {count}"
        );
    };
    for end in bucket_ends() {
        let below = &counts[..Histogram::bucket(end)];
        bucket(&end.as_secs_f64().to_string(), below.iter().sum());
    }
    let all = lengths.histogram.total();
    bucket("+Inf", all);
    let braces = if labels.is_empty() {
        String::new()
    } else {
        format!("{{{labels}}}")
    };
    let sum = number(FamilyKind::Counter.value(lengths.time.as_secs_f64()));
    let _ = writeln!(text, "ticktax_{name}_count{braces} {all}");
    let _ = writeln!(text, "ticktax_{name}_sum{braces} {sum}");
}

fn owned(labels: &[(&'static str, &str)]) -> Labels {
    let named = labels.iter();
    named
        .map(|&(name, value)| (name, value.to_owned()))
        .collect()
}

/// Formats labels for OpenMetrics text.
fn written(labels: &[Label]) -> String {
    let named = labels.iter();
    let named = named.map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    named.collect::<Vec<_>>().join(",")
}

impl FamilyKind {
    /// Returns the value to write. A total cannot be negative, so a negative account is written as
    /// 0, and the gauge `books_balanced` shows the problem.
    pub(super) fn value(self, value: f64) -> f64 {
        match self {
            Self::Counter => value.max(0.0),
            _ => value,
        }
    }
}

/// Formats a number. Numbers that are not finite become `NaN`.
fn number(value: f64) -> String {
    if value.is_finite() {
        value.to_string()
    } else {
        "NaN".to_owned()
    }
}

/// Escapes backslashes, line breaks and quotation marks in a help text or label value. Hidden
/// characters are replaced with their code points, because people also read metrics in terminals,
/// and different names must stay distinguishable.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '"' => escaped.push_str("\\\""),
            other => name_hidden(&mut escaped, other),
        }
    }
    escaped
}
