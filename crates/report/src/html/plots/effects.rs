//! Draws the effects that a trial measured, and their confidence intervals, on one scale.

use ticktax_model::trial::{
    ArmFigures, Comparison, Effect, NumbersComparison, Scale, TrialStatement, Unit as TrialUnit,
};

use super::Plot;
use super::axis::{Axis, Unit};
use super::strips::{Mark, Strips};
use crate::html::escape::text;
use crate::html::quantity::Quantity;
use crate::text::Topic;

/// Draws a line for each relative effect of each arm, that is, of each setting that the trial
/// tested. Returns `None` if the trial has no relative effects.
pub(super) fn plot(statement: &TrialStatement) -> Option<Plot> {
    let arms = &statement.trial.arms;
    let label = |arm: usize| arms.get(arm).map_or("", |arm| &*arm.label);
    let rows = statement.comparisons.iter();
    let rows = rows.map(|comparison| {
        (
            format!("{}: {}", label(comparison.arm), comparison.metric),
            comparison,
        )
    });
    let first = arms.first().map_or("A", |arm| &*arm.label);
    let html = shares(rows.collect(), first)?;
    Some(Plot {
        id: "effects",
        title: TITLE,
        topic: Topic::Other,
        html,
    })
}

const TITLE: &str = "Effects with 95 % intervals";

fn shares(rows: Vec<(String, &Comparison)>, first: &str) -> Option<String> {
    let relative = rows
        .into_iter()
        .filter(|(_, comparison)| comparison.scale == Scale::Relative);
    let all: Vec<(String, Effect)> = relative
        .filter_map(|(name, comparison)| comparison.contrast.effect.map(|effect| (name, effect)))
        .collect();
    let widest = all.iter().map(|(_, effect)| effect.bound());
    let widest = widest.fold(0.0, f64::max);
    if widest <= 0.0 || !widest.is_finite() {
        return None;
    }
    let axis = Axis::linear("effect", (-widest, widest), Unit::Share);
    let columns = ["effect", "from", "to"];
    let mut table = Strips::new(TITLE, &columns, &["effect"], vec![axis]).with_zero();
    for (name, effect) in all {
        let cells = [effect.value, effect.low, effect.high];
        let cells =
            cells.map(|value| Quantity::new(format!("{:+.2} %", 100.0 * value), value.to_string()));
        let mark = Mark {
            over: Some((effect.low, effect.high)),
            ..Mark::at(0, effect.value)
        };
        table.row(&name, &cells, &[&[mark]]);
    }
    Some(format!(
        "<p class=\"legend\">The effect is the relative difference to {}. The circle marks the \
         effect, and the line its 95 % interval. The thick vertical line means no \
         effect.</p>\n{}",
        text(first),
        table.finish()
    ))
}

/// Draws two lists of numbers that were compared, and the difference between them.
pub(super) fn numbers_plot(statement: &NumbersComparison) -> Option<Plot> {
    let comparison = &statement.comparison;
    let (a, b) = (comparison.first.as_ref()?, comparison.second.as_ref()?);
    let (unit, factor, words) = match statement.unit {
        TrialUnit::Ns => (Unit::Time, 1.0, "value"),
        TrialUnit::S => (Unit::Time, 1e9, "value"),
        TrialUnit::Share => (Unit::Share, 1.0, "value"),
        TrialUnit::Hz => (Unit::Number, 1.0, "value (1/s)"),
        TrialUnit::PerMinute => (Unit::Number, 1.0, "value (1/min)"),
        TrialUnit::None => (Unit::Number, 1.0, "value"),
    };
    let low = a.min.min(b.min) * factor;
    let high = a.max.max(b.max) * factor;
    let axis = Axis::linear(words, (low, high), unit);
    let columns = ["count", "min", "median", "mean", "max"];
    let mut table = Strips::new("Both lists", &columns, &["list"], vec![axis]);
    for (list, figures) in [(&statement.first, a), (&statement.second, b)] {
        let name = list
            .name
            .as_ref()
            .map_or_else(String::new, |name| format!(", {name}"));
        table.row(
            &format!("{}{name}", list.file),
            &cells(statement.unit, figures),
            &[&[Mark {
                over: Some((figures.min * factor, figures.max * factor)),
                ..Mark::at(0, figures.mean * factor)
            }]],
        );
    }
    let mut html = "<p class=\"legend\">The circle marks the mean, and the line extends from the \
        smallest value to the largest.</p>\n"
        .to_owned();
    html.push_str(&table.finish());
    let effect = shares(
        vec![(comparison.metric.clone(), comparison)],
        &statement.first.file,
    );
    html.push_str(&effect.unwrap_or_default());
    Some(Plot {
        id: "effects",
        title: "Both lists and their difference",
        topic: Topic::Other,
        html,
    })
}

fn cells(unit: TrialUnit, figures: &ArmFigures) -> [Quantity; 5] {
    let quantity = |value| quantity(unit, value);
    [
        figures.count.into(),
        quantity(figures.min),
        quantity(figures.median),
        quantity(figures.mean),
        quantity(figures.max),
    ]
}

/// Returns a value in the unit of a trial's metric.
pub(super) fn quantity(unit: TrialUnit, value: f64) -> Quantity {
    match unit {
        TrialUnit::Ns => Quantity::ns(value),
        TrialUnit::S => Quantity::ns(value * 1e9),
        TrialUnit::Share => Quantity::share(value),
        TrialUnit::Hz => Quantity::number(value, "/s"),
        TrialUnit::PerMinute => Quantity::number(value, "/min"),
        TrialUnit::None => Quantity::number(value, ""),
    }
}
