//! A percentage as people write it.

/// Reads a share of something, written `2%`: above 0, and 100 % at most.
pub(super) fn percentage(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|it| it.trim().parse().ok());
    let share = number.map(|percent: f64| percent / 100.0);
    let share = share.filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| format!("invalid share `{text}`: above 0% and up to 100%, such as 2%"))
}

#[cfg(test)]
mod tests {
    use super::percentage;

    #[test]
    fn shares_are_read_as_people_write_them() {
        for (text, share) in [("2%", 0.02), ("0.5 %", 0.005), ("100%", 1.0)] {
            assert_eq!(percentage(text), Ok(share));
        }
        for text in ["", "%", "2", "0%", "-1%", "101%", "nan%", "2%%", "x%"] {
            assert!(percentage(text).is_err(), "{text}");
        }
    }
}
