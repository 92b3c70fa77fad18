//! What a model had said of the arms, beside what the trial found.

use std::path::Path;

use ticktax_model::prediction::{Figure, Measure, Origin, PredictionRow, PredictionStatement};
use ticktax_model::trial::{Comparison, Effect, Predicted, Scale, TrialStatement};

use crate::text::read_document;

/// Why a prediction cannot stand beside a trial. Each text is one line for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForetoldError {
    /// The file cannot be read.
    #[error("cannot read it: {0}")]
    Read(String),
    /// It is something else.
    #[error("not a prediction from `ticktax sim --format json`")]
    Other,
    /// It does not begin with the settings as they are.
    #[error("it contains no prediction for the unchanged settings, which `ticktax sim` puts first")]
    NoFirstArm,
    /// It has another number of settings than the trial has arms.
    #[error(
        "it predicts {predicted} changed settings, but the trial has {arms} arms other than A; \
         predict one setting per arm, in the same order"
    )]
    Arms {
        /// Those it predicts.
        predicted: usize,
        /// The arms beside the first.
        arms: usize,
    },
    /// It is about none of the trial's metrics.
    #[error("it predicts none of {metrics}: a model predicts only fps, lost and cpu")]
    Metrics {
        /// Those of the trial.
        metrics: String,
    },
}

/// Reads the file of a prediction.
///
/// # Errors
/// [`ForetoldError::Read`] or [`ForetoldError::Other`].
pub fn read_prediction(file: &Path) -> Result<PredictionStatement, ForetoldError> {
    let text = read_document(file).map_err(ForetoldError::Read)?;
    serde_json::from_slice(&text).map_err(|_| ForetoldError::Other)
}

/// A prediction that can stand beside a trial: the settings as they are, then a row for each other arm.
#[derive(Clone, Debug)]
pub struct Foretold<'a> {
    load: &'a str,
    first: &'a PredictionRow,
    others: Vec<&'a PredictionRow>,
}

impl<'a> Foretold<'a> {
    /// The rows of a prediction for a trial of `arms` arms, the first included, by these `metrics`.
    ///
    /// # Errors
    /// Any [`ForetoldError`].
    pub fn new(
        prediction: &'a PredictionStatement,
        arms: usize,
        metrics: &[&str],
    ) -> Result<Self, ForetoldError> {
        let rows = prediction.rows.iter();
        let mut rows = rows.filter(|row| row.origin == Origin::Predicted);
        let first = rows.next().filter(|row| row.settings.is_empty());
        let first = first.ok_or(ForetoldError::NoFirstArm)?;
        let others: Vec<&PredictionRow> = rows.collect();
        if others.len() + 1 != arms {
            return Err(ForetoldError::Arms {
                predicted: others.len(),
                arms: arms.saturating_sub(1),
            });
        }
        let known = |metric: &&&str| measure(metric).is_some_and(|it| first.figure(it).is_some());
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

    /// Puts what was predicted beside what was found.
    pub fn put_beside(&self, statement: &mut TrialStatement) {
        for comparison in &mut statement.comparisons {
            comparison.predicted = self.of(comparison);
        }
    }

    fn of(&self, comparison: &Comparison) -> Option<Predicted> {
        let measure = measure(&comparison.metric)?;
        let row = *self.others.get(comparison.arm.checked_sub(1)?)?;
        let (first, other) = (self.first.figure(measure)?, row.figure(measure)?);
        let of = |value| effect(comparison.scale, measure, first, value);
        let (low, high) = other.interval.unwrap_or((other.value, other.value));
        let effect = Effect {
            value: of(other.value)?,
            low: of(low)?,
            high: of(high)?,
        };
        Some(Predicted {
            load: self.load.to_owned(),
            settings: row.settings.clone(),
            effect,
            error: comparison.effect.map(|proven| effect.value - proven.value),
        })
    }
}

/// What a model predicts of what a metric measures.
fn measure(metric: &str) -> Option<Measure> {
    match metric {
        "fps" => Some(Measure::Fps),
        "lost" => Some(Measure::Dropped),
        "cpu" => Some(Measure::Cpu),
        _ => None,
    }
}

/// What becomes of `first` where it is `value`.
fn effect(scale: Scale, measure: Measure, first: &Figure, value: f64) -> Option<f64> {
    match (scale, measure) {
        (Scale::Relative, _) => (first.value > 0.0).then(|| value / first.value - 1.0),
        // Of a run it is so long, of the model so much of a second.
        (Scale::Absolute, Measure::Cpu) => None,
        (Scale::Absolute, _) => Some(value - first.value),
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::prediction::{Figure, Measure, Origin, PredictionRow, PredictionStatement};

    use super::{Foretold, ForetoldError};

    fn row(origin: Origin, setting: &str, fps: f64) -> PredictionRow {
        let settings = [setting].into_iter().filter(|it| !it.is_empty());
        PredictionRow {
            origin,
            settings: settings.map(str::to_owned).collect(),
            figures: vec![Figure {
                measure: Measure::Fps,
                value: fps,
                interval: Some((fps - 1.0, fps + 1.0)),
            }],
        }
    }

    fn prediction(rows: Vec<PredictionRow>) -> PredictionStatement {
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
            rows,
            taken: Vec::new(),
            assumed: Vec::new(),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn each_arm_has_its_row() {
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
