//! The arms of a comparison, and their figures.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Measure, Metric};

/// An arm of a comparison: one of the sets of settings, recordings or lists being compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Arm {
    /// Label of the arm, such as `A` or `#3`; empty if only its settings identify it.
    pub label: String,
    /// Where the figures come from.
    pub origin: Origin,
    /// Settings of the arm; empty if it changes nothing.
    pub settings: Vec<Setting>,
    /// Number of runs that count, including failed runs. It is 0 if the figures do not come from
    /// runs.
    pub runs: u64,
    /// Number of these runs that failed. Their values are not part of the figures.
    pub failed: u64,
    /// Why the arm has no figures; `None` if it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded: Option<String>,
    /// Figure for each of the comparison's metrics; `None` where it is unknown.
    pub figures: Vec<Option<Figure>>,
}

impl Arm {
    /// Returns an arm without figures.
    pub fn new(origin: Origin, settings: Vec<Setting>) -> Self {
        Self {
            origin,
            settings,
            ..Self::default()
        }
    }

    /// Returns the value of the setting called `name`; `None` if the arm does not change it.
    pub fn setting(&self, name: &str) -> Option<&str> {
        let mut settings = self.settings.iter();
        let found = settings.find(|setting| setting.name == name);
        found.map(|setting| &*setting.value)
    }

    /// Returns the figure for the metric with this index; `None` if it is unknown.
    pub fn figure(&self, metric: usize) -> Option<&Figure> {
        self.figures.get(metric)?.as_ref()
    }

    /// Returns the value of the metric with this index; `None` if it is unknown.
    pub fn value(&self, metric: usize) -> Option<f64> {
        self.figure(metric)?.value
    }
}

/// Where an arm's figures come from. Output always shows the origin along with the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Figures measured on a machine.
    #[default]
    Measured,
    /// Figures measured in a recording that the model produced.
    Simulated,
    /// Figures predicted by the model.
    Predicted,
}

impl Origin {
    /// Returns the name of the origin.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Simulated => "simulated",
            Self::Predicted => "predicted",
        }
    }
}

/// A setting of an arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Name of the setting.
    pub name: String,
    /// Value that the arm sets.
    pub value: String,
    /// Object that the setting belongs to, in the same format as in
    /// [`UndoneSetting`](crate::knob::UndoneSetting); empty if it is obvious.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
}

impl Setting {
    /// Name of the setting that is the command of an arm.
    pub const COMMAND: &str = "command";

    /// Returns a setting whose object is obvious.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "most callers create the value for this call"
    )]
    pub fn new(name: &str, value: impl ToString) -> Self {
        Self {
            name: name.to_owned(),
            value: value.to_string(),
            target: String::new(),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// The figure of one arm for one metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Mean of the values, or their median for predictions. `None` if only a range is known.
    pub value: Option<f64>,
    /// Range in which the value of one more run would be expected; `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// 95 % confidence interval of the value, if the value is a percentile of a distribution.
    #[serde(
        default,
        rename = "confidence_interval",
        skip_serializing_if = "Option::is_none"
    )]
    pub confidence: Option<(f64, f64)>,
    /// Statistics of the values, if they were measured in several runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<ArmFigures>,
}

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Self {
            value: Some(value),
            ..Self::default()
        }
    }
}

impl From<(f64, f64)> for Figure {
    fn from(range: (f64, f64)) -> Self {
        Self {
            interval: Some(range),
            ..Self::default()
        }
    }
}

impl From<ArmFigures> for Figure {
    fn from(statistics: ArmFigures) -> Self {
        Self {
            statistics: Some(statistics),
            ..Self::from(statistics.mean)
        }
    }
}

/// Statistics of one arm's values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArmFigures {
    /// Number of values.
    pub count: u64,
    /// Mean of the values, in the metric's unit.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Standard deviation of the values; 0 for a single value.
    pub deviation: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

/// Returns the metrics that at least one arm has, and the arms with a figure for each of these
/// metrics.
pub fn tabulate(arms: Vec<(Arm, Vec<(Measure, Figure)>)>) -> (Vec<Metric>, Vec<Arm>) {
    let of = |figures: &[(Measure, Figure)], measure: Measure| {
        let found = figures.iter().find(|(of, _)| *of == measure);
        found.map(|(_, figure)| *figure)
    };
    let is_known = |measure: &Measure| arms.iter().any(|arm| of(&arm.1, *measure).is_some());
    let measures: Vec<Measure> = Measure::ALL.iter().copied().filter(is_known).collect();
    let filled = |(arm, figures): (Arm, Vec<(Measure, Figure)>)| Arm {
        figures: measures
            .iter()
            .map(|measure| of(&figures, *measure))
            .collect(),
        ..arm
    };
    let metrics = measures.iter().map(|measure| measure.metric()).collect();
    (metrics, arms.into_iter().map(filled).collect())
}
