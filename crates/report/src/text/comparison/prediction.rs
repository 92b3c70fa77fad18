//! The page about a prediction. It shows the measured figures with the model's figures below them.

use ticktax_model::comparison::{
    ArmEffect, Comparison, Contrast, Measure, Origin, PredictionRecord,
};

use super::super::TextStyle;
use super::super::block::Written;
use super::super::head;
use super::super::numbers::{counted, percent};
use super::super::page::{Page, Tone, tied};
use super::arm_name;
use super::arms::{Column, NamedArm, headings, row};

const FRAMES: [Column<'_>; 6] = [
    ("FPS", Measure::Fps),
    ("dropped", Measure::Dropped),
    ("overshot", Measure::Overshot),
    ("late", Measure::LateMedian),
    ("p99", Measure::LateP99),
    ("max", Measure::LateMax),
];
const PROGRAM: [Column<'_>; 4] = [
    ("CPU", Measure::Cpu),
    ("as top", Measure::Top),
    ("sampled", Measure::Sampled),
    ("wakeups", Measure::Wakeups),
];
const MACHINE: [Column<'_>; 5] = [
    ("busy", Measure::Busy),
    ("as shown", Measure::ShownBusy),
    ("ticks", Measure::Ticks),
    ("cost", Measure::TickCost),
    ("share", Measure::TickShare),
];

/// Renders a prediction as a page that ends with a line break.
pub(super) fn page(
    comparison: &Comparison,
    prediction: &PredictionRecord,
    style: &TextStyle,
) -> Written {
    let mut page = Page::new(*style);
    let title = format!("ticktax: prediction from {}", prediction.load);
    page.line(Tone::Strong, &title);
    match comparison.effects.first() {
        Some(effect) => control(&mut page, comparison, effect),
        None => no_control(&mut page, comparison, prediction),
    }
    if let Some(machine) = &comparison.machine {
        head::host(&mut page, machine);
    }
    let runs = format!(
        "{} of {} for each setting, seeds from {}. from, to: range that contains the result of \
         one more such run with a probability of {}.",
        counted(prediction.runs.into(), "run"),
        tied(prediction.length),
        prediction.seed,
        percent(prediction.coverage)
    );
    page.paragraph(Tone::Plain, "Runs      ", &runs);
    if let Some(program) = &prediction.program {
        if comparison.metric(Measure::Fps.id()).is_some() {
            table(
                &mut page,
                &format!("Frames of {program}"),
                comparison,
                &FRAMES,
            );
        }
        table(
            &mut page,
            &format!("CPU time of {program}"),
            comparison,
            &PROGRAM,
        );
    }
    table(&mut page, "Machine", comparison, &MACHINE);
    list(&mut page, "Taken from the file", &prediction.taken);
    list(&mut page, "Assumptions", &prediction.assumed);
    list(&mut page, "Not modelled", &prediction.left_out);
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

/// Writes whether the model reproduces the measured rate, which comes before anything else on the
/// page.
fn control(page: &mut Page, comparison: &Comparison, effect: &ArmEffect) {
    let Contrast {
        effect: deviation,
        verdict,
        ..
    } = effect.contrast;
    let fps = |arm: usize| {
        let value = comparison
            .arms
            .get(arm)
            .and_then(|arm| arm.value(effect.metric));
        tied(format!("{:.1} FPS", value.unwrap_or_default()))
    };
    let compared = format!(
        "measured {}, the model gives {} for the same settings: {} off, limit {}",
        fps(effect.base),
        fps(effect.arm),
        tied(format!(
            "{:+.1} %",
            100.0 * deviation.map_or(0.0, |off| off.value)
        )),
        tied(format!(
            "±{:.0} %",
            100.0 * effect.tolerance.unwrap_or_default()
        )),
    );
    if !verdict.differs() {
        page.paragraph(Tone::Good, "Control   ", &compared);
        return;
    }
    let predicted = comparison
        .arms
        .iter()
        .filter(|arm| arm.origin == Origin::Predicted);
    let then = if predicted.count() > 1 {
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

/// Writes why the model was not checked against the measurement. Writes nothing if there was no
/// measurement.
fn no_control(page: &mut Page, comparison: &Comparison, prediction: &PredictionRecord) {
    let has_frames = |origin| {
        let arm = comparison.arms.iter().find(|arm| arm.origin == origin)?;
        Some(comparison.value(arm, Measure::Fps).is_some())
    };
    let Some(is_measured) = has_frames(Origin::Measured) else {
        return;
    };
    let why = match &prediction.program {
        None => "no program was selected".to_owned(),
        Some(program) if !is_measured => format!("{program} has no frames in the recording"),
        Some(program) => format!("{program} has no frames in the model"),
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

fn table(page: &mut Page, title: &str, comparison: &Comparison, columns: &[Column<'_>]) {
    page.section(title);
    headings(page, "", columns);
    for arm in &comparison.arms {
        let name = arm_name(comparison, arm);
        row(page, comparison, columns, &NamedArm::new(arm, name));
    }
}
