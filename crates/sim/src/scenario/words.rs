//! Parses the notation for times and distributions in scenarios.

use serde::{Deserialize, Deserializer, de};
use ticktax_model::Nanos;

use crate::random::Law;

/// A time with a unit, such as `3ms`, `27.5us` or `10s`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Time(pub(super) Nanos);

/// A time or a distribution. `3ms` is constant, `3ms ± 0.1ms` is normal, `exp 3ms` is exponential,
/// and `1ms..2ms` is uniform.
#[derive(Clone, Copy, Debug)]
pub(super) struct LawText(pub(super) Law);

fn time(text: &str) -> Option<Nanos> {
    text.parse().ok()
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
        text.parse().map(Self).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for LawText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || {
            format!(
                "invalid duration or distribution `{text}`: use, for example, 3ms, 3ms ± 0.1ms, \
                 exp 3ms, 1ms + exp 2ms or \
                 1ms..2ms"
            )
        };
        law(&text)
            .map(Self)
            .ok_or_else(|| de::Error::custom(wrong()))
    }
}

#[test]
fn distributions_are_parsed() {
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
