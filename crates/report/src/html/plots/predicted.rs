//! Plots of measured values next to the values that the model predicts for each setting.

use std::fmt::Write;

use ticktax_model::prediction::{Figure, Measure, Origin, PredictionStatement};

use super::Plot;
use super::axis::{Axis, Unit};
use super::strips::{Mark, Strips};
use crate::html::escape::text;
use crate::html::quantity::Quantity;
use crate::text::{Topic, predicted_value, prediction_name};

/// Kinds of marks, by origin of the value.
const KINDS: [&str; 3] = ["measured", "simulated recording", "predicted"];

/// Draws a table for each measure that is known for at least two rows.
pub(super) fn plot(statement: &PredictionStatement) -> Option<Plot> {
    let mut html =
        "<p class=\"legend\">The symbol marks the value. The line is the range in which \
        one more run is expected.</p>\n"
            .to_owned();
    let mut any = false;
    for measure in Measure::ALL {
        let rows: Vec<_> = statement
            .arms
            .iter()
            .filter_map(|row| Some((row, row.figure(measure)?)))
            .collect();
        if rows.len() < 2 {
            continue;
        }
        any = true;
        let (title, unit) = named(measure);
        let values = rows.iter().flat_map(|(_, figure)| mark(0, figure).values());
        let axis = Axis::fitting(title, values.collect::<Vec<_>>().into_iter(), unit);
        // Writing to a `String` cannot fail.
        let _ = writeln!(html, "<h3>{}</h3>", text(title));
        let mut table = Strips::new(title, &["value", "from", "to"], &KINDS, vec![axis]);
        for (row, figure) in rows {
            let kind = match row.origin {
                Origin::Measured => 0,
                Origin::Simulated => 1,
                Origin::Predicted => 2,
            };
            let end = |value: Option<f64>| {
                value.map_or_else(Quantity::default, |value| {
                    Quantity::new(predicted_value(measure, value), value.to_string())
                })
            };
            let cells = [
                end(Some(figure.value)),
                end(figure.interval.map(|interval| interval.0)),
                end(figure.interval.map(|interval| interval.1)),
            ];
            table.row(&prediction_name(row), &cells, &[&[mark(kind, figure)]]);
        }
        html.push_str(&table.finish());
    }
    any.then_some(Plot {
        id: "predicted",
        title: "Measured and predicted",
        topic: Topic::Other,
        html,
    })
}

fn mark(kind: usize, figure: &Figure) -> Mark {
    Mark {
        over: figure.interval,
        ..Mark::at(kind, figure.value)
    }
}

/// Returns the title of a measure and the unit of its axis. The title includes the unit if the axis
/// labels have none.
fn named(measure: Measure) -> (&'static str, Unit) {
    match measure {
        Measure::Fps => ("frames per second", Unit::Number),
        Measure::Dropped => ("dropped frames per minute", Unit::Number),
        Measure::Overshot => ("overshot slots per minute", Unit::Number),
        Measure::LateMedian => ("start delay, median", Unit::Time),
        Measure::LateP99 => ("start delay, p99", Unit::Time),
        Measure::LateMax => ("start delay, max", Unit::Time),
        Measure::Cpu => ("CPU time of the program (% of one CPU)", Unit::Share),
        Measure::Top => ("CPU time of the program in top (% of one CPU)", Unit::Share),
        Measure::Sampled => (
            "CPU time of the program by sampling (% of one CPU)",
            Unit::Share,
        ),
        Measure::Wakeups => ("wake-ups of the thread per second", Unit::Number),
        Measure::Busy => ("busy time (% of all CPUs)", Unit::Share),
        Measure::ShownBusy => ("busy time in top (% of all CPUs)", Unit::Share),
        Measure::Ticks => ("ticks per second on all CPUs", Unit::Number),
        Measure::TickCost => ("tick time (% of one CPU)", Unit::Share),
        Measure::TickShare => ("tick time (% of all CPUs)", Unit::Share),
    }
}
