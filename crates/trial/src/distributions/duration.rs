//! Times with units, as load generators print them.

/// Parses a time such as `250.00us`, `1.2ms` or `1m2.5s`, and returns it in ns. Returns `None` if
/// `text` is not a time.
pub(super) fn nanoseconds(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let factor = match &rest[..end] {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3_600e9,
            _ => return None,
        };
        total += number * factor;
        rest = &rest[end..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::nanoseconds;

    #[test]
    fn times_of_all_units() {
        for (text, ns) in [
            ("0s", 0.0),
            ("193ns", 193.0),
            ("635.91us", 635_910.0),
            ("15.18µs", 15_180.0),
            ("5.80ms", 5_800_000.0),
            ("1m2.5s", 62.5e9),
            ("1h", 3.6e12),
        ] {
            let found = nanoseconds(text).unwrap();
            assert!((found - ns).abs() < 1e-6 * ns.max(1.0), "{text}: {found}");
        }
        for text in ["", "5", "ms", "5 ms", "1.2.3s", "-1s", "5kB", "nan"] {
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }
}
