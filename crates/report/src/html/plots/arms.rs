//! The arms of a comparison: their figures and effects, with intervals, on shared axes.
//!
//! Every document that compares arms is drawn by [`Figures`], [`effects`], or both.

use std::fmt::Write;

use ticktax_model::comparison::{
    Arm, ArmEffect, Comparison, Contrast, Experiment, Figure, Origin, Scale, Unit,
};

use super::Plot;
use super::axis::Axis;
use super::strips::{Mark, Strips};
use crate::html::escape::text;
use crate::html::quantity::Quantity;
use crate::text::{Topic, arm_name, effect_title, metric_title, verdict_word};

/// Maximum number of accounts to draw, starting with those that changed most.
const ACCOUNTS: usize = 24;

/// A row of a table of figures: the name of the arm, and its marks.
type Row = (String, Vec<Mark>);

/// A table that shows one metric for all arms.
struct Figures<'a> {
    metric: &'a str,
    unit: Unit,
    kinds: &'a [&'a str],
}

impl Figures<'_> {
    /// Draws the rows. The numbers come from the first mark with a value and the first mark with a
    /// range. Without rows, draws nothing.
    fn draw(&self, out: &mut String, rows: &[Row]) {
        let marks = || rows.iter().flat_map(|(_, marks)| marks);
        if marks().next().is_none() {
            return;
        }
        let values = marks().flat_map(Mark::values);
        let axis = Axis::fitting(&titled(self.metric, self.unit), values, self.unit);
        let has_ranges = marks().any(|mark| mark.over.is_some());
        let columns = ["value", "from", "to"];
        let columns = &columns[..if has_ranges { 3 } else { 1 }];
        // Writing to a `String` cannot fail.
        let _ = writeln!(out, "<h3>{}</h3>", text(self.metric));
        let mut table = Strips::new(self.metric, columns, self.kinds, vec![axis]);
        for (name, marks) in rows {
            let range = marks.iter().find_map(|mark| mark.over);
            let numbers = [
                marks.iter().find_map(|mark| mark.at),
                range.map(|ends| ends.0),
                range.map(|ends| ends.1),
            ];
            let cells = numbers.map(|number| known(number, |number| quantity(self.unit, number)));
            table.row(name, &cells[..columns.len()], &[marks]);
        }
        out.push_str(&table.finish());
    }
}

/// A row of a table of effects.
struct Effect<'a> {
    name: String,
    unit: Unit,
    scale: Scale,
    /// Values of the arms that are compared, if there are any.
    first: Option<f64>,
    second: Option<f64>,
    contrast: &'a Contrast,
}

impl<'a> Effect<'a> {
    fn new(comparison: &'a Comparison, effect: &'a ArmEffect) -> Self {
        // The effect of a factor is an average, so it does not compare two arms.
        let value = |arm: usize| {
            let arm = comparison.arms.get(arm).filter(|_| effect.terms.is_empty());
            arm?.value(effect.metric)
        };
        Self {
            name: effect_title(comparison, effect),
            unit: comparison.unit(effect),
            scale: effect.scale,
            first: value(effect.base),
            second: value(effect.arm),
            contrast: &effect.contrast,
        }
    }

    /// Scale and unit of the axis. Effects with the same axis are drawn in the same table.
    fn axis(&self) -> (Scale, Unit) {
        match self.scale {
            Scale::Relative => (Scale::Relative, Unit::Share),
            Scale::Absolute => (Scale::Absolute, self.unit),
        }
    }

    /// Returns the effect with its interval. Without an effect, returns the difference of the
    /// values, which has no interval.
    fn mark(&self) -> Option<Mark> {
        let mark = match self.contrast.effect {
            Some(effect) => Mark {
                over: Some((effect.low, effect.high)),
                ..Mark::at(0, effect.value)
            },
            None if self.scale == Scale::Absolute => Mark::at(0, self.second? - self.first?),
            None => return None,
        };
        mark.values().all(f64::is_finite).then_some(mark)
    }
}

/// Draws a table for each axis. Returns an empty string if no effect is known.
fn effects(rows: &[Effect<'_>]) -> String {
    let mut html = String::new();
    let mut rest: Vec<(&Effect<'_>, Mark)> = rows
        .iter()
        .filter_map(|row| Some((row, row.mark()?)))
        .collect();
    while let Some((first, _)) = rest.first() {
        let (scale, unit) = first.axis();
        let (same, others) = rest
            .into_iter()
            .partition(|(row, _)| row.axis() == (scale, unit));
        rest = others;
        effect_table(&mut html, scale, unit, same);
    }
    html
}

fn effect_table(out: &mut String, scale: Scale, unit: Unit, rows: Vec<(&Effect<'_>, Mark)>) {
    let title = match (scale, unit) {
        (Scale::Relative, _) => "effect, relative".to_owned(),
        (Scale::Absolute, Unit::Share) => "effect (percentage points)".to_owned(),
        (Scale::Absolute, unit) => titled("effect", unit),
    };
    let values = || rows.iter().flat_map(|(_, mark)| mark.values());
    let (low, high) = (values().fold(0.0, f64::min), values().fold(0.0, f64::max));
    let axis = Axis::linear(&title, (low, high), unit);
    let has_sides = rows.iter().any(|(row, _)| row.first.is_some());
    let columns = ["first", "second", "effect", "from", "to", "verdict"];
    let columns = &columns[if has_sides { 0 } else { 2 }..];
    let mut table = Strips::new(&title, columns, &["effect"], vec![axis]).with_zero();
    for (row, mark) in rows {
        let side = |value| known(value, |value| quantity(row.unit, value));
        let change = |value| known(value, |value| difference(scale, unit, value));
        let verdict = match row.contrast.differs() {
            Some(_) => verdict_word(row.contrast.verdict).to_owned().into(),
            None => Quantity::unknown(),
        };
        let cells = [
            side(row.first),
            side(row.second),
            change(mark.at),
            change(mark.over.map(|ends| ends.0)),
            change(mark.over.map(|ends| ends.1)),
            verdict,
        ];
        table.row(&row.name, &cells[6 - columns.len()..], &[&[mark]]);
    }
    out.push_str(&table.finish());
}

fn known(value: Option<f64>, quantity: impl Fn(f64) -> Quantity) -> Quantity {
    value.map_or_else(Quantity::unknown, quantity)
}

/// A value of a metric with this unit.
pub(super) fn quantity(unit: Unit, value: f64) -> Quantity {
    match unit {
        Unit::Ns => Quantity::ns(value),
        Unit::S => Quantity::ns(value * 1e9),
        Unit::Share => Quantity::share(value),
        Unit::Hz => Quantity::number(value, "/s"),
        Unit::PerMinute => Quantity::number(value, "/min"),
        Unit::Bps => Quantity::number(value / 1e6, "Mbit/s"),
        Unit::Count | Unit::None => Quantity::number(value, ""),
    }
}

fn difference(scale: Scale, unit: Unit, value: f64) -> Quantity {
    match (scale, unit) {
        (Scale::Relative, _) => {
            Quantity::new(format!("{:+.2} %", 100.0 * value), value.to_string())
        }
        (Scale::Absolute, Unit::Share) => Quantity::points(value),
        (Scale::Absolute, unit) => quantity(unit, value),
    }
}

/// The title of an axis, with the unit if the ticks lack one.
pub(super) fn titled(metric: &str, unit: Unit) -> String {
    match unit {
        Unit::Hz => format!("{metric} (1/s)"),
        Unit::PerMinute => format!("{metric} (1/min)"),
        Unit::Bps => format!("{metric} (bit/s)"),
        Unit::Ns | Unit::S | Unit::Share | Unit::Count | Unit::None => metric.to_owned(),
    }
}

/// Creates a section from an explanation and tables. Returns `None` without tables.
fn section(id: &'static str, title: &'static str, legend: &str, tables: &str) -> Option<Plot> {
    (!tables.is_empty()).then(|| Plot {
        id,
        title,
        topic: Topic::Other,
        html: format!("<p class=\"legend\">{legend}</p>\n{tables}"),
    })
}

const EFFECTS: &str = "Effects with 95 % intervals";
const EFFECTS_LEGEND: &str = "The circle marks the effect, and the line its 95 % interval. The \
    thick vertical line means no effect. A relative effect is a share of the first value.";

/// Draws the effects of a comparison, except deviations that are judged by a tolerance. For
/// recordings, draws only the shares of the accounts that changed most.
pub(super) fn effects_plot(comparison: &Comparison) -> Option<Plot> {
    let all = comparison.effects.iter();
    let mut all: Vec<&ArmEffect> = all.filter(|effect| effect.tolerance.is_none()).collect();
    let mut more = String::new();
    if let Experiment::Recordings(_) = comparison.experiment {
        let account = |effect: &ArmEffect| comparison.metrics.get(effect.metric)?.account;
        let is_share = |effect: &ArmEffect| comparison.unit(effect) == Unit::Share;
        all.retain(|effect| account(effect).is_some() && is_share(effect));
        let left = all.len().saturating_sub(ACCOUNTS);
        all.truncate(ACCOUNTS);
        if left > 0 {
            more = format!(
                "<p class=\"legend\">{left} more accounts are in the section Accounts.</p>\n"
            );
        }
    }
    let rows: Vec<Effect<'_>> = all
        .into_iter()
        .map(|effect| Effect::new(comparison, effect))
        .collect();
    let tables = effects(&rows);
    let more = if tables.is_empty() { "" } else { more.as_str() };
    section("effects", EFFECTS, EFFECTS_LEGEND, &(tables + more))
}

/// Draws the arms of a comparison, with a table for each metric.
pub(super) fn arms_plot(comparison: &Comparison) -> Option<Plot> {
    let mark = |arm: &Arm, figure: &Figure| {
        let kind = match arm.origin {
            Origin::Measured => 0,
            Origin::Simulated => 1,
            Origin::Predicted => 2,
        };
        let ends = figure.statistics.map(|values| (values.min, values.max));
        let over = figure.interval.or(figure.confidence).or(ends);
        Mark {
            kind,
            at: figure.value,
            over,
        }
    };
    let mut html = String::new();
    let metrics = comparison.metrics.iter().enumerate();
    for (at, metric) in metrics.filter(|(_, metric)| metric.account.is_none()) {
        let arms = comparison.arms.iter();
        let rows = arms.filter_map(|arm| {
            let mark = mark(arm, arm.figure(at)?);
            Some((arm_name(comparison, arm), vec![mark]))
        });
        let rows: Vec<Row> = rows.collect();
        if rows.len() > 1 {
            let table = Figures {
                metric: metric_title(metric),
                unit: metric.unit,
                kinds: &["measured", "simulated", "predicted"],
            };
            table.draw(&mut html, &rows);
        }
    }
    let legend = "Each symbol is the value of a variant. A line is the range of its values. For a \
        prediction, it is the range in which one more run is expected. For a percentile, it is the \
        95 % confidence interval.";
    section("arms", "Values of the variants", legend, &html)
}
