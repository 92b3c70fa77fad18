//! The text format: families of metrics, each declared before its values.

use std::collections::HashMap;
use std::fmt::Write;

use ticktax_model::totals::IntervalSum;
use ticktax_model::{Histogram, Nanos};

/// The families so far.
#[derive(Default)]
pub(super) struct Families(Vec<Family>);

impl Families {
    /// A family of totals; its values' names end in `_total`.
    pub(super) fn counter(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, "counter", "_total")
    }

    /// A family of values that may rise and fall.
    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, "gauge", "")
    }

    /// A family of lengths, counted by how long they are.
    pub(super) fn histogram(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, "histogram", "")
    }

    /// A family whose labels are what it says.
    pub(super) fn info(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, "info", "_info")
    }

    /// All of it.
    pub(super) fn finish(self) -> String {
        let mut text = String::new();
        for family in self.0 {
            family.write(&mut text);
        }
        text.push_str("# EOF\n");
        text
    }

    fn family(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
        suffix: &'static str,
    ) -> &mut Family {
        self.0.push(Family {
            name,
            help,
            kind,
            suffix,
            values: Vec::new(),
            histograms: Vec::new(),
        });
        self.0.last_mut().expect("one was just added")
    }
}

/// A family that values are given to.
pub(super) struct Family {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    suffix: &'static str,
    /// Each with its labels, as they are written.
    values: Vec<(String, f64)>,
    /// The same of a histogram.
    histograms: Vec<(String, IntervalSum)>,
}

/// The upper ends of a histogram's buckets in ns, four times apart, from 1 µs to 4.3 s: each is an end of
/// one of ours, so that no count is spread over two.
fn bucket_ends() -> impl Iterator<Item = Nanos> {
    (10..=32).step_by(2).map(|power| Nanos(1 << power))
}

impl Family {
    /// A time, which is written in seconds.
    pub(super) fn time(&mut self, labels: &[(&'static str, &str)], time: Nanos) {
        self.value(labels, time.as_secs_f64());
    }

    /// A value.
    pub(super) fn value(&mut self, labels: &[(&'static str, &str)], value: f64) {
        self.values.push((written(labels), value));
    }

    /// Lengths; their sum is own time.
    pub(super) fn intervals(&mut self, labels: &[(&'static str, &str)], of: &IntervalSum) {
        self.histograms.push((written(labels), of.clone()));
    }

    /// A set of labels must be there once only, and all sets have the same names: where two would be
    /// alike, all get the label `nth`.
    fn number(&mut self) {
        let mut seen: HashMap<String, u32> = HashMap::new();
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
            let comma = if labels.is_empty() { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(labels, "{comma}nth=\"{place}\"");
        }
    }

    /// Writes the family, where it has any values: a parser takes none without.
    fn write(mut self, text: &mut String) {
        if self.values.is_empty() && self.histograms.is_empty() {
            return;
        }
        self.number();
        let name = self.name;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# TYPE ticktax_{name} {}", self.kind);
        let units = ["seconds", "bytes", "hertz", "ratio"];
        let unit = units.into_iter().find(|unit| name.ends_with(unit));
        // Not every parser takes the unit of a histogram.
        if let Some(unit) = unit.filter(|_| self.histograms.is_empty()) {
            let _ = writeln!(text, "# UNIT ticktax_{name} {unit}");
        }
        let _ = writeln!(text, "# HELP ticktax_{name} {}", escaped(self.help));
        for (labels, value) in &self.values {
            let _ = write!(text, "ticktax_{name}{}", self.suffix);
            if !labels.is_empty() {
                let _ = write!(text, "{{{labels}}}");
            }
            let _ = writeln!(text, " {}", number(*value, self.kind));
        }
        for (labels, of) in &self.histograms {
            write_histogram(text, name, labels, of);
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
    let sum = number(of.time.as_secs_f64(), "counter");
    let _ = writeln!(text, "ticktax_{name}_count{braces} {all}");
    let _ = writeln!(text, "ticktax_{name}_sum{braces} {sum}");
}

/// Labels as they are written.
fn written(labels: &[(&'static str, &str)]) -> String {
    let named = labels.iter();
    let named = named.map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    named.collect::<Vec<_>>().join(",")
}

/// A number as a value is written. A total cannot be negative: an overdrawn account is 0 there, and
/// the gauge `books_balanced` tells.
fn number(value: f64, kind: &str) -> String {
    let value = if kind == "counter" {
        value.max(0.0)
    } else {
        value
    };
    if value.is_finite() {
        value.to_string()
    } else {
        "NaN".to_owned()
    }
}

/// A text as help and labels hold it: backslash, line break and quotation mark are escaped.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '"' => escaped.push_str("\\\""),
            other => escaped.push(other),
        }
    }
    escaped
}
