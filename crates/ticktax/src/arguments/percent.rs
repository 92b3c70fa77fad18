//! Parsing of percentages.

/// Parses a percentage above 0 % and up to 100 %, for example `2%`. Returns it as a fraction.
pub(super) fn percentage(text: &str) -> Result<f64, String> {
    let number = text
        .strip_suffix('%')
        .and_then(|number| number.trim().parse().ok());
    let share = number.map(|percent: f64| percent / 100.0);
    let share = share.filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| {
        format!("invalid share `{text}`: choose more than 0% and at most 100%, for example 2%")
    })
}

#[cfg(test)]
mod tests {
    use super::percentage;

    #[test]
    fn shares_are_parsed_from_percentages() {
        for (text, share) in [("2%", 0.02), ("0.5 %", 0.005), ("100%", 1.0)] {
            assert_eq!(percentage(text), Ok(share));
        }
        for text in ["", "%", "2", "0%", "-1%", "101%", "nan%", "2%%", "x%"] {
            assert!(percentage(text).is_err(), "{text}");
        }
    }
}
