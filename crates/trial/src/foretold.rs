//! Compares effects that a model predicted with those that a trial measured.

use std::path::Path;

use ticktax_model::prediction::{Figure, Measure, Origin, PredictionArm, PredictionStatement};
use ticktax_model::trial::{Comparison, Effect, Predicted, Scale, TrialStatement};

use ticktax_store::text::read_document;

/// Why a prediction does not fit a trial. The message is one line for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForetoldError {
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Read(String),
    /// The file is not a prediction.
    #[error("not a prediction from `ticktax sim --format json`")]
    Other,
    /// The prediction's first row does not describe the unchanged settings.
    #[error(
        "its first prediction is not for the unchanged settings; use the output of `ticktax sim` \
         as it is"
    )]
    NoFirstArm,
    /// The prediction and the trial have different numbers of changed settings.
    #[error(
        "it predicts {predicted} changed settings, but the trial has {arms} arms besides A; \
         predict one setting per arm, in the same order"
    )]
    Arms {
        /// Number of changed settings in the prediction.
        predicted: usize,
        /// Number of arms in the trial, not counting the first.
        arms: usize,
    },
    /// The prediction contains none of the trial's metrics.
    #[error("it predicts none of {metrics}: a model predicts only fps, lost and cpu")]
    Metrics {
        /// The trial's metrics.
        metrics: String,
    },
}

/// Reads a prediction from `file`.
///
/// # Errors
/// Returns [`ForetoldError::Read`] if the file cannot be read, or [`ForetoldError::Other`] if it is
/// not a prediction.
pub fn read_prediction(file: &Path) -> Result<PredictionStatement, ForetoldError> {
    let text = read_document(file).map_err(|why| ForetoldError::Read(why.to_string()))?;
    serde_json::from_slice(&text).map_err(|_| ForetoldError::Other)
}

/// A prediction that fits a trial. Its first row is for the unchanged settings. Each other row is
/// for one of the trial's other arms.
#[derive(Clone, Debug)]
pub struct Foretold<'a> {
    load: &'a str,
    first: &'a PredictionArm,
    others: Vec<&'a PredictionArm>,
}

impl<'a> Foretold<'a> {
    /// Selects the rows of `prediction` for a trial with these `metrics`. `arms` is the number of
    /// arms, including the first.
    ///
    /// # Errors
    /// Returns any [`ForetoldError`] except `Read` and `Other` if the prediction does not fit the
    /// trial.
    pub fn new(
        prediction: &'a PredictionStatement,
        arms: usize,
        metrics: &[&str],
    ) -> Result<Self, ForetoldError> {
        let rows = prediction.arms.iter();
        let mut rows = rows.filter(|row| row.origin == Origin::Predicted);
        let first = rows.next().filter(|row| row.settings.is_empty());
        let first = first.ok_or(ForetoldError::NoFirstArm)?;
        let others: Vec<&PredictionArm> = rows.collect();
        if others.len() + 1 != arms {
            return Err(ForetoldError::Arms {
                predicted: others.len(),
                arms: arms.saturating_sub(1),
            });
        }
        let known =
            |metric: &&&str| measure(metric).is_some_and(|measure| first.figure(measure).is_some());
        if metrics.iter().find(known).is_none() {
            return Err(ForetoldError::Metrics {
                metrics: metrics.join(", "),
            });
        }
        Ok(Self {
            load: &prediction.load,
            first,
            others,
        })
    }

    /// Adds the predicted effect to each comparison in `statement`.
    pub fn put_beside(&self, statement: &mut TrialStatement) {
        for comparison in &mut statement.comparisons {
            comparison.predicted = self.predicted(comparison);
        }
    }

    fn predicted(&self, comparison: &Comparison) -> Option<Predicted> {
        let measure = measure(&comparison.metric)?;
        let row = *self.others.get(comparison.arm.checked_sub(1)?)?;
        let (first, other) = (self.first.figure(measure)?, row.figure(measure)?);
        let effect_of = |value| effect(comparison.scale, measure, first, value);
        let (low, high) = other.interval.unwrap_or((other.value, other.value));
        let effect = Effect {
            value: effect_of(other.value)?,
            low: effect_of(low)?,
            high: effect_of(high)?,
        };
        Some(Predicted {
            load: self.load.to_owned(),
            settings: row.settings.clone(),
            effect,
            error: comparison
                .contrast
                .effect
                .map(|proven| effect.value - proven.value),
        })
    }
}

/// Returns the measure of the model that corresponds to the metric called `metric` of a trial.
/// Returns `None` if the model does not predict that metric.
fn measure(metric: &str) -> Option<Measure> {
    match metric {
        "fps" => Some(Measure::Fps),
        "lost" => Some(Measure::Dropped),
        "cpu" => Some(Measure::Cpu),
        _ => None,
    }
}

/// Returns the predicted effect of changing the value from `first` to `value`. Returns `None` if
/// the effect cannot be expressed on this scale.
fn effect(scale: Scale, measure: Measure, first: &Figure, value: f64) -> Option<f64> {
    match (scale, measure) {
        (Scale::Relative, _) => (first.value > 0.0).then(|| value / first.value - 1.0),
        // The trial measures CPU time per run, but the model predicts CPU time per second, so
        // absolute differences are not comparable.
        (Scale::Absolute, Measure::Cpu) => None,
        (Scale::Absolute, _) => Some(value - first.value),
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::prediction::{Figure, Measure, Origin, PredictionArm, PredictionStatement};

    use super::{Foretold, ForetoldError};

    fn row(origin: Origin, setting: &str, fps: f64) -> PredictionArm {
        let settings = [setting].into_iter().filter(|setting| !setting.is_empty());
        PredictionArm {
            origin,
            settings: settings.map(str::to_owned).collect(),
            figures: vec![Figure {
                measure: Measure::Fps,
                value: fps,
                interval: Some((fps - 1.0, fps + 1.0)),
            }],
        }
    }

    fn prediction(arms: Vec<PredictionArm>) -> PredictionStatement {
        PredictionStatement {
            tool_version: String::new(),
            load: "game.parquet".to_owned(),
            recorded: true,
            machine: None,
            program: None,
            length: Nanos::from_secs(8),
            runs: 39,
            coverage: 0.95,
            seed: 1,
            control: None,
            arms,
            taken: Vec::new(),
            assumed: Vec::new(),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn a_prediction_needs_a_row_per_arm() {
        let all = prediction(vec![
            row(Origin::Measured, "", 49.0),
            row(Origin::Predicted, "", 50.0),
            row(Origin::Predicted, "slack=2ms", 45.0),
        ]);
        let refused = |arms, metrics: &[&str]| Foretold::new(&all, arms, metrics).err();
        assert_eq!(refused(2, &["p99", "fps"]), None);
        let expected = ForetoldError::Arms {
            predicted: 1,
            arms: 2,
        };
        assert_eq!(refused(3, &["fps"]), Some(expected));
        let expected = ForetoldError::Metrics {
            metrics: "wait, lost".to_owned(),
        };
        assert_eq!(refused(2, &["wait", "lost"]), Some(expected));
        let first = prediction(vec![row(Origin::Predicted, "slack=2ms", 45.0)]);
        let refused = Foretold::new(&first, 1, &["fps"]).err();
        assert_eq!(refused, Some(ForetoldError::NoFirstArm));
    }
}
