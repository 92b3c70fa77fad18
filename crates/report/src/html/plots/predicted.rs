//! Plots of measured values next to the model's predictions for each setting.

use std::fmt::Write;

use ticktax_model::prediction::{Figure, Measure, Origin, PredictionStatement};

use super::Plot;
use super::axis::{Axis, Unit};
use super::strips::{Mark, Strips};
use crate::html::escape::text;
use crate::text::{predicted_value, prediction_name};

/// The kinds of marks: measured, from a simulated recording, predicted.
const KINDS: [&str; 3] = ["measured", "of a simulated recording", "predicted"];

/// A table for each measure known for at least two rows.
pub(super) fn plot(statement: &PredictionStatement) -> Option<Plot> {
    let mut html = "<p class=\"legend\">A shape at the value; a line from where to where one more run is to be expected.</p>\n"
        .to_owned();
    let mut any = false;
    for measure in Measure::ALL {
        let rows: Vec<_> = statement
            .rows
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
                value.map_or_else(String::new, |value| predicted_value(measure, value))
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
        html,
    })
}

fn mark(kind: usize, figure: &Figure) -> Mark {
    Mark {
        over: figure.interval,
        ..Mark::at(kind, figure.value)
    }
}

/// The title of a measure, with its unit if the axis labels have none.
fn named(measure: Measure) -> (&'static str, Unit) {
    match measure {
        Measure::Fps => ("frames a second (1/s)", Unit::Number),
        Measure::Dropped => ("dropped slots (1/min)", Unit::Number),
        Measure::Overshot => ("overshot steps (1/min)", Unit::Number),
        Measure::LateMedian => ("late, median", Unit::Time),
        Measure::LateP99 => ("late, p99", Unit::Time),
        Measure::LateMax => ("late, longest", Unit::Time),
        Measure::Cpu => ("CPU time of the program, of one CPU", Unit::Share),
        Measure::Top => ("the same as top shows it, of one CPU", Unit::Share),
        Measure::Sampled => ("the same as samples have it, of one CPU", Unit::Share),
        Measure::Wakeups => ("wakeups of the thread (1/s)", Unit::Number),
        Measure::Busy => ("busy, of all CPUs", Unit::Share),
        Measure::ShownBusy => ("busy as shown, of all CPUs", Unit::Share),
        Measure::Ticks => ("ticks on all CPUs (1/s)", Unit::Number),
        Measure::TickCost => ("time in ticks, of one CPU", Unit::Share),
        Measure::TickShare => ("time in ticks, of all CPUs", Unit::Share),
    }
}
