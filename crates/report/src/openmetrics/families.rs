//! Families of metrics: what they are called, what they mean, and their values. Each is declared before its values,
//! in text and in the binary format.

use std::collections::HashMap;
use std::fmt::Write;

use ticktax_model::totals::IntervalSum;
use ticktax_model::{Histogram, Nanos};

use super::{Label, protobuf};
use crate::clean::name_hidden;

/// What tells the values of a family from each other.
type Labels = Vec<Label>;

/// The families so far.
#[derive(Default)]
pub(super) struct Families(Vec<Family>);

impl Families {
    /// A family of totals; its values' names end in `_total`.
    pub(super) fn counter(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, FamilyKind::Counter)
    }

    /// A family of values that may rise and fall.
    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, FamilyKind::Gauge)
    }

    /// A family of lengths, counted by how long they are.
    pub(super) fn histogram(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, FamilyKind::Histogram)
    }

    /// A family whose labels are what it says.
    pub(super) fn info(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, FamilyKind::Info)
    }

    /// All of it, as OpenMetrics text.
    pub(super) fn finish(self) -> String {
        let mut text = String::new();
        for family in self.ready() {
            family.write(&mut text);
        }
        text.push_str("# EOF\n");
        text
    }

    /// All of it, as Prometheus' protocol buffers.
    pub(super) fn finish_protobuf(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for family in self.ready() {
            protobuf::write(&family, &mut bytes);
        }
        bytes
    }

    /// The families that have any values: a parser takes none without.
    fn ready(self) -> impl Iterator<Item = Family> {
        let families = self.0.into_iter();
        let families = families.filter(|it| !it.values.is_empty() || !it.histograms.is_empty());
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

/// What the values of a family are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyKind {
    /// Totals, which only grow.
    Counter,
    /// Values that may rise and fall.
    Gauge,
    /// Lengths, counted by how long they are.
    Histogram,
    /// Labels that say something; the value is 1.
    Info,
}

impl FamilyKind {
    /// The word for it.
    const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    /// What the names of its values end in.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

/// A family that values are given to.
pub(super) struct Family {
    /// Without the `ticktax_` that stands before it.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: FamilyKind,
    pub(super) values: Vec<(Labels, f64)>,
    /// Of a histogram.
    pub(super) histograms: Vec<(Labels, IntervalSum)>,
}

/// The upper ends of a histogram's buckets in ns, four times apart, from 1 µs to 4.3 s: each is an end of
/// one of ours, so that no count is spread over two.
pub(super) fn bucket_ends() -> impl Iterator<Item = Nanos> {
    (10..=32).step_by(2).map(|power| Nanos(1 << power))
}

impl Family {
    /// A time, which is written in seconds.
    pub(super) fn time(&mut self, labels: &[(&'static str, &str)], time: Nanos) {
        self.value(labels, time.as_secs_f64());
    }

    /// A value.
    pub(super) fn value(&mut self, labels: &[(&'static str, &str)], value: f64) {
        self.values.push((owned(labels), value));
    }

    /// Lengths; their sum is own time.
    pub(super) fn intervals(&mut self, labels: &[(&'static str, &str)], of: &IntervalSum) {
        self.histograms.push((owned(labels), of.clone()));
    }

    /// A set of labels must be there once only, and all sets have the same names: where two would be
    /// alike, all get the label `nth`.
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

    /// Writes the family.
    fn write(&self, text: &mut String) {
        let name = self.name;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# TYPE ticktax_{name} {}", self.kind.word());
        let units = ["seconds", "bytes", "hertz", "ratio"];
        let unit = units.into_iter().find(|unit| name.ends_with(unit));
        // Not every parser takes the unit of a histogram.
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
        for (labels, of) in &self.histograms {
            write_histogram(text, name, &written(labels), of);
        }
    }
}

/// Writes the values of one histogram. What is longer than its last end is only in the last bucket.
fn write_histogram(text: &mut String, name: &str, labels: &str, of: &IntervalSum) {
    let comma = if labels.is_empty() { "" } else { "," };
    let counts = of.histogram.counts();
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
    let all = of.histogram.total();
    bucket("+Inf", all);
    let braces = if labels.is_empty() {
        String::new()
    } else {
        format!("{{{labels}}}")
    };
    let sum = number(FamilyKind::Counter.value(of.time.as_secs_f64()));
    let _ = writeln!(text, "ticktax_{name}_count{braces} {all}");
    let _ = writeln!(text, "ticktax_{name}_sum{braces} {sum}");
}

/// Labels that are kept.
fn owned(labels: &[(&'static str, &str)]) -> Labels {
    let named = labels.iter();
    named
        .map(|&(name, value)| (name, value.to_owned()))
        .collect()
}

/// Labels as they are written.
fn written(labels: &[Label]) -> String {
    let named = labels.iter();
    let named = named.map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    named.collect::<Vec<_>>().join(",")
}

impl FamilyKind {
    /// A value as it is told. A total cannot be negative: an overdrawn account is 0 there, and the gauge
    /// `books_balanced` tells.
    pub(super) fn value(self, value: f64) -> f64 {
        match self {
            Self::Counter => value.max(0.0),
            _ => value,
        }
    }
}

/// A number as it is written.
fn number(value: f64) -> String {
    if value.is_finite() {
        value.to_string()
    } else {
        "NaN".to_owned()
    }
}

/// A text as help and labels hold it: backslash, line break and quotation mark are escaped, and
/// hidden characters are named. Metrics are looked at in terminals as well, and two names must stay
/// two.
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
