//! Times and laws as people write them.

use serde::{Deserialize, Deserializer, de};
use ticktax_model::Nanos;

use crate::random::Law;

/// A time with its unit: `3ms`, `27.5us`, `10s`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Time(pub(super) Nanos);

/// A law: `3ms`, `3ms ± 0.1ms` for a normal one, `exp 3ms`, `1ms..2ms` for a uniform one.
#[derive(Clone, Copy, Debug)]
pub(super) struct LawText(pub(super) Law);

const UNITS: [(&str, i64); 5] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

/// Reads a time of 0 or more.
pub(super) fn time(text: &str) -> Option<Nanos> {
    let text = text.trim();
    let (number, scale) = UNITS
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?.trim(), *scale)))
        .filter(|(number, _)| number.chars().all(|c| c.is_ascii_digit() || c == '.'))?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    // Digit by digit, so that no time is rounded on its way through a binary fraction.
    let mut value = whole.parse::<i64>().ok()?.checked_mul(scale)?;
    let mut place = scale;
    for digit in part.chars() {
        place /= 10;
        value = value.checked_add(i64::from(digit.to_digit(10)?) * place)?;
    }
    Some(Nanos(value))
}

fn law(text: &str) -> Option<Law> {
    if let Some(mean) = text.trim().strip_prefix("exp ") {
        return Some(Law::Exponential(time(mean)?));
    }
    if let Some((min, mean)) = text.split_once("+ exp ") {
        return Some(Law::Spaced(time(min)?, time(mean)?));
    }
    if let Some((mean, deviation)) = text.split_once('±') {
        return Some(Law::Normal(time(mean)?, time(deviation)?));
    }
    if let Some((low, high)) = text.split_once("..") {
        return Some(Law::Uniform(time(low)?, time(high)?)).filter(Law::is_sound);
    }
    Some(Law::Fixed(time(text)?))
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || format!("`{text}` is no time: write 3ms, 27.5us or 10s");
        time(&text)
            .map(Self)
            .ok_or_else(|| de::Error::custom(wrong()))
    }
}

impl<'de> Deserialize<'de> for LawText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || {
            format!(
                "`{text}` is no time or law: write 3ms, 3ms ± 0.1ms, exp 3ms, 1ms + exp 2ms or 1ms..2ms"
            )
        };
        law(&text)
            .map(Self)
            .ok_or_else(|| de::Error::custom(wrong()))
    }
}

#[test]
fn times_and_laws_read_as_written() {
    assert_eq!(time("27.5us"), Some(Nanos(27_500)));
    assert_eq!(time("0.1 ms"), Some(Nanos(100_000)));
    assert_eq!(time("10s"), Some(Nanos(10_000_000_000)));
    assert_eq!(time("-1ms"), None);
    assert_eq!(time("ms"), None);
    assert_eq!(time("99999999999s"), None);
    assert_eq!(time("9223372036.854775807s"), Some(Nanos::MAX));
    assert_eq!(time("9223372036.854775808s"), None);
    assert_eq!(law("exp 3ms"), Some(Law::Exponential(Nanos(3_000_000))));
    assert_eq!(
        law("3ms ± 100us"),
        Some(Law::Normal(Nanos(3_000_000), Nanos(100_000)))
    );
    assert_eq!(
        law("1ms + exp 2ms"),
        Some(Law::Spaced(Nanos(1_000_000), Nanos(2_000_000)))
    );
    assert_eq!(law("2ms..1ms"), None);
}
