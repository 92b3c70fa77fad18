//! Formats values and effects, for every page that compares arms.

use ticktax_model::Nanos;
use ticktax_model::comparison::{Effect, Scale, Unit};

use super::net::words::bits;
use super::numbers::percent;

/// Rounds a time in ns to an integer.
#[expect(
    clippy::cast_possible_truncation,
    reason = "times of centuries saturate at the maximum"
)]
fn time(ns: f64) -> Nanos {
    Nanos(ns.round() as i64)
}

/// Formats a value with its unit.
pub(super) fn value(unit: Unit, value: f64) -> String {
    let suffix = match unit {
        Unit::Hz => "/s",
        Unit::PerMinute => "/min",
        Unit::Ns | Unit::S | Unit::Share | Unit::Count | Unit::Bps | Unit::None => "",
    };
    cell(unit, value) + suffix
}

/// Formats a value for a column whose heading says what is counted.
pub(super) fn cell(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Ns => time(value).to_string(),
        Unit::S => time(value * 1e9).to_string(),
        Unit::Share => percent(value),
        Unit::Count => format!("{value:.0}"),
        Unit::Bps => bits(value),
        Unit::Hz | Unit::PerMinute | Unit::None => plain(value),
    }
}

/// Formats a number without a unit, with four digits and at most two decimals, or with three digits
/// if it is below 1.
fn plain(value: f64) -> String {
    let size = value.abs();
    match size {
        0.0 => "0".to_owned(),
        size if !(1e-4..1e7).contains(&size) => format!("{value:.3e}"),
        size if size >= 999.95 => format!("{value:.0}"),
        size => {
            let digits = if size < 1.0 { 3 } else { 4 };
            let places = decimals(size, digits);
            let places = if size < 1.0 { places } else { places.min(2) };
            format!("{value:.places$}")
        }
    }
}

/// Returns the number of decimals that gives `size` a total of `digits` significant digits.
fn decimals(size: f64, digits: i32) -> usize {
    let magnitude = size.log10().floor();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the logarithm of a double is below 400"
    )]
    let places = digits - 1 - magnitude as i32;
    usize::try_from(places.clamp(0, 8)).unwrap_or(0)
}

/// Formats a probability. A small one is reduced to its order of magnitude.
pub(super) fn chance(p: f64) -> String {
    match p {
        p if p >= 0.0995 => format!("{p:.2}"),
        p if p >= 0.00995 => format!("{p:.3}"),
        p if p >= 0.000_1 => format!("{p:.4}"),
        p if p >= 1e-12 => format!("{p:.0e}"),
        _ => "<1e-12".to_owned(),
    }
}

/// How to format differences in a metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    unit: Unit,
    scale: Scale,
}

impl Shown {
    pub(super) const fn new(unit: Unit, scale: Scale) -> Self {
        Self { unit, scale }
    }

    /// Returns the suffix for differences shown in percent or percentage points, or `None` if they
    /// are shown in the metric's unit.
    fn suffix(self) -> Option<&'static str> {
        match (self.scale, self.unit) {
            (Scale::Relative, _) => Some(" %"),
            (Scale::Absolute, Unit::Share) => Some(" pp"),
            (Scale::Absolute, _) => None,
        }
    }

    /// Formats a difference with its sign. A percentage gets `places` decimals.
    fn signed(self, difference: f64, places: usize) -> String {
        if self.suffix().is_some() {
            let is_points = self.scale == Scale::Absolute;
            let places = if is_points { places.min(2) } else { places };
            let percent = 100.0 * difference;
            // A confidence interval from two or three blocks can be extremely wide.
            return if percent.abs() < 1e5 {
                format!("{percent:+.places$}")
            } else {
                format!("{percent:+.0e}")
            };
        }
        let sign = if difference < 0.0 { "-" } else { "+" };
        format!("{sign}{}", value(self.unit, difference.abs()))
    }

    fn with_suffix(self, mut text: String) -> String {
        text.push_str(self.suffix().unwrap_or_default());
        text
    }

    /// Formats an effect with as many digits as its confidence interval justifies.
    pub(super) fn effect(self, effect: &Effect) -> String {
        self.with_suffix(self.signed(effect.value, places(effect)))
    }

    /// Formats the confidence interval of an effect without its unit, for use next to the effect.
    pub(super) fn interval(self, effect: &Effect) -> String {
        let end_text = |end| self.signed(end, places(effect));
        format!("{} to {}", end_text(effect.low), end_text(effect.high))
    }

    /// Formats the confidence interval of an effect with its unit.
    pub(super) fn interval_with_unit(self, effect: &Effect) -> String {
        self.with_suffix(self.interval(effect))
    }

    /// Formats the values of two arms, the effect, and its interval without a unit. If the effect
    /// is unknown but absolute, it is the difference of the values.
    pub(super) fn cells(
        self,
        first: Option<f64>,
        second: Option<f64>,
        effect: Option<Effect>,
    ) -> [String; 4] {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let difference = || match self.scale {
            Scale::Absolute => {
                let difference = second? - first?;
                let places = decimals((100.0 * difference).abs().max(1e-3), 2).clamp(1, 3);
                Some(self.with_suffix(self.signed(difference, places)))
            }
            Scale::Relative => None,
        };
        [
            or_dash(first.map(|first| value(self.unit, first))),
            or_dash(second.map(|second| value(self.unit, second))),
            or_dash(
                effect
                    .map(|effect| self.effect(&effect))
                    .or_else(difference),
            ),
            or_dash(effect.map(|effect| self.interval(&effect))),
        ]
    }

    /// Formats the size of a difference, without a sign.
    pub(super) fn size(self, size: f64) -> String {
        match self.suffix() {
            Some(suffix) => {
                let percent = 100.0 * size;
                match percent {
                    percent if percent <= 0.0 => format!("0{suffix}"),
                    percent if percent < 1e5 => {
                        let places = decimals(percent, 2).min(3);
                        format!("{percent:.places$}{suffix}")
                    }
                    percent => format!("{percent:.0e}{suffix}"),
                }
            }
            None => value(self.unit, size),
        }
    }

    /// Formats an upper bound on the size of a difference. If the metric is itself a percentage, a
    /// percentage of it could be mistaken for percentage points.
    pub(super) fn limit(self, bound: f64) -> String {
        let size = self.size(bound);
        match (self.scale, self.unit) {
            (Scale::Relative, Unit::Share) => format!("{size} of the value"),
            _ => size,
        }
    }

    /// Formats a value of the metric, as opposed to a difference between values.
    pub(super) fn of_metric(self, metric_value: f64) -> String {
        value(self.unit, metric_value)
    }

    /// Formats the difference between two effects with its sign, in percentage points if the
    /// effects are percentages.
    pub(super) fn error(self, error: f64) -> String {
        let places = decimals((100.0 * error).abs().max(1e-3), 2).min(3);
        let text = self.signed(error, places);
        match self.suffix() {
            Some(_) => text + " pp",
            None => text,
        }
    }

    /// Formats a difference with its sign and unit.
    pub(super) fn change(self, change: f64) -> String {
        let places = decimals((100.0 * change).abs().max(1e-3), 2).min(3);
        self.with_suffix(self.signed(change, places))
    }
}

/// Returns the number of decimals for an effect in percent. It leaves two significant digits in the
/// width of the confidence interval.
fn places(effect: &Effect) -> usize {
    let width = 100.0 * (effect.high - effect.low);
    if width > 0.0 {
        decimals(width, 2).min(4)
    } else {
        2
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::comparison::{Effect, Scale, Unit};

    use super::{Shown, chance, plain, value};

    #[test]
    fn values_have_three_or_four_significant_digits() {
        for (number, text) in [
            (61.970_333, "61.97"),
            (0.0, "0"),
            (1_234.6, "1235"),
            (-3.5, "-3.50"),
            (0.012_34, "0.0123"),
            (1e9, "1.000e9"),
            (999.96, "1000"),
        ] {
            assert_eq!(plain(number), text);
        }
        assert_eq!(value(Unit::Ns, 2_030_000_000.0), "2.03 s");
        assert_eq!(value(Unit::S, 0.25), "250 ms");
        assert_eq!(value(Unit::Share, 0.031), "3.1 %");
        assert_eq!(value(Unit::Hz, 59.94), "59.94/s");
        for (p, text) in [
            (1.0, "1.00"),
            (0.0312, "0.031"),
            (0.002_16, "0.0022"),
            (1.9e-6, "2e-6"),
        ] {
            assert_eq!(chance(p), text);
        }
    }

    #[test]
    fn an_effect_has_the_precision_of_its_interval() {
        let effect = |value, low, high| Effect { value, low, high };
        let shown = Shown::new(Unit::None, Scale::Relative);
        let published = effect(-0.025_28, -0.0281, -0.0223);
        assert_eq!(shown.effect(&published), "-2.53 %");
        assert_eq!(shown.interval_with_unit(&published), "-2.81 to -2.23 %");
        let wide = effect(0.4, 0.1, 0.9);
        assert_eq!(
            (shown.effect(&wide), shown.interval(&wide)),
            ("+40 %".into(), "+10 to +90".into())
        );
        let points = Shown::new(Unit::Share, Scale::Absolute);
        assert_eq!(points.effect(&effect(-0.1, -0.12, -0.08)), "-10.0 pp");
        let times = Shown::new(Unit::Ns, Scale::Absolute);
        assert_eq!(
            times.interval_with_unit(&effect(5.0, -3.0, 1_200_000.0)),
            "-3 ns to +1.20 ms"
        );
        assert_eq!(shown.size(0.0123), "1.2 %");
        assert_eq!(times.size(1_500.0), "1.50 µs");
        assert_eq!(shown.change(0.107), "+11 %");
        assert_eq!(shown.size(0.0), "0 %");
        let anywhere = effect(0.5, -0.99, 4.2e58);
        assert_eq!(shown.interval(&anywhere), "-99 to +4e60");
        assert_eq!(shown.size(4.2e58), "4e60 %");
    }
}
