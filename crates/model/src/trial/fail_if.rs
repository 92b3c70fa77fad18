//! `--fail-if 'p99 > +2%'`: what must not become of a metric.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Comparison, Metric, Scale, Unit};

/// What must not be: `p99 > +2%`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailIf {
    /// The metric's name.
    pub metric: String,
    /// On which side of the bound.
    pub relation: Relation,
    /// The bound of the arm's effect.
    pub bound: Bound,
}

/// On which side of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// `>`
    Above,
    /// `<`
    Below,
}

/// A bound of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// A share of the first arm: 0.02 is written `+2%`.
    Share(f64),
    /// A difference of two shares: 0.02 is written `+2pt`, percentage points.
    #[serde(rename = "points_share")]
    Points(f64),
}

/// Whether what must not be is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is: the whole interval of the effect lies beyond the bound.
    Holds,
    /// It is not: no part of the interval does.
    DoesNotHold,
    /// The bound lies within the interval, or there is none.
    CannotTell,
}

/// A question of `--fail-if`, and its answer for an arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailIfResult {
    /// The question.
    pub condition: FailIf,
    /// The arm, by its place among the arms.
    pub arm: usize,
    /// The answer.
    pub outcome: Outcome,
}

/// Why a condition cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailIfError {
    /// It is none.
    #[error(
        "invalid condition `{0}`: it is METRIC > +N% or METRIC < -N%, of shares also +Npt (percentage points), as in 'p99 > +2%'"
    )]
    Syntax(String),
    /// Nobody measures it.
    #[error("nothing measures `{metric}` of `{condition}`: measured is {measured}")]
    Metric {
        /// The condition.
        condition: String,
        /// What it asks about.
        metric: String,
        /// What there is.
        measured: String,
    },
    /// Percentage points of something that is no share.
    #[error("`{condition}`: {metric} is no share, so its bound is a percentage, as in '+2%'")]
    Points {
        /// The condition.
        condition: String,
        /// What it asks about.
        metric: String,
    },
}

impl FailIf {
    /// Reads a condition as it is typed.
    ///
    /// # Errors
    /// It is none.
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
        let is_word = |it: char| it.is_alphanumeric() || "_-.:".contains(it);
        let metric = metric.trim();
        if metric.is_empty() || !metric.chars().all(is_word) {
            return None;
        }
        let number = |text: &str| {
            let text = text.trim_end();
            let is_plain = |it: char| it.is_ascii_digit() || "+-.".contains(it);
            let number: f64 = text.parse().ok()?;
            (text.chars().all(is_plain) && number.is_finite()).then_some(number / 100.0)
        };
        let bound = match (bound.strip_suffix('%'), bound.strip_suffix("pt")) {
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

    /// Whether it can be asked of what is measured.
    ///
    /// # Errors
    /// It is of no metric, or of percentage points where the metric is no share.
    pub fn check(&self, metrics: &[Metric]) -> Result<(), FailIfError> {
        let (condition, metric) = (self.to_string(), self.metric.clone());
        let Some(found) = metrics.iter().find(|it| it.id == self.metric) else {
            let measured: Vec<&str> = metrics.iter().map(|it| &*it.id).collect();
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

    /// Whether it is so, by what became of its metric. It holds, or does not, where the whole interval
    /// of the effect says so.
    pub fn outcome(&self, comparison: &Comparison) -> Outcome {
        let mean = comparison.first.map_or(0.0, |it| it.mean);
        let bound = match (self.bound, comparison.scale) {
            (Bound::Share(bound), Scale::Relative) | (Bound::Points(bound), Scale::Absolute) => {
                Some(bound)
            }
            (Bound::Share(bound), Scale::Absolute) => Some(bound * mean.abs()),
            (Bound::Points(bound), Scale::Relative) => Some(bound / mean),
        };
        let bound = bound.filter(|_| mean != 0.0 || matches!(self.bound, Bound::Points(_)));
        let (Some(effect), Some(bound)) = (comparison.effect, bound) else {
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
            Bound::Points(points) => (points, "pt"),
        };
        // 0.07 · 100 is no 7.
        let bound = (bound * 1e8).round() / 1e6;
        write!(f, "{} {relation} {bound:+}{unit}", self.metric)
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, FailIf, FailIfError, Outcome, Relation};
    use crate::trial::{
        ArmFigures, Better, Comparison, Effect, Metric, Origin, Scale, Unit, Verdict,
    };

    #[test]
    fn conditions_are_read_and_shown_as_they_are_typed() {
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
                "  wait >7pt ",
                "wait",
                Relation::Above,
                Bound::Points(0.07),
                "wait > +7pt",
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
    fn what_is_not_measured_cannot_be_asked() {
        let metrics = [Metric {
            id: "time".to_owned(),
            unit: Unit::Ns,
            better: Better::Lower,
            origin: Origin::Command,
        }];
        let check = |text: &str| FailIf::parse(text).unwrap().check(&metrics);
        assert_eq!(check("time > +2%"), Ok(()));
        assert!(matches!(
            check("tine > +2%"),
            Err(FailIfError::Metric { .. })
        ));
        assert!(matches!(
            check("time > +2pt"),
            Err(FailIfError::Points { .. })
        ));
    }

    fn comparison(scale: Scale, mean: f64, effect: Option<(f64, f64)>) -> Comparison {
        let figures = ArmFigures {
            count: 8,
            mean,
            median: mean,
            deviation: 0.0,
            min: mean,
            max: mean,
        };
        Comparison {
            metric: "time".to_owned(),
            arm: 1,
            first: Some(figures),
            second: None,
            blocks: Some(8),
            scale,
            effect: effect.map(|(low, high)| Effect {
                value: f64::midpoint(low, high),
                low,
                high,
            }),
            chance: None,
            chance_corrected: None,
            noise: None,
            detectable: None,
            predicted: None,
            verdict: Verdict::CannotTell { more_blocks: None },
            checks: Vec::new(),
        }
    }

    #[test]
    fn a_condition_is_answered_by_the_whole_interval() {
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
            // Of a mean of 0.5, 2 % are 0.01.
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
                "time > +2pt",
                Scale::Absolute,
                0.0,
                Some((0.021, 0.03)),
                Holds,
            ),
            // Of a mean of 0.5, 2 points are 4 %.
            (
                "time > +2pt",
                Scale::Relative,
                0.5,
                Some((0.03, 0.039)),
                DoesNotHold,
            ),
        ] {
            let comparison = comparison(scale, mean, effect);
            let told = FailIf::parse(text).unwrap().outcome(&comparison);
            assert_eq!(told, outcome, "{text} {effect:?}");
        }
    }
}
