//! Compares the effects that a model predicted with those measured in a trial.

use std::path::Path;

use serde::Deserialize;
use ticktax_model::comparison::{
    Arm, ArmEffect, Comparison, Effect, Figure, Measure, Metric, Origin, Predicted, Scale,
};
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
    /// The prediction's first row is not for the unchanged settings.
    #[error(
        "its first prediction is not for the unchanged settings; use the output of `ticktax sim` \
         unmodified"
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

/// The parts of a prediction that are compared with a trial. Code to read a whole [`Comparison`]
/// would make up a third of this crate.
#[derive(Clone, Debug, Deserialize)]
pub struct Prediction {
    experiment: PredictedExperiment,
    arms: Vec<Arm>,
    metrics: Vec<Metric>,
}

/// The experiment of a comparison that may be a prediction.
#[derive(Clone, Debug, Deserialize)]
struct PredictedExperiment {
    kind: String,
    #[serde(default)]
    load: String,
}

impl Prediction {
    /// Name of predictions in the `kind` field of an experiment.
    const KIND: &str = "prediction";

    /// Returns an arm's figure for a measure; `None` if it is unknown.
    fn figure<'a>(&self, arm: &'a Arm, measure: Measure) -> Option<&'a Figure> {
        let mut metrics = self.metrics.iter();
        arm.figure(metrics.position(|metric| metric.id == measure.id())?)
    }
}

/// Reads a prediction from `file`.
///
/// # Errors
/// Returns [`ForetoldError::Read`] if the file cannot be read, or [`ForetoldError::Other`] if it is
/// not a prediction.
pub fn read_prediction(file: &Path) -> Result<Prediction, ForetoldError> {
    let text = read_document(file).map_err(|why| ForetoldError::Read(why.to_string()))?;
    serde_json::from_slice(&text).map_err(|_| ForetoldError::Other)
}

/// A prediction that fits a trial. Its first arm is for the unchanged settings. Each of its
/// remaining arms is for one of the trial's remaining arms.
#[derive(Clone, Debug)]
pub struct Foretold<'a> {
    prediction: &'a Prediction,
    first: &'a Arm,
    others: Vec<&'a Arm>,
}

impl<'a> Foretold<'a> {
    /// Selects the arms of `prediction` for a trial with these `metrics`. `arms` is how many arms
    /// the trial has, including the first.
    ///
    /// # Errors
    /// Returns any [`ForetoldError`] except `Read` if the prediction does not fit the trial.
    pub fn new(
        prediction: &'a Prediction,
        arms: usize,
        metrics: &[&str],
    ) -> Result<Self, ForetoldError> {
        if prediction.experiment.kind != Prediction::KIND {
            return Err(ForetoldError::Other);
        }
        let predicted = prediction.arms.iter();
        let mut predicted = predicted.filter(|arm| arm.origin == Origin::Predicted);
        let first = predicted.next().filter(|arm| arm.settings.is_empty());
        let first = first.ok_or(ForetoldError::NoFirstArm)?;
        let others: Vec<&Arm> = predicted.collect();
        if others.len() + 1 != arms {
            return Err(ForetoldError::Arms {
                predicted: others.len(),
                arms: arms.saturating_sub(1),
            });
        }
        let is_known = |metric: &str| {
            measure(metric).is_some_and(|measure| prediction.figure(first, measure).is_some())
        };
        if !metrics.iter().any(|metric| is_known(metric)) {
            return Err(ForetoldError::Metrics {
                metrics: metrics.join(", "),
            });
        }
        Ok(Self {
            prediction,
            first,
            others,
        })
    }

    /// Adds the predicted effect to each of a trial's effects.
    pub fn put_beside(&self, trial: &mut Comparison) {
        for effect in &mut trial.effects {
            let metric = trial.metrics.get(effect.metric);
            effect.predicted = metric.and_then(|metric| self.predicted(&metric.id, effect));
        }
    }

    fn predicted(&self, metric: &str, measured: &ArmEffect) -> Option<Predicted> {
        let measure = measure(metric)?;
        let arm = *self.others.get(measured.arm.checked_sub(1)?)?;
        let first = self.prediction.figure(self.first, measure)?.value?;
        let other = self.prediction.figure(arm, measure)?;
        let effect_of = |value| effect(measured.scale, measure, first, value);
        let value = other.value?;
        let (low, high) = other.interval.unwrap_or((value, value));
        let effect = Effect {
            value: effect_of(value)?,
            low: effect_of(low)?,
            high: effect_of(high)?,
        };
        let proven = measured.contrast.effect;
        Some(Predicted {
            load: self.prediction.experiment.load.clone(),
            settings: arm.settings.iter().map(ToString::to_string).collect(),
            effect,
            error: proven.map(|proven| effect.value - proven.value),
        })
    }
}

/// Returns the model's measure for the trial's metric called `metric`. Returns `None` if the model
/// does not predict that metric.
fn measure(metric: &str) -> Option<Measure> {
    match metric {
        "fps" => Some(Measure::Fps),
        "lost" => Some(Measure::Dropped),
        "cpu" => Some(Measure::Cpu),
        _ => None,
    }
}

/// Returns the predicted effect of changing the value from `first` to `value`, or `None` if it
/// cannot be expressed on this scale.
fn effect(scale: Scale, measure: Measure, first: f64, value: f64) -> Option<f64> {
    match (scale, measure) {
        (Scale::Relative, _) => (first > 0.0).then(|| value / first - 1.0),
        // The trial measures CPU time per run, but the model predicts it per second, so absolute
        // differences are not comparable.
        (Scale::Absolute, Measure::Cpu) => None,
        (Scale::Absolute, _) => Some(value - first),
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::comparison::{
        Arm, Comparison, Experiment, Figure, Measure, Origin, Setting, tabulate,
    };

    use super::{Foretold, ForetoldError, Prediction};

    /// Returns a prediction of the frame rate for arms with these origins and settings.
    fn prediction(arms: &[(Origin, &str, f64)]) -> Prediction {
        let arm = |&(origin, slack, fps): &(Origin, &str, f64)| {
            let settings = (!slack.is_empty()).then(|| Setting::new("slack", slack));
            let arm = Arm::new(origin, settings.into_iter().collect());
            (arm, vec![(Measure::Fps, Figure::from(fps))])
        };
        let (metrics, arms) = tabulate(arms.iter().map(arm).collect());
        let comparison = Comparison {
            arms,
            metrics,
            ..Comparison::new("", Experiment::Prediction(Box::default()))
        };
        let json = serde_json::to_string(&comparison).unwrap();
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_prediction_needs_a_row_per_arm() {
        let all = prediction(&[
            (Origin::Measured, "", 49.0),
            (Origin::Predicted, "", 50.0),
            (Origin::Predicted, "2ms", 45.0),
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
        let mut other = all.clone();
        other.experiment.kind = "trial".to_owned();
        let refused = Foretold::new(&other, 2, &["fps"]).err();
        assert_eq!(refused, Some(ForetoldError::Other));
        let first = prediction(&[(Origin::Predicted, "2ms", 45.0)]);
        let refused = Foretold::new(&first, 1, &["fps"]).err();
        assert_eq!(refused, Some(ForetoldError::NoFirstArm));
    }
}
