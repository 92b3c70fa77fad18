//! Axes of plots. An axis maps each value to a position and has labelled ticks.

use ticktax_model::comparison::Unit;

/// An axis of a plot.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    title: String,
    is_log: bool,
    /// Smallest and largest value on the axis, or their decimal logarithms if the axis is
    /// logarithmic.
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Creates a linear axis from `low` to `high` with about five ticks.
    pub(super) fn linear(title: &str, (low, high): (f64, f64), unit: Unit) -> Self {
        let (low, high) = widened(low, high);
        let step = step(high - low, 5.0);
        let ticks = multiples(low, high, step);
        let ticks = ticks
            .into_iter()
            .map(|at| (at, label(at, step, high.abs().max(low.abs()), unit)));
        Self {
            title: title.to_owned(),
            is_log: false,
            low,
            high,
            ticks: ticks.collect(),
        }
    }

    /// Creates a logarithmic axis. Its ends are the powers of ten next to `low` and `high`, which
    /// must be positive.
    pub(super) fn log(title: &str, (low, high): (f64, f64), unit: Unit) -> Self {
        let low = low.max(f64::MIN_POSITIVE).log10().floor();
        let high = high.max(f64::MIN_POSITIVE).log10().ceil().max(low + 1.0);
        let every = ((high - low) / 8.0).ceil().max(1.0);
        let powers = multiples(low, high, every);
        let ticks = powers.into_iter().map(|power| {
            let value = 10f64.powf(power);
            (value, label(value, value, value, unit))
        });
        Self {
            title: title.to_owned(),
            is_log: true,
            low,
            high,
            ticks: ticks.collect(),
        }
    }

    /// Creates an axis that fits the values. It is logarithmic if all values are positive and span
    /// more than two powers of ten. A linear axis includes 0 unless all values are far from 0.
    pub(super) fn fitting(
        title: &str,
        values: impl Iterator<Item = f64> + Clone,
        unit: Unit,
    ) -> Self {
        let values = values.filter(|value| value.is_finite());
        let low = values.clone().fold(f64::MAX, f64::min);
        let high = values.fold(f64::MIN, f64::max);
        if low > high {
            return Self::linear(title, (0.0, 1.0), unit);
        }
        if low > 0.0 && high / low > 100.0 {
            Self::log(title, (low, high), unit)
        } else {
            let room = 0.1 * (high - low);
            // If all values are far from 0, they are easier to distinguish on an axis without 0.
            let is_far = low > 0.0 && high < 3.0 * low;
            let ends = if is_far {
                (low - room, high + room)
            } else {
                (low.min(0.0), high.max(0.0))
            };
            Self::linear(title, ends, unit)
        }
    }

    /// Creates an axis of percentiles for a distribution of `most` times. A time's position is the
    /// share of times that are longer.
    pub(super) fn percentiles(most: u64) -> Self {
        let decades = (most as f64).log10().max(1.0);
        let percentiles = [
            (1.0, "0"),
            (0.5, "50"),
            (0.1, "90"),
            (0.01, "99"),
            (1e-3, "99.9"),
            (1e-4, "99.99"),
            (1e-5, "99.999"),
        ];
        let named = percentiles
            .into_iter()
            .filter(|(above, _)| -f64::log10(*above) <= decades + 1e-9);
        Self {
            title: "percentile (% of times below)".to_owned(),
            is_log: true,
            low: 0.0,
            // The rarest, longest times are on the right.
            high: -decades,
            ticks: named
                .map(|(above, name)| (above, name.to_owned()))
                .collect(),
        }
    }

    /// Replaces the ticks.
    pub(super) fn with_ticks(mut self, ticks: Vec<(f64, String)>) -> Self {
        self.ticks = ticks;
        self
    }

    /// Returns the title of the axis.
    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Returns the ticks, each with its value and label.
    pub(super) fn ticks(&self) -> &[(f64, String)] {
        &self.ticks
    }

    /// Returns the position of a value along the axis, from 0 to 1. A value beyond an end of the
    /// axis is placed at that end.
    pub(super) fn part(&self, value: f64) -> f64 {
        let value = match (self.is_log, value > 0.0) {
            (true, true) => value.log10(),
            (true, false) => self.low,
            (false, _) => value,
        };
        let part = (value - self.low) / (self.high - self.low);
        if part.is_nan() {
            0.0
        } else {
            part.clamp(0.0, 1.0)
        }
    }

    /// Returns whether a value lies between the ends of the axis.
    pub(super) fn holds(&self, value: f64) -> bool {
        let value = if self.is_log { value.log10() } else { value };
        (self.low.min(self.high)..=self.low.max(self.high)).contains(&value)
    }
}

/// Widens an empty range so that its ends differ. Returns any other range unchanged.
fn widened(low: f64, high: f64) -> (f64, f64) {
    if high > low && (high - low).is_finite() {
        return (low, high);
    }
    let low = if low.is_finite() { low } else { 0.0 };
    let half = (low.abs() * 0.1).max(1e-9);
    (low - half, low + half)
}

/// Returns the step that divides `length` into about `wanted` parts. It is 1, 2 or 5 times a power
/// of ten.
fn step(length: f64, wanted: f64) -> f64 {
    let rough = length / wanted;
    let power = 10f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|times| times * power >= rough);
    times.unwrap_or(10.0) * power
}

/// Returns the multiples of `step` from `low` to `high`, but at most 40 of them.
fn multiples(low: f64, high: f64, step: f64) -> Vec<f64> {
    let slack = step * 1e-6;
    let first = ((low - slack) / step).ceil();
    let all = (0..40).map(|place| (first + f64::from(place)) * step);
    all.take_while(|at| *at <= high + slack).collect()
}

/// Returns the label of a tick. Adjacent ticks differ by `step`, and `most` is the largest value on
/// the axis.
fn label(value: f64, step: f64, most: f64, unit: Unit) -> String {
    let (value, step, name) = match unit {
        Unit::Ns | Unit::S => {
            let ns = if unit == Unit::S { 1e9 } else { 1.0 };
            let (value, step, most) = (value * ns, step * ns, most * ns);
            let units = [(1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1.0, " ns")];
            let fits = units.into_iter().find(|(size, _)| most >= *size * 0.999);
            let (size, name) = fits.unwrap_or((1.0, " ns"));
            (value / size, step / size, name)
        }
        Unit::Share => (100.0 * value, 100.0 * step, " %"),
        Unit::Hz | Unit::PerMinute | Unit::Count | Unit::Bps | Unit::None => (value, step, ""),
    };
    format!("{}{name}", number(value, step))
}

/// Formats a number with as many decimals as `step` needs.
fn number(value: f64, step: f64) -> String {
    // Avoid a negative zero.
    let value = if value.abs() < step.abs() * 1e-6 {
        0.0
    } else {
        value
    };
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e7).contains(&size) {
        return format!("{value:.0e}");
    }
    let places = (-(step.abs().max(1e-9).log10() + 1e-9).floor()).clamp(0.0, 8.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to 0 to 8"
    )]
    let places = places as usize;
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use ticktax_model::comparison::Unit;

    use super::Axis;

    fn names(axis: &Axis) -> Vec<&str> {
        axis.ticks().iter().map(|(_, name)| &**name).collect()
    }

    #[test]
    fn tick_labels_are_round_and_have_units() {
        let axis = Axis::linear("time", (-5e6, 5e6), Unit::Ns);
        assert_eq!(names(&axis), ["-4 ms", "-2 ms", "0 ms", "2 ms", "4 ms"]);
        let axis = Axis::linear("share", (0.0, 0.03), Unit::Share);
        assert_eq!(names(&axis), ["0 %", "1 %", "2 %", "3 %"]);
        let axis = Axis::log("time", (3.0, 2e9), Unit::Ns);
        assert_eq!(names(&axis).first(), Some(&"1 ns"));
        assert_eq!(names(&axis).last(), Some(&"10 s"));
        let axis = Axis::linear("rate", (0.0, 1.0), Unit::None);
        assert_eq!(names(&axis), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    }

    #[test]
    fn every_value_has_a_position_on_every_axis() {
        let all = [
            Axis::linear("", (1.0, 1.0), Unit::None),
            Axis::linear("", (f64::NAN, f64::INFINITY), Unit::Ns),
            Axis::log("", (0.0, f64::INFINITY), Unit::None),
            Axis::fitting("", [].into_iter(), Unit::Share),
            Axis::fitting("", [1e-3, 1e9].into_iter(), Unit::None),
            Axis::percentiles(0),
        ];
        for axis in &all {
            assert!(axis.ticks().len() <= 40, "{axis:?}");
            for value in [0.0, -1.0, 1.0, f64::NAN, f64::MAX, f64::NEG_INFINITY] {
                assert!((0.0..=1.0).contains(&axis.part(value)), "{axis:?}: {value}");
            }
        }
        let percentiles = Axis::percentiles(1_000);
        let part = |above| percentiles.part(above);
        assert!(part(1.0) < part(0.1) && part(0.1) < part(0.001));
        assert!(percentiles.holds(0.5) && !percentiles.holds(1e-6));
    }
}
