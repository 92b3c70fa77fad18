//! Turns the names of JSON fields into readable words with units.

use ticktax_model::Nanos;

use super::quantity::Quantity;

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unit {
    /// A time. The field contains the number of nanoseconds per unit.
    Time(f64),
    /// A moment in Unix time. The field contains the number of milliseconds per unit.
    Moment(i64),
    /// A share from 0 to 1.
    Share,
    /// A probability.
    Chance,
    Bytes,
    /// Any other unit, which is written after the number. It may be empty.
    Named(&'static str),
}

/// Suffixes of field names, and the units that they stand for.
const UNITS: &[(&str, Unit)] = &[
    ("_unix_ms", Unit::Moment(1)),
    ("_unix_s", Unit::Moment(1_000)),
    ("_ns", Unit::Time(1.0)),
    ("_us", Unit::Time(1e3)),
    ("_ms", Unit::Time(1e6)),
    ("_s", Unit::Time(1e9)),
    ("_hz", Unit::Named("Hz")),
    ("_bps", Unit::Named("bit/s")),
    ("_khz", Unit::Named("kHz")),
    ("_mhz", Unit::Named("MHz")),
    ("_ppm", Unit::Named("ppm")),
    ("_bytes", Unit::Bytes),
    ("_cores", Unit::Named("CPUs")),
    ("_fps", Unit::Named("frames/s")),
];

/// Field names, or ends of field names, that denote shares and probabilities. They remain in the
/// name that is shown.
const PARTS_OF_ONE: [(&str, Unit); 3] = [
    ("share", Unit::Share),
    ("probability", Unit::Chance),
    ("false_alarm", Unit::Chance),
];

/// Name of a field in words, and its unit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Heading {
    pub(super) words: String,
    /// Unit of the field's numbers.
    unit: Unit,
}

impl Heading {
    /// Turns a field name, or several names joined with dots, into words. The last name that has a
    /// unit determines the unit.
    pub(super) fn new(name: &str) -> Self {
        let mut unit = Unit::Named("");
        let words = name.split('.').map(|part| {
            let (part, own) = split(part);
            unit = own.unwrap_or(unit);
            words_of(part)
        });
        let words: Vec<String> = words.collect();
        Self {
            words: words.join(": "),
            unit,
        }
    }

    /// Returns a number in this field's unit.
    pub(super) fn quantity(&self, number: &serde_json::Number) -> Quantity {
        let value = number.as_f64().unwrap_or(f64::NAN);
        match (self.unit, number.as_i64()) {
            (Unit::Time(scale), _) if scale > 1.0 => Quantity::ns(value * scale),
            (Unit::Time(_), Some(ns)) => Quantity::time(Nanos(ns)),
            (Unit::Time(_), None) => Quantity::ns(value),
            (Unit::Moment(scale), Some(at)) => {
                let unit = if scale == 1 { "ms" } else { "s" };
                let raw = format!("{at} {unit} since 1970");
                Quantity::moment(at.saturating_mul(scale), raw)
            }
            (Unit::Share, _) => Quantity::share(value),
            (Unit::Chance, _) => Quantity::chance(value),
            (Unit::Bytes, _) => Quantity::bytes(value),
            (Unit::Named(""), Some(_)) | (Unit::Moment(_), None) => number.to_string().into(),
            (Unit::Named(unit), _) => Quantity::number(value, unit),
        }
    }
}

/// Field names that the reports express in other words, and these words.
const WORDS: [(&str, &str); 8] = [
    ("arm", "variant"),
    ("arms", "variants"),
    ("beat", "periodic source"),
    ("beats", "periodic sources"),
    ("overshot", "slots without a frame in time"),
    ("soakers", "soak probes"),
    ("turns", "runs"),
    ("victim", "program"),
];

/// Returns a field name in words, without its unit.
fn words_of(name: &str) -> String {
    let known = WORDS.iter().find(|(field, _)| *field == name);
    known.map_or_else(|| name.replace('_', " "), |(_, words)| (*words).to_owned())
}

/// Splits a field name into its words and its unit, which is `None` if the name contains no unit.
fn split(name: &str) -> (&str, Option<Unit>) {
    if let Some((end, unit)) = UNITS.iter().find(|(end, _)| name.ends_with(end)) {
        return (&name[..name.len() - end.len()], Some(*unit));
    }
    let part = PARTS_OF_ONE.iter().find(|(end, _)| {
        let before = name.strip_suffix(end);
        before.is_some_and(|before| before.is_empty() || before.ends_with('_'))
    });
    (name, part.map(|(_, unit)| *unit))
}

#[cfg(test)]
mod tests {
    use super::{Heading, Unit};

    #[test]
    fn a_name_has_words_and_a_unit() {
        for (name, words, unit) in [
            ("time_ns", "time", Unit::Time(1.0)),
            ("began_unix_s", "began", Unit::Moment(1_000)),
            ("busy_share", "busy share", Unit::Share),
            ("share", "share", Unit::Share),
            ("share.difference_low", "share: difference low", Unit::Share),
            ("rate_hz.first", "rate: first", Unit::Named("Hz")),
            ("rhythm.false_alarm", "rhythm: false alarm", Unit::Chance),
            ("cpu.off_ppm", "cpu: off", Unit::Named("ppm")),
            ("wake_ups", "wake ups", Unit::Named("")),
            ("parameters", "parameters", Unit::Named("")),
        ] {
            let heading = Heading::new(name);
            assert_eq!((&*heading.words, heading.unit), (words, unit), "{name}");
        }
    }
}
