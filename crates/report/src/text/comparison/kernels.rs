//! The page that compares loops measured on kernels with the model of each kernel.

use ticktax_model::comparison::{
    Arm, ArmEffect, Comparison, KernelsRecord, Measure, Origin, Tolerance,
};

use super::super::TextStyle;
use super::super::block::Written;
use super::super::kernels::clock;
use super::super::numbers::counted;
use super::super::page::{Page, Tone};
use super::arms::{Column, NamedArm, headings, row};
use super::values;

const COLUMNS: [Column<'_>; 5] = [
    ("FPS", Measure::Fps),
    ("late", Measure::LateMean),
    ("overshot", Measure::Overshot),
    ("CPU", Measure::Cpu),
    ("sampled", Measure::Sampled),
];

/// Explains the columns.
const WORDS: &str = "late: mean time from when a frame was due to its start. overshot: slots \
    without a frame in time, per minute. CPU: share of a CPU that the loop used. sampled: the same \
    as the kernel counts it at its ticks. predicted: range over all moments at which the loop can \
    start. *: differs from the model.";

/// Shows a table for each kernel and set of boot parameters, and how the measurements differ from
/// the model.
pub(super) fn page(comparison: &Comparison, kernels: &KernelsRecord, style: &TextStyle) -> Written {
    let mut page = Page::new(*style);
    let title = format!("ticktax: {} on real kernels and in the model", kernels.verb);
    page.paragraph(Tone::Strong, "", &title);
    page.paragraph(Tone::Plain, "Guest clock: ", &clock(kernels.clock));
    verdict(&mut page, comparison, kernels);
    let mut group = None;
    for (index, arm) in comparison.arms.iter().enumerate() {
        let this = kernel(arm);
        if group.as_ref() != Some(&this) {
            page.section(&this);
            headings(&mut page, "loop", &COLUMNS);
            group = Some(this);
        }
        let differs = comparison.effects.iter();
        let differs = differs.filter(|effect| effect.arm == index).any(is_off);
        let mark = if differs { " *" } else { "" };
        let varied = values(arm, &["sleep", "rule"]);
        let name = if varied.is_empty() { "loop" } else { &varied };
        let name = format!("{name}{mark}");
        row(&mut page, comparison, &COLUMNS, &NamedArm::new(arm, name));
    }
    published(&mut page, kernels);
    page.legend(WORDS);
    page.finish()
}

/// Names the kernel, its tick rate and its boot parameters.
fn kernel(arm: &Arm) -> String {
    let hz = arm
        .setting("hz")
        .map_or_else(String::new, |hz| format!(" ({hz} Hz)"));
    let name = format!(
        "{}{hz} {}",
        values(arm, &["kernel"]),
        values(arm, &["cmdline"])
    );
    name.trim_end().to_owned()
}

fn is_off(effect: &ArmEffect) -> bool {
    effect.contrast.verdict.differs()
}

/// Writes published measurements of a game server at the same tick rates.
fn published(page: &mut Page, kernels: &KernelsRecord) {
    if kernels.published.is_empty() {
        return;
    }
    page.section("Published for another loop on Linux 2.6 (ticktax case show frame-rate-vs-hz)");
    for row in &kernels.published {
        let text = format!(
            "  {:>5} Hz {:>6.2} frames/s {:>5.1} % CPU in top",
            row.hz,
            row.rate_hz,
            row.shown_share * 100.0
        );
        page.line(Tone::Plain, &text);
    }
}

/// Writes how many loops agree with the model, and which figures disagree in the other loops.
fn verdict(page: &mut Page, comparison: &Comparison, kernels: &KernelsRecord) {
    let Tolerance {
        rate_share,
        wait_period_share,
        sampled_share,
    } = kernels.tolerance;
    let measured = comparison.arms.iter().enumerate();
    let measured = measured.filter(|(_, arm)| arm.origin == Origin::Measured);
    let (mut agree, mut compared, mut wide, mut silent) = (0, 0, 0, 0);
    let mut lines = Vec::new();
    for (index, arm) in measured {
        let effects = comparison.effects.iter();
        let effects: Vec<&ArmEffect> = effects.filter(|effect| effect.arm == index).collect();
        if effects.is_empty() {
            silent += 1;
            continue;
        }
        compared += 1;
        wide += u64::from(effects.iter().any(|effect| is_wide(comparison, effect)));
        let off = effects.iter().filter(|effect| is_off(effect));
        let off = off.filter_map(|effect| {
            let id = &comparison.metrics.get(effect.metric)?.id;
            let named = COLUMNS.iter().find(|(_, measure)| measure.id() == id)?;
            Some(named.0)
        });
        let off: Vec<&str> = off.collect();
        if off.is_empty() {
            agree += 1;
        } else {
            let name = values(arm, &["kernel", "cmdline", "sleep", "rule"]);
            lines.push(format!("{name}: {}", off.join(", ")));
        }
    }
    let text = format!(
        "{agree} of {} agree: rates within {} %, waits within {} % of the period, sampled CPU \
         time within {} percentage points.",
        counted(compared, "loop"),
        rate_share * 100.0,
        wait_period_share * 100.0,
        sampled_share * 100.0,
    );
    let tone = if agree == compared {
        Tone::Good
    } else {
        Tone::Alarm
    };
    page.paragraph(tone, "", &text);
    for line in lines {
        page.paragraph(Tone::Alarm, "Differs: ", &line);
    }
    let text = format!(
        "For {wide} of them, the model gives a range, because the result depends on when the loop \
         starts."
    );
    page.paragraph(Tone::Plain, "", &text);
    if silent > 0 {
        let text = format!(
            "{} not compared, because the kernel does not report its tick rate, or the model has \
             no such loop.",
            counted(silent, "loop")
        );
        page.paragraph(Tone::Warning, "", &text);
    }
}

/// Returns whether the predicted range of a wait or of samples is wider than twice the tolerance. A
/// measurement within such a range proves little.
fn is_wide(comparison: &Comparison, effect: &ArmEffect) -> bool {
    let range = comparison
        .arms
        .get(effect.base)
        .and_then(|arm| arm.figure(effect.metric));
    let range = range.and_then(|figure| figure.interval);
    let is_rate = comparison.metric(Measure::Fps.id()) == Some(effect.metric);
    let limit = 2.0 * effect.tolerance.unwrap_or_default();
    !is_rate && range.is_some_and(|(low, high)| high - low > limit)
}
