//! Conditions given with `--fail-if`, such as `--fail-if 'p99 > +2%'`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ArmEffect, Metric, Scale, Unit};

/// A condition that makes a trial fail, such as `p99 > +2%`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailIf {
    /// Name of the metric.
    pub metric: String,
    /// Side of the bound where the effect must lie for the condition to hold.
    pub relation: Relation,
    /// Bound that the arm's effect is compared with.
    pub bound: Bound,
}

/// Side of a bound that an effect lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// `>`
    Above,
    /// `<`
    Below,
}

/// Bound that an effect is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Bound as a share of the first arm's value. A bound of 0.02 is written `+2%`.
    Share(f64),
    /// Bound on the difference of two shares, in percentage points. A bound of 0.02 is written
    /// `+2pp`.
    #[serde(rename = "points_share")]
    Points(f64),
}

/// Outcome of a condition for one arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The condition holds: the effect's entire confidence interval lies beyond the bound.
    Holds,
    /// The condition does not hold: no part of the confidence interval lies beyond the bound.
    DoesNotHold,
    /// Undecided, because the confidence interval contains the bound or is itself unknown.
    CannotTell,
}

/// A condition, with its result for one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailIfResult {
    /// Condition.
    pub condition: FailIf,
    /// Index of the arm in the trial's list of arms.
    pub arm: usize,
    /// Result.
    pub outcome: Outcome,
}

/// Why a `--fail-if` condition is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailIfError {
    /// The text does not have the form of a condition.
    #[error(
        "invalid condition `{0}`: use METRIC > +N% or METRIC < -N%, or +Npp (percentage points) \
         for shares, for example 'p99 > +2%'"
    )]
    Syntax(String),
    /// The trial does not measure the condition's metric.
    #[error("condition `{condition}` uses `{metric}`, which is not measured: choose {measured}")]
    Metric {
        /// Condition.
        condition: String,
        /// Metric that the condition names.
        metric: String,
        /// Metrics that the trial measures, as a list in text.
        measured: String,
    },
    /// The bound is in percentage points, but the values of the metric are not shares.
    #[error(
        "invalid condition `{condition}`: percentage points (pp) need a metric that is a share, \
         and {metric} is not; use a relative change, for example '+2%'"
    )]
    Points {
        /// Condition.
        condition: String,
        /// Metric that the condition names.
        metric: String,
    },
}

impl FailIf {
    /// Parses a condition.
    ///
    /// # Errors
    /// Returns an error if `text` does not have the form of a condition.
    pub fn parse(text: &str) -> Result<Self, FailIfError> {
        Self::read(text).ok_or_else(|| FailIfError::Syntax(text.trim().to_owned()))
    }

    fn read(text: &str) -> Option<Self> {
        let at = text.find(['<', '>'])?;
        let (metric, rest) = text.split_at(at);
        let relation = if rest.starts_with('>') {
            Relation::Above
        } else {
            Relation::Below
        };
        let bound = rest[1..].trim();
        let is_word = |character: char| character.is_alphanumeric() || "_-.:".contains(character);
        let metric = metric.trim();
        if metric.is_empty() || !metric.chars().all(is_word) {
            return None;
        }
        let number = |text: &str| {
            let text = text.trim_end();
            let is_plain =
                |character: char| character.is_ascii_digit() || "+-.".contains(character);
            let number: f64 = text.parse().ok()?;
            (text.chars().all(is_plain) && number.is_finite()).then_some(number / 100.0)
        };
        let points = bound.strip_suffix("pp").or(bound.strip_suffix("pt"));
        let bound = match (bound.strip_suffix('%'), points) {
            (Some(share), _) => Bound::Share(number(share)?),
            (_, Some(points)) => Bound::Points(number(points)?),
            (None, None) => return None,
        };
        Some(Self {
            metric: metric.to_owned(),
            relation,
            bound,
        })
    }

    /// Checks whether the condition applies to one of the measured `metrics`.
    ///
    /// # Errors
    /// Returns an error if the condition's metric is not measured, or if the bound is in percentage
    /// points but the metric's values are not shares.
    pub fn check(&self, metrics: &[Metric]) -> Result<(), FailIfError> {
        let (condition, metric) = (self.to_string(), self.metric.clone());
        let Some(found) = metrics.iter().find(|known| known.id == self.metric) else {
            let measured: Vec<&str> = metrics.iter().map(|metric| &*metric.id).collect();
            return Err(FailIfError::Metric {
                condition,
                metric,
                measured: measured.join(", "),
            });
        };
        if matches!(self.bound, Bound::Points(_)) && found.unit != Unit::Share {
            return Err(FailIfError::Points { condition, metric });
        }
        Ok(())
    }

    /// Tests the condition on an effect, given the `mean` of the first arm. The result is undecided
    /// unless the effect's entire confidence interval lies on one side of the bound.
    pub fn outcome(&self, effect: &ArmEffect, mean: f64) -> Outcome {
        let bound = match (self.bound, effect.scale) {
            (Bound::Share(bound), Scale::Relative) | (Bound::Points(bound), Scale::Absolute) => {
                Some(bound)
            }
            (Bound::Share(bound), Scale::Absolute) => Some(bound * mean.abs()),
            (Bound::Points(bound), Scale::Relative) => Some(bound / mean),
        };
        let bound = bound.filter(|_| mean != 0.0 || matches!(self.bound, Bound::Points(_)));
        let (Some(effect), Some(bound)) = (effect.contrast.effect, bound) else {
            return Outcome::CannotTell;
        };
        let (holds, does_not) = match self.relation {
            Relation::Above => (effect.low > bound, effect.high <= bound),
            Relation::Below => (effect.high < bound, effect.low >= bound),
        };
        match (holds, does_not) {
            (true, _) => Outcome::Holds,
            (_, true) => Outcome::DoesNotHold,
            _ => Outcome::CannotTell,
        }
    }
}

impl FromStr for FailIf {
    type Err = FailIfError;

    fn from_str(text: &str) -> Result<Self, FailIfError> {
        Self::parse(text)
    }
}

impl fmt::Display for FailIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let relation = match self.relation {
            Relation::Above => '>',
            Relation::Below => '<',
        };
        let (bound, unit) = match self.bound {
            Bound::Share(share) => (share, "%"),
            Bound::Points(points) => (points, "pp"),
        };
        // Round the number, because 0.07 · 100 is not exactly 7 in floating point.
        let bound = (bound * 1e8).round() / 1e6;
        write!(f, "{} {relation} {bound:+}{unit}", self.metric)
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, FailIf, FailIfError, Outcome, Relation};
    use crate::comparison::{ArmEffect, Better, Contrast, Effect, Metric, Scale, Unit};

    #[test]
    fn conditions_are_parsed_and_printed() {
        for (text, metric, relation, bound, shown) in [
            (
                "p99 > +2%",
                "p99",
                Relation::Above,
                Bound::Share(0.02),
                "p99 > +2%",
            ),
            (
                "fps<-1.5 %",
                "fps",
                Relation::Below,
                Bound::Share(-0.015),
                "fps < -1.5%",
            ),
            (
                "  wait >7pp ",
                "wait",
                Relation::Above,
                Bound::Points(0.07),
                "wait > +7pp",
            ),
            (
                "time > 0%",
                "time",
                Relation::Above,
                Bound::Share(0.0),
                "time > +0%",
            ),
        ] {
            let read = FailIf::parse(text).unwrap();
            assert_eq!(
                (&*read.metric, read.relation, read.bound),
                (metric, relation, bound)
            );
            assert_eq!(read.to_string(), shown);
        }
        for text in [
            "",
            "p99",
            "p99 >",
            "p99 > 2",
            "> 2%",
            "p99 > inf%",
            "p99 > nan%",
            "p99 > 1e3%",
            "p99 >= 2%",
            "a b > 2%",
            "p99 = 2%",
            "p99 > 2% > 3%",
            "p99 > --2%",
            "p99 > 2ms",
        ] {
            let error = FailIf::parse(text).unwrap_err();
            assert!(error.to_string().contains("METRIC > +N%"), "{text}");
        }
    }

    #[test]
    fn conditions_on_unknown_metrics_are_rejected() {
        let metrics = [Metric::new("time", Unit::Ns, Better::Lower)];
        let check = |text: &str| FailIf::parse(text).unwrap().check(&metrics);
        assert_eq!(check("time > +2%"), Ok(()));
        assert!(matches!(
            check("tine > +2%"),
            Err(FailIfError::Metric { .. })
        ));
        assert!(matches!(
            check("time > +2pp"),
            Err(FailIfError::Points { .. })
        ));
    }

    fn arm_effect(scale: Scale, ends: Option<(f64, f64)>) -> ArmEffect {
        ArmEffect {
            scale,
            contrast: Contrast {
                effect: ends.map(|(low, high)| Effect {
                    value: f64::midpoint(low, high),
                    low,
                    high,
                }),
                ..Contrast::default()
            },
            ..ArmEffect::default()
        }
    }

    #[test]
    fn conditions_are_decided_by_the_whole_interval() {
        use Outcome::{CannotTell, DoesNotHold, Holds};
        for (text, scale, mean, effect, outcome) in [
            (
                "time > +2%",
                Scale::Relative,
                5.0,
                Some((0.03, 0.05)),
                Holds,
            ),
            (
                "time > +2%",
                Scale::Relative,
                5.0,
                Some((0.01, 0.05)),
                CannotTell,
            ),
            (
                "time > +2%",
                Scale::Relative,
                5.0,
                Some((-0.04, 0.02)),
                DoesNotHold,
            ),
            (
                "time < -2%",
                Scale::Relative,
                5.0,
                Some((-0.05, -0.03)),
                Holds,
            ),
            (
                "time < -2%",
                Scale::Relative,
                5.0,
                Some((-0.02, 0.03)),
                DoesNotHold,
            ),
            ("time > +2%", Scale::Relative, 5.0, None, CannotTell),
            // The mean is 0.5, so 2 % of it are 0.01.
            (
                "time > +2%",
                Scale::Absolute,
                0.5,
                Some((0.011, 0.02)),
                Holds,
            ),
            (
                "time > +2%",
                Scale::Absolute,
                0.0,
                Some((0.011, 0.02)),
                CannotTell,
            ),
            (
                "time > +2pp",
                Scale::Absolute,
                0.0,
                Some((0.021, 0.03)),
                Holds,
            ),
            // The mean is 0.5, so 2 percentage points are 4 % of it.
            (
                "time > +2pp",
                Scale::Relative,
                0.5,
                Some((0.03, 0.039)),
                DoesNotHold,
            ),
        ] {
            let effect_of_arm = arm_effect(scale, effect);
            let result = FailIf::parse(text).unwrap().outcome(&effect_of_arm, mean);
            assert_eq!(result, outcome, "{text} {effect:?}");
        }
    }
}
