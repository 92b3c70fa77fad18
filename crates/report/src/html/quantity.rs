//! Quantities in tables. Each is shown as a readable number, and hovering over it shows the exact
//! value.

use std::fmt::Write;

use ticktax_model::Nanos;
use ticktax_model::utc::Utc;

use super::escape::{attribute, text};

/// Number of significant digits shown.
const DIGITS: i32 = 5;
/// Smallest probability that is shown as a number. Smaller ones are shown as less than this.
const LEAST_CHANCE: f64 = 1e-12;

/// Contents of a table cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Quantity {
    shown: String,
    /// Exact value with its unit. Empty if `shown` is already exact.
    raw: String,
}

impl Quantity {
    /// Creates a quantity from the number that is shown and the exact value.
    pub(super) fn new(shown: String, raw: String) -> Self {
        let raw = if raw == shown { String::new() } else { raw };
        Self { shown, raw }
    }

    /// Creates a quantity from a time in whole nanoseconds.
    pub(super) fn time(time: Nanos) -> Self {
        Self::new(short(time.0 as f64), format!("{} ns", time.0))
    }

    /// Creates a quantity from a time in ns that can have decimals.
    pub(super) fn ns(ns: f64) -> Self {
        Self::new(short(ns), format!("{ns} ns"))
    }

    /// Creates a quantity from a share between 0 and 1. It is shown in percent.
    pub(super) fn share(share: f64) -> Self {
        Self::new(percent(share), share.to_string())
    }

    /// Creates a quantity from a difference between two shares. It is shown in percentage points.
    pub(super) fn points(points: f64) -> Self {
        let sign = if points >= 0.000_005 { "+" } else { "" };
        let points_shown = percent(points).replace('%', "pp");
        Self::new(format!("{sign}{points_shown}"), points.to_string())
    }

    /// Creates a quantity from a probability.
    pub(super) fn chance(chance: f64) -> Self {
        let shown = match chance {
            p if p < LEAST_CHANCE => "< 1e-12".to_owned(),
            p if p < 0.000_1 => format!("{p:.0e}"),
            p => percent(p),
        };
        Self::new(shown, chance.to_string())
    }

    /// Creates a quantity from a number and its unit, which may be empty.
    pub(super) fn number(value: f64, unit: &str) -> Self {
        let with_unit = |number: String| match unit {
            "" => number,
            unit => format!("{number} {unit}"),
        };
        Self::new(
            with_unit(trimmed(&significant(value, DIGITS + 1))),
            with_unit(value.to_string()),
        )
    }

    /// Creates a quantity from a size in bytes.
    pub(super) fn bytes(bytes: f64) -> Self {
        const UNITS: [(f64, &str); 3] = [
            (1_073_741_824.0, "GiB"),
            (1_048_576.0, "MiB"),
            (1_024.0, "KiB"),
        ];
        let raw = format!("{bytes} bytes");
        let fits = UNITS.into_iter().find(|(size, _)| bytes.abs() >= *size);
        let shown = match fits {
            Some((size, unit)) => format!("{} {unit}", significant(bytes / size, DIGITS - 1)),
            None => raw.clone(),
        };
        Self::new(shown, raw)
    }

    /// Creates a quantity from a moment in ms since 1970, which is shown in UTC. `raw` is the exact
    /// value.
    pub(super) fn moment(unix_ms: i64, raw: String) -> Self {
        let shown = Utc::from_unix_ms(unix_ms).to_string();
        // Leave out zero milliseconds, because most moments in a document are whole seconds.
        Self::new(shown.replace(".000 UTC", " UTC"), raw)
    }

    /// Creates a quantity for an unknown value.
    pub(super) fn unknown() -> Self {
        "–".to_owned().into()
    }

    /// The readable number.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Writes the quantity as a table cell.
    pub(super) fn cell(&self, out: &mut String) {
        // Writing to a `String` cannot fail.
        let _ = write!(out, "<td{}>{}</td>", self.title(), text(&self.shown));
    }

    /// Writes the quantity as an element within a line of text.
    pub(super) fn span(&self, out: &mut String) {
        let _ = write!(out, "<span{}>{}</span>", self.title(), text(&self.shown));
    }

    fn title(&self) -> String {
        if self.raw.is_empty() {
            String::new()
        } else {
            format!(" title=\"{}\"", attribute(&self.raw))
        }
    }
}

impl From<String> for Quantity {
    fn from(shown: String) -> Self {
        Self {
            shown,
            raw: String::new(),
        }
    }
}

impl From<u64> for Quantity {
    fn from(count: u64) -> Self {
        count.to_string().into()
    }
}

/// Formats a time in ns with five significant digits. Decimals are in groups of three: `4.000 6
/// ms`.
fn short(ns: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    let fits = UNITS
        .into_iter()
        .find(|(scale, _)| ns.abs() >= 0.999_995 * scale);
    match fits {
        Some((scale, unit)) => format!("{} {unit}", significant(ns / scale, DIGITS)),
        None => format!("{} ns", trimmed(&significant(ns, DIGITS))),
    }
}

/// Formats a share in percent with about three significant digits, but at most three decimals.
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    let places = match percent.abs() {
        0.0 => return "0 %".to_owned(),
        size if size < 0.000_5 && share < 0.0 => return "> -0.001 %".to_owned(),
        size if size < 0.000_5 => return "< 0.001 %".to_owned(),
        size if size < 0.099_5 => 3,
        size if size < 9.95 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    format!("{percent:.places$} %")
}

/// Formats a number with `digits` significant digits. Decimals are in groups of three.
fn significant(value: f64, digits: i32) -> String {
    let size = value.abs();
    if size == 0.0 || !value.is_finite() {
        return if size == 0.0 {
            "0".to_owned()
        } else {
            value.to_string()
        };
    }
    if !(1e-6..1e15).contains(&size) {
        return format!("{value:.1e}");
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the logarithm of a double is below 400"
    )]
    let places = digits - 1 - size.log10().floor() as i32;
    let places = usize::try_from(places.max(0)).unwrap_or(0);
    let number = format!("{value:.places$}");
    let Some((whole, decimals)) = number.split_once('.') else {
        return number;
    };
    let mut out = format!("{whole}.");
    for (place, digit) in decimals.chars().enumerate() {
        if place > 0 && place % 3 == 0 {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Removes zeros from the end of the decimals.
fn trimmed(number: &str) -> String {
    if !number.contains('.') || number.contains('e') {
        return number.to_owned();
    }
    let number = number.trim_end_matches(['0', ' ']);
    number.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::Quantity;

    #[test]
    fn quantities_are_readable_and_keep_the_exact_value() {
        for (quantity, shown, raw) in [
            (Quantity::time(Nanos(4_000_599)), "4.000 6 ms", "4000599 ns"),
            (Quantity::time(Nanos(812)), "812 ns", ""),
            (Quantity::time(Nanos(0)), "0 ns", ""),
            (
                Quantity::time(Nanos(-8_042_078)),
                "-8.042 1 ms",
                "-8042078 ns",
            ),
            (
                Quantity::time(Nanos(30_999_000_000)),
                "30.999 s",
                "30999000000 ns",
            ),
            (Quantity::ns(81_000.5), "81.001 µs", "81000.5 ns"),
            (Quantity::share(0.799_036_496), "79.9 %", "0.799036496"),
            (Quantity::share(0.0), "0 %", "0"),
            (Quantity::points(0.046_42), "+4.64 pp", "0.04642"),
            (Quantity::points(-0.000_001), "> -0.001 pp", ""),
            (Quantity::share(0.000_432_7), "0.043 %", "0.0004327"),
            (Quantity::share(1.0), "100 %", "1"),
            (Quantity::chance(0.0), "< 1e-12", "0"),
            (Quantity::chance(3e-123), "< 1e-12", ""),
            (Quantity::chance(4e-10), "4e-10", "0.0000000004"),
            (Quantity::chance(0.05), "5.00 %", "0.05"),
            (Quantity::number(22_445.2, "Hz"), "22445.2 Hz", ""),
            (
                Quantity::number(132.799_999_999_999_98, ""),
                "132.8",
                "132.79999999999998",
            ),
            (Quantity::bytes(93_847_552.0), "89.50 MiB", "93847552 bytes"),
            (Quantity::bytes(17.0), "17 bytes", ""),
            (
                Quantity::moment(1_700_000_000_123, "1700000000123 ms since 1970".to_owned()),
                "2023-11-14 22:13:20.123 UTC",
                "1700000000123 ms since 1970",
            ),
        ] {
            assert_eq!(quantity.shown, shown);
            if !raw.is_empty() {
                assert_eq!(quantity.raw, raw, "{shown}");
            }
        }
    }
}
