//! The page about a prediction. It shows the measured figures, and the model's figures below them.

use ticktax_model::prediction::{Control, Measure, Origin, PredictionArm, PredictionStatement};

use super::block::{Columns, Written};
use super::head;
use super::numbers::{counted, percent};
use super::page::{Page, Tone, tied};
use super::value::cell;
use super::{Paged, TextStyle};

impl Paged for PredictionStatement {
    fn page(&self, style: &TextStyle) -> Written {
        prediction(self, style)
    }
}

/// Heading and measure of a table column.
type Column = (&'static str, Measure);

const FRAMES: [Column; 6] = [
    ("FPS", Measure::Fps),
    ("dropped", Measure::Dropped),
    ("overshot", Measure::Overshot),
    ("late", Measure::LateMedian),
    ("p99", Measure::LateP99),
    ("max", Measure::LateMax),
];
const PROGRAM: [Column; 4] = [
    ("CPU", Measure::Cpu),
    ("as top", Measure::Top),
    ("sampled", Measure::Sampled),
    ("wakeups", Measure::Wakeups),
];
const MACHINE: [Column; 5] = [
    ("busy", Measure::Busy),
    ("as shown", Measure::ShownBusy),
    ("ticks", Measure::Ticks),
    ("cost", Measure::TickCost),
    ("share", Measure::TickShare),
];
/// Width of a table column in characters.
const WIDE: usize = 9;

/// Renders a prediction as a page that ends with a line break.
pub(super) fn prediction(statement: &PredictionStatement, style: &TextStyle) -> Written {
    let mut page = Page::new(*style);
    page.line(
        Tone::Strong,
        &format!("ticktax: prediction from {}", statement.load),
    );
    match &statement.control {
        Some(comparison) => control(&mut page, comparison, statement),
        None => no_control(&mut page, statement),
    }
    if let Some(machine) = &statement.machine {
        head::host(&mut page, machine);
    }
    let runs = format!(
        "{} of {} for each setting, seeds from {}. from, to: range that contains the result of \
         one more such run with a probability of {}.",
        counted(statement.runs.into(), "run"),
        tied(statement.length),
        statement.seed,
        percent(statement.coverage)
    );
    page.paragraph(Tone::Plain, "Runs      ", &runs);
    let whose = statement.program.as_deref();
    if let Some(whose) = whose {
        let frames = statement
            .arms
            .iter()
            .any(|row| row.figure(Measure::Fps).is_some());
        if frames {
            table(&mut page, &format!("Frames of {whose}"), statement, &FRAMES);
        }
        table(
            &mut page,
            &format!("CPU time of {whose}"),
            statement,
            &PROGRAM,
        );
    }
    table(&mut page, "Machine", statement, &MACHINE);
    list(&mut page, "Taken from the file", &statement.taken);
    list(&mut page, "Assumptions", &statement.assumed);
    list(&mut page, "Not modelled", &statement.left_out);
    page.section("Terms");
    page.paragraph(
        Tone::Faint,
        "",
        "predicted: by a model, not measured. dropped: slots without a frame, per minute. \
         overshot: slots of a fixed schedule without a frame in time, per minute. late, p99, max: \
         median, 99th percentile and maximum of the time from when a frame was due to its start. \
         CPU: share of one CPU, by actual run time. as top: the same by /proc/PID/stat. sampled: \
         the same by sampling at each tick. wakeups: of the thread, per second. busy: share of the \
         time of all CPUs. as shown: the same by /proc/stat. ticks: per second, on all CPUs. cost: \
         time in ticks and their softirqs, of one CPU. share: the same, of all CPUs.",
    );
    page.finish()
}

/// Writes whether the model reproduces the measured rate. This comes before anything else on the
/// page.
fn control(page: &mut Page, control: &Control, statement: &PredictionStatement) {
    let compared = format!(
        "measured {}, the model gives {} for the same settings: {} off, limit {}",
        tied(format!("{:.1} FPS", control.measured)),
        tied(format!("{:.1} FPS", control.predicted)),
        tied(format!("{:+.1} %", 100.0 * control.off())),
        tied(format!("±{:.0} %", 100.0 * Control::LIMIT)),
    );
    if !control.failed {
        page.paragraph(Tone::Good, "Control   ", &compared);
        return;
    }
    let predicted = statement.arms.iter();
    let others = predicted
        .filter(|row| row.origin == Origin::Predicted)
        .count()
        > 1;
    let then = if others {
        "The model lacks something that matters here: do not rely on the predictions below."
    } else {
        "The model lacks something that matters here, so nothing else is predicted (--force \
         predicts it regardless)."
    };
    page.paragraph(
        Tone::Alarm,
        "CONTROL FAILED: ",
        &format!("{compared}. {then}"),
    );
}

/// Writes why the model was not checked against the measurement. Writes nothing if nothing was
/// measured.
fn no_control(page: &mut Page, statement: &PredictionStatement) {
    let row = |origin| statement.arms.iter().find(|row| row.origin == origin);
    let Some(measured) = row(Origin::Measured) else {
        return;
    };
    let has_frames = |row: &PredictionArm| row.figure(Measure::Fps).is_some();
    let why = match (&statement.program, row(Origin::Predicted)) {
        (None, _) => "no program was selected".to_owned(),
        (Some(program), _) if !has_frames(measured) => {
            format!("{program} has no frames in the recording")
        }
        (Some(program), Some(predicted)) if !has_frames(predicted) => {
            format!("{program} has no frames in the model")
        }
        // Documents written by older versions contain no check of the model.
        _ => return,
    };
    let text = format!(
        "{why}, so the model is not checked against the measurement; compare the rows \
         \"measured unchanged\" and \"predicted unchanged\"."
    );
    page.paragraph(Tone::Alarm, "No control: ", &text);
}

fn list(page: &mut Page, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    page.section(title);
    for line in lines {
        page.paragraph(Tone::Plain, "  - ", line);
    }
}

fn table(page: &mut Page, title: &str, statement: &PredictionStatement, columns: &[Column]) {
    page.section(title);
    let headings = side_by_side(columns.iter().map(|(name, _)| *name));
    page.headings(Tone::Faint, "", &headings);
    for row in &statement.arms {
        let tone = match row.origin {
            Origin::Measured | Origin::Simulated => Tone::Strong,
            Origin::Predicted => Tone::Plain,
        };
        // The values must be aligned, so a long name goes on a separate line.
        let name = name(row);
        let room = 80 - WIDE * columns.len() - 2;
        let values = cells_of(row, columns, |row, measure| {
            row.figure(measure).map(|figure| figure.value)
        });
        if name.chars().count() > room {
            page.line(tone, &name);
            page.row(tone, 2, "", &values);
        } else {
            page.row(tone, 0, &name, &values);
        }
        for (word, end) in [("from", 0), ("to", 1)] {
            let ends = cells_of(row, columns, |row, measure| {
                let (low, high) = row.figure(measure)?.interval?;
                Some(if end == 0 { low } else { high })
            });
            if !ends.is_blank() {
                page.row(Tone::Faint, 4, word, &ends);
            }
        }
    }
}

/// Returns the name of a row, which consists of its origin and its settings.
pub(crate) fn name(row: &PredictionArm) -> String {
    let settings = if row.settings.is_empty() {
        "unchanged".to_owned()
    } else {
        row.settings.join(" ")
    };
    format!("{} {settings}", row.origin.name())
}

fn cells_of(
    row: &PredictionArm,
    columns: &[Column],
    value: impl Fn(&PredictionArm, Measure) -> Option<f64>,
) -> Columns {
    let cells = columns.iter().map(|&(_, measure)| {
        value(row, measure).map_or_else(String::new, |value| cell(measure.unit(), value))
    });
    side_by_side(cells)
}

/// Creates cells that all have the width [`WIDE`].
fn side_by_side<T: ToString>(cells: impl Iterator<Item = T>) -> Columns {
    cells.fold(Columns::default(), |line, cell| {
        line.and_right(0, WIDE, cell)
    })
}

#[cfg(test)]
mod tests {
    use ticktax_model::prediction::{
        Control, Figure, Measure, Origin, PredictionArm, PredictionStatement,
    };

    use super::prediction;
    use crate::TextStyle;
    use crate::text::tests::samples::game_prediction;

    #[test]
    fn every_predicted_number_is_on_a_line_named_predicted() {
        let figure = |value, interval| Figure {
            measure: Measure::Fps,
            value,
            interval,
        };
        let row = |origin, settings: &[&str], figure| PredictionArm {
            origin,
            settings: settings.iter().map(ToString::to_string).collect(),
            figures: vec![figure],
        };
        let long = ["hz=1000", "tick=periodic", "highres=off"];
        let statement = PredictionStatement {
            left_out: vec!["much".to_owned()],
            ..game_prediction(vec![
                row(Origin::Measured, &[], figure(34.9, None)),
                row(Origin::Predicted, &[], figure(34.8, Some((34.7, 35.0)))),
                row(Origin::Predicted, &long, figure(33.3, Some((33.2, 33.4)))),
            ])
        };
        let text = prediction(&statement, &TextStyle::default());
        assert!(text.contains("measured unchanged"), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        let at = |what: &str| lines.iter().position(|line| line.contains(what)).unwrap();
        assert_eq!(at("34.80"), at("predicted unchanged"));
        assert_eq!(
            at("33.30"),
            at("predicted hz=1000 tick=periodic highres=off") + 1
        );
        assert!(lines[at("34.70")].contains("from") && lines[at("35.00")].contains("to"));
        assert!(
            lines.iter().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn a_missing_control_is_reported_first() {
        let row = |origin| PredictionArm {
            origin,
            settings: Vec::new(),
            figures: Vec::new(),
        };
        let page = |first| {
            let statement = game_prediction(vec![row(first), row(Origin::Predicted)]);
            prediction(&statement, &TextStyle::default())
        };
        let measured = page(Origin::Measured);
        let second = measured.lines().nth(1).unwrap();
        assert!(
            second.starts_with("No control: game has no frames in the recording"),
            "{measured}"
        );
        assert!(!page(Origin::Simulated).contains("No control"));
    }

    #[test]
    fn a_failed_control_is_reported_first() {
        let row = |origin, value| PredictionArm {
            origin,
            settings: Vec::new(),
            figures: vec![Figure {
                measure: Measure::Fps,
                value,
                interval: None,
            }],
        };
        let page = |predicted| {
            let rows = vec![
                row(Origin::Measured, 32.9),
                row(Origin::Predicted, predicted),
            ];
            let statement = PredictionStatement {
                control: Control::of(&rows[0], &rows[1]),
                ..game_prediction(rows)
            };
            prediction(&statement, &TextStyle::default())
        };
        let failed = page(44.0);
        let second = failed.lines().nth(1).unwrap();
        assert!(
            second.starts_with("CONTROL FAILED: measured 32.9 FPS"),
            "{failed}"
        );
        assert!(
            failed.contains("+33.7 %") && failed.contains("--force"),
            "{failed}"
        );
        assert!(!page(33.5).contains("FAILED"));
    }
}
