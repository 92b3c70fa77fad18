//! Turns field names into readable words with units.

/// Name suffixes and their units.
const UNITS: &[(&str, &str)] = &[
    ("_unix_ms", "ms since 1970"),
    ("_unix_s", "s since 1970"),
    ("_ns", "ns"),
    ("_us", "µs"),
    ("_ms", "ms"),
    ("_s", "s"),
    ("_hz", "Hz"),
    ("_khz", "kHz"),
    ("_mhz", "MHz"),
    ("_ppm", "ppm"),
    ("_bytes", "bytes"),
    ("_cores", "CPU seconds per second"),
    ("_fps", "frames/s"),
];

/// Names and name suffixes of values from 0 to 1.
const PARTS_OF_ONE: [&str; 2] = ["share", "probability"];

/// A field's name in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Heading {
    pub(super) words: String,
    /// Empty if the field has no unit.
    pub(super) unit: &'static str,
}

impl Heading {
    /// The words for a name, or for several names joined by dots.
    pub(super) fn new(name: &str) -> Self {
        let found = UNITS.iter().find(|(end, _)| name.ends_with(end));
        let part = PARTS_OF_ONE.iter().any(|end| {
            let before = name.strip_suffix(end);
            before.is_some_and(|before| before.is_empty() || before.ends_with(['_', '.']))
        });
        let (name, unit) = match found {
            Some((end, unit)) => (&name[..name.len() - end.len()], *unit),
            None if part => (name, "0 to 1"),
            None => (name, ""),
        };
        Self {
            words: name.replace('_', " ").replace('.', ": "),
            unit,
        }
    }

    /// The words, followed by the unit.
    pub(super) fn with_unit(&self) -> String {
        match self.unit {
            "" => self.words.clone(),
            unit => format!("{} ({unit})", self.words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Heading;

    #[test]
    fn a_unit_follows_the_name() {
        for (name, words) in [
            ("time_ns", "time (ns)"),
            ("began_unix_s", "began (s since 1970)"),
            ("busy_share", "busy share (0 to 1)"),
            ("share", "share (0 to 1)"),
            ("cpu.off_ppm", "cpu: off (ppm)"),
            ("wake_ups", "wake ups"),
            ("parameters", "parameters"),
        ] {
            assert_eq!(Heading::new(name).with_unit(), words, "{name}");
        }
    }
}
