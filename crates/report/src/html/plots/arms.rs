//! The arms of a comparison: their figures and effects, with intervals, on shared axes.
//!
//! Every document that compares arms is drawn by [`figures`], [`effects`], or both.

use std::fmt::Write;

use ticktax_model::changes::ChangeStatement;
use ticktax_model::kernels::{KernelArm, KernelComparison, PredictedLoop};
use ticktax_model::net_experiment::{ExperimentArm, NetExperiment};
use ticktax_model::pace::{PaceArm, PaceComparison};
use ticktax_model::prediction::{Measure, Origin, PredictionStatement};
use ticktax_model::sweep::GridStatement;
use ticktax_model::trial::{
    ArmFigures, Comparison, Contrast, Metric, NumbersComparison, Scale, TrialStatement, Unit,
};

use super::Plot;
use super::axis::Axis;
use super::strips::{Mark, Strips};
use crate::html::escape::text;
use crate::html::quantity::Quantity;
use crate::text::{
    Topic, loop_name, net_arm_name, net_effect_name, prediction_name, ranked_name, verdict_word,
};

/// Maximum number of accounts drawn: those that changed most.
const ACCOUNTS: usize = 24;

/// A row of a table of figures: the name of the arm, and its marks.
type Row = (String, Vec<Mark>);

/// A table of one metric of all arms.
struct Figures<'a> {
    metric: &'a str,
    unit: Unit,
    /// Headings of the value and of the ends of the range.
    columns: [&'a str; 3],
    kinds: &'a [&'a str],
}

impl Figures<'_> {
    /// Draws the rows. The numbers are those of the first mark with a value, and of the first with
    /// a range. Without rows, draws nothing.
    fn draw(&self, out: &mut String, rows: &[Row]) {
        let marks = || rows.iter().flat_map(|(_, marks)| marks);
        if marks().next().is_none() {
            return;
        }
        let values = marks().flat_map(Mark::values);
        let axis = Axis::fitting(&titled(self.metric, self.unit), values, self.unit);
        let has_ranges = marks().any(|mark| mark.over.is_some());
        let columns = &self.columns[..if has_ranges { 3 } else { 1 }];
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
    /// Values of the arms that are compared, if they have one.
    first: Option<f64>,
    second: Option<f64>,
    contrast: &'a Contrast,
}

impl<'a> Effect<'a> {
    fn new(name: String, unit: Unit, comparison: &'a Comparison) -> Self {
        Self {
            name,
            unit,
            scale: comparison.scale,
            first: comparison.first.map(|figures| figures.mean),
            second: comparison.second.map(|figures| figures.mean),
            contrast: &comparison.contrast,
        }
    }

    /// Scale and unit of the axis. Effects with the same axis are drawn in the same table.
    fn axis(&self) -> (Scale, Unit) {
        match self.scale {
            Scale::Relative => (Scale::Relative, Unit::Share),
            Scale::Absolute => (Scale::Absolute, self.unit),
        }
    }

    /// The effect and its interval. Without an effect, the difference of the values, which has
    /// none.
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

/// Draws a table for each axis. Returns an empty text if no effect is known.
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
        Unit::None => Quantity::number(value, ""),
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
        Unit::Ns | Unit::S | Unit::Share | Unit::None => metric.to_owned(),
    }
}

/// A section with this explanation and these tables. `None` without tables.
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

/// The effects of a trial's arms.
pub(super) fn trial(statement: &TrialStatement) -> Option<Plot> {
    let trial = &statement.trial;
    let rows = statement.comparisons.iter().map(|comparison| {
        let arm = trial.arms.get(comparison.arm).map_or("", |arm| &*arm.label);
        let is_metric = |metric: &&Metric| metric.id == comparison.metric;
        let metric = trial.metrics.iter().find(is_metric);
        let unit = metric.map_or(Unit::None, |metric| metric.unit);
        Effect::new(format!("{arm}: {}", comparison.metric), unit, comparison)
    });
    let rows: Vec<Effect<'_>> = rows.collect();
    section("effects", EFFECTS, EFFECTS_LEGEND, &effects(&rows))
}

/// Two lists of numbers, and the difference of their means.
pub(super) fn numbers(statement: &NumbersComparison) -> Option<Plot> {
    let comparison = &statement.comparison;
    let (a, b) = (comparison.first.as_ref()?, comparison.second.as_ref()?);
    let lists = [(&statement.first, a), (&statement.second, b)];
    let rows = lists.map(|(list, figures): (_, &ArmFigures)| {
        let name = list.name.as_ref();
        let name = name.map_or_else(String::new, |name| format!(", {name}"));
        let mark = Mark {
            over: Some((figures.min, figures.max)),
            ..Mark::at(0, figures.mean)
        };
        (format!("{}{name}", list.file), vec![mark])
    });
    let mut html = String::new();
    let table = Figures {
        metric: "values",
        unit: statement.unit,
        columns: ["mean", "min", "max"],
        kinds: &["mean"],
    };
    table.draw(&mut html, &rows);
    let effect = Effect::new(comparison.metric.clone(), statement.unit, comparison);
    html.push_str(&effects(&[effect]));
    section("effects", EFFECTS, EFFECTS_LEGEND, &html)
}

/// The accounts of two recordings that changed most.
pub(super) fn accounts(statement: &ChangeStatement) -> Option<Plot> {
    let known = statement.accounts.iter();
    let known = known.filter(|account| account.share.difference().is_some());
    let rows = known.take(ACCOUNTS).map(|account| Effect {
        name: account.name.clone(),
        unit: Unit::Share,
        scale: Scale::Absolute,
        first: account.share.first,
        second: account.share.second,
        contrast: &account.share.contrast,
    });
    let rows: Vec<Effect<'_>> = rows.collect();
    let mut html = effects(&rows);
    let left = statement.accounts.len() - rows.len();
    if left > 0 && !html.is_empty() {
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            html,
            "<p class=\"legend\">{left} more accounts are in the section Accounts.</p>"
        );
    }
    let legend = format!(
        "Shares of the time of all CPUs in both recordings. {EFFECTS_LEGEND} All accounts are \
         tested together."
    );
    section("effects", "Largest changes of CPU time", &legend, &html)
}

/// The effects of a traffic experiment's factors.
pub(super) fn factors(experiment: &NetExperiment) -> Option<Plot> {
    let rows = experiment.effects.iter().flat_map(|effect| {
        let measures = [("CPU/byte", &effect.cpu), ("throughput", &effect.rate)];
        measures.map(|(measure, measured)| Effect {
            name: format!("{}: {measure}", net_effect_name(experiment, &effect.terms)),
            unit: Unit::None,
            scale: Scale::Relative,
            first: None,
            second: None,
            contrast: &measured.contrast,
        })
    });
    let rows: Vec<Effect<'_>> = rows.collect();
    section("effects", EFFECTS, EFFECTS_LEGEND, &effects(&rows))
}

/// The arms of a traffic experiment.
pub(super) fn traffic(experiment: &NetExperiment) -> Option<Plot> {
    type Figure = fn(&ExperimentArm) -> f64;
    let metrics: [(&str, Figure); 2] = [
        ("throughput (Mbit/s)", |arm| arm.rate / 1e6),
        ("CPU time per byte (ns)", |arm| arm.cpu.ns_per_byte),
    ];
    let mut html = String::new();
    for (metric, value) in metrics {
        let arms = experiment.arms.iter();
        let rows = arms.map(|arm| (net_arm_name(experiment, arm), vec![Mark::at(0, value(arm))]));
        arms_table(metric, Unit::None).draw(&mut html, &rows.collect::<Vec<Row>>());
    }
    section(
        "arms",
        "Combinations",
        "Each circle is the mean of all runs of a combination.",
        &html,
    )
}

fn arms_table(metric: &str, unit: Unit) -> Figures<'_> {
    Figures {
        metric,
        unit,
        columns: ["value", "from", "to"],
        kinds: &["mean"],
    }
}

/// The arms of a paced loop.
pub(super) fn loops(statement: &PaceComparison) -> Option<Plot> {
    type Figure = fn(&PaceArm) -> Option<f64>;
    let metrics: [(&str, Unit, Figure); 3] = [
        ("frame rate", Unit::Hz, |arm| {
            arm.figures.as_ref()?.average_fps
        }),
        ("frames lost or late", Unit::Share, |arm| {
            (arm.wanted() > 0).then(|| arm.late() as f64 / arm.wanted() as f64)
        }),
        ("CPU time (% of one CPU)", Unit::Share, |arm| {
            Some(arm.cpu_time.share_of(arm.elapsed))
        }),
    ];
    let mut html = String::new();
    for (metric, unit, value) in metrics {
        let arms = statement.arms.iter();
        let rows = arms.filter_map(|arm| Some((loop_name(arm), vec![Mark::at(0, value(arm)?)])));
        arms_table(metric, unit).draw(&mut html, &rows.collect::<Vec<Row>>());
    }
    section(
        "arms",
        "Variants",
        "Each circle is a variant of the loop, over all its runs.",
        &html,
    )
}

/// The arms of a sweep with the highest and the lowest values.
pub(super) fn sweep(statement: &GridStatement) -> Option<Plot> {
    let ranking = statement.ranking.as_ref()?;
    let row = |kind| move |arm| (ranked_name(statement, arm), vec![Mark::at(kind, arm.value)]);
    let highest = ranking.highest.iter().map(row(0));
    let rows: Vec<Row> = highest.chain(ranking.lowest.iter().map(row(1))).collect();
    let mut html = String::new();
    let table = Figures {
        kinds: &["highest", "lowest"],
        ..arms_table(&ranking.column, ranking.unit())
    };
    table.draw(&mut html, &rows);
    let legend =
        "Each symbol is a combination of settings. The results file contains all combinations.";
    section("arms", "Highest and lowest combinations", legend, &html)
}

/// The measured and predicted arms, for each measure known for at least two of them.
pub(super) fn prediction(statement: &PredictionStatement) -> Option<Plot> {
    let mut html = String::new();
    for measure in Measure::ALL {
        let arms = statement.arms.iter();
        let rows = arms.filter_map(|arm| {
            let figure = arm.figure(measure)?;
            let kind = match arm.origin {
                Origin::Measured => 0,
                Origin::Simulated => 1,
                Origin::Predicted => 2,
            };
            let mark = Mark {
                over: figure.interval,
                ..Mark::at(kind, figure.value)
            };
            Some((prediction_name(arm), vec![mark]))
        });
        let rows: Vec<Row> = rows.collect();
        if rows.len() > 1 {
            let table = Figures {
                kinds: &["measured", "simulated recording", "predicted"],
                ..arms_table(words(measure), measure.unit())
            };
            table.draw(&mut html, &rows);
        }
    }
    let legend = "The symbol marks the value. The line is the range in which one more run is \
        expected.";
    section("arms", "Measured and predicted", legend, &html)
}

fn words(measure: Measure) -> &'static str {
    match measure {
        Measure::Fps => "frame rate",
        Measure::Dropped => "dropped frames",
        Measure::Overshot => "slots without a frame in time",
        Measure::LateMedian => "start delay, median",
        Measure::LateP99 => "start delay, p99",
        Measure::LateMax => "start delay, max",
        Measure::Cpu => "CPU time of the program (% of one CPU)",
        Measure::Top => "CPU time of the program in top (% of one CPU)",
        Measure::Sampled => "CPU time of the program by sampling (% of one CPU)",
        Measure::Wakeups => "wake-ups of the thread",
        Measure::Busy => "busy time (% of all CPUs)",
        Measure::ShownBusy => "busy time in top (% of all CPUs)",
        Measure::Ticks => "ticks on all CPUs",
        Measure::TickCost => "tick time (% of one CPU)",
        Measure::TickShare => "tick time (% of all CPUs)",
    }
}

/// Loops on kernels, and the model of each kernel.
pub(super) fn kernels(comparison: &KernelComparison) -> Option<Plot> {
    type Measured = fn(&KernelArm) -> Option<f64>;
    type Predicted = fn(&PredictedLoop) -> (f64, f64);
    let metrics: [(&str, Unit, Measured, Predicted); 3] = [
        (
            "frame rate",
            Unit::Hz,
            |arm| Some(arm.measured.rate_hz),
            |model| model.rate_hz,
        ),
        (
            "mean start delay of a frame",
            Unit::Ns,
            |arm| Some(arm.measured.wait_ns),
            |model| model.wait_ns,
        ),
        (
            "CPU time by sampling",
            Unit::Share,
            |arm| arm.measured.sampled_share,
            |model| model.sampled_share,
        ),
    ];
    let mut html = String::new();
    for (metric, unit, measured, predicted) in metrics {
        if !comparison.arms.iter().any(|arm| measured(arm).is_some()) {
            continue;
        }
        let rows = comparison.arms.iter().map(|arm| {
            let value = measured(arm).map(|value| Mark::at(0, value));
            let range = arm.predicted.as_ref();
            let range = range.map(|model| Mark::over(1, predicted(model)));
            let sleep = format!("{} {}", arm.sleep, arm.rule);
            let name = [&*arm.kernel, &*arm.cmdline, &*sleep];
            let name: Vec<&str> = name.into_iter().filter(|word| !word.is_empty()).collect();
            (name.join(" "), value.into_iter().chain(range).collect())
        });
        let table = Figures {
            columns: ["measured", "model from", "to"],
            kinds: &["kernel", "model"],
            ..arms_table(metric, unit)
        };
        table.draw(&mut html, &rows.collect::<Vec<Row>>());
    }
    let legend = "The circle is the value of the real kernel. The line is the range that the model \
        predicts.";
    section("arms", "Kernels and their models", legend, &html)
}
