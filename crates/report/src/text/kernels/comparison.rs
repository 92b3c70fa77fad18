//! The page that compares loops measured on kernels with the model of each kernel.

use ticktax_model::kernels::{Difference, KernelArm, KernelComparison, PredictedLoop, Tolerance};

use super::super::case::{line, section, wrapped};
use super::super::numbers::counted;
use super::super::page::TIE;
use super::clock;

/// Width of the longest bar in a chart, in characters.
const PLOT: usize = 40;

/// Shows a table for each kernel and set of boot parameters, and how the measurements differ from
/// the model.
pub(in crate::text) fn comparison(comparison: &KernelComparison) -> String {
    let mut page = String::new();
    line(
        &mut page,
        &format!(
            "ticktax: {} on real kernels and in the model",
            comparison.verb
        ),
    );
    line(
        &mut page,
        &format!("Guest clock: {}", clock(comparison.clock)),
    );
    let mut group = None;
    for arm in &comparison.arms {
        let this = (&arm.kernel, &arm.cmdline);
        if group != Some(this) {
            group = Some(this);
            heading(&mut page, arm);
        }
        row(&mut page, arm);
    }
    plot(&mut page, &comparison.arms);
    published(&mut page, comparison);
    verdict(&mut page, comparison);
    page
}

fn heading(page: &mut String, arm: &KernelArm) {
    let hz = arm.hz.map_or_else(String::new, |hz| format!(" ({hz} Hz)"));
    let title = format!("{}{hz} {}", arm.kernel, arm.cmdline);
    section(page, title.trim_end());
    let [rate, wait, missed, cpu, ticks] = [
        "frames per second",
        "mean wait, ms",
        "late/s",
        "% CPU",
        "% CPU by ticks",
    ];
    line(
        page,
        &format!(
            "{:31}{rate:>18}{wait:>17}{missed:>7}{cpu:>7}{ticks:>20}",
            ""
        ),
    );
    let [kernel, model] = ["kernel", "model"];
    line(
        page,
        &format!(
            "  {:<29}{kernel:>6} {model:>11} {kernel:>6} {model:>9} {kernel:>6} {kernel:>6} \
             {kernel:>6} {model:>12}",
            "loop"
        ),
    );
}

fn row(page: &mut String, arm: &KernelArm) {
    let measured = &arm.measured;
    let modelled = |value: fn(&PredictedLoop) -> (f64, f64), scale: f64| {
        arm.predicted.as_ref().map_or_else(
            || "-".to_owned(),
            |predicted| range(value(predicted), scale),
        )
    };
    let sampled = measured.sampled_share;
    let sampled = sampled.map_or_else(|| "-".to_owned(), |share| format!("{:.2}", share * 100.0));
    let wrong = if arm.differs.is_empty() { "" } else { " *" };
    let name = format!("{} {}", arm.sleep, arm.rule);
    let text = format!(
        "  {name:<29}{:>6.2} {:>11} {:>6.3} {:>9} {:>6.2} {:>6.2} {:>6} {:>12}{wrong}",
        measured.rate_hz,
        modelled(|arm| arm.rate_hz, 1.0),
        measured.wait_ns / 1e6,
        modelled(|arm| arm.wait_ns, 1e-6),
        measured.overshot_hz,
        measured.used_share * 100.0,
        sampled,
        modelled(|arm| arm.sampled_share, 100.0),
    );
    line(page, text.trim_end());
}

/// Formats a range. If both ends are printed alike, formats them as one number.
fn range((min, max): (f64, f64), scale: f64) -> String {
    let (min, max) = (format!("{:.2}", min * scale), format!("{:.2}", max * scale));
    if min == max {
        min
    } else {
        format!("{min}–{max}")
    }
}

/// Draws a bar chart of the mean wait for each kernel and set of boot parameters. Only the loop of
/// the first arm is shown.
fn plot(page: &mut String, arms: &[KernelArm]) {
    let Some(first) = arms.first() else {
        return;
    };
    let same = |arm: &&KernelArm| (arm.sleep, arm.rule) == (first.sleep, first.rule);
    let arms: Vec<&KernelArm> = arms.iter().filter(same).collect();
    let waits = arms.iter().map(|arm| arm.measured.wait_ns);
    let max = waits.fold(0.0, f64::max);
    let scale = if max > 0.0 {
        format!("; a full bar is {:.3} ms", max / 1e6)
    } else {
        String::new()
    };
    section(
        page,
        &format!("Mean wait of {} {}{scale}", first.sleep, first.rule),
    );
    for arm in arms {
        let wait = arm.measured.wait_ns;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of the chart's width, between 0 and 1"
        )]
        let length = ((wait / max.max(1.0)).clamp(0.0, 1.0) * PLOT as f64).round() as usize;
        let name = format!("{} {}", arm.kernel, arm.cmdline);
        let bar = "#".repeat(length);
        let text = format!("  {name:<32} {:>7.3} ms {bar}", wait / 1e6);
        line(page, text.trim_end());
    }
}

/// Writes published measurements of a game server at the same tick rates.
fn published(page: &mut String, comparison: &KernelComparison) {
    if comparison.published.is_empty() {
        return;
    }
    section(
        page,
        "Published for another loop on Linux 2.6 (ticktax case show frame-rate-vs-hz)",
    );
    for row in &comparison.published {
        line(
            page,
            &format!(
                "  {:>5} Hz {:>6.2} frames/s {:>5.1} % CPU in top",
                row.hz,
                row.rate_hz,
                row.shown_share * 100.0
            ),
        );
    }
}

/// Formats a count with its noun, without ties between words.
fn plain(count: usize, one: &str) -> String {
    counted(count as u64, one).replace(TIE, " ")
}

fn verdict(page: &mut String, comparison: &KernelComparison) {
    let Tolerance {
        rate_share,
        wait_period_share,
        sampled_share,
    } = comparison.tolerance;
    let predicted = comparison.arms.iter();
    let predicted = predicted.filter_map(|arm| arm.predicted.as_ref());
    let compared = predicted.clone().count();
    let differ = comparison.arms.iter().filter(|arm| !arm.differs.is_empty());
    section(page, "Comparison of model and kernel");
    let text = format!(
        "{} of {} agree: rates within {} %, waits within {} % of the period, CPU time by ticks \
         within {} percentage points.",
        compared - differ.clone().count(),
        plain(compared, "loop"),
        rate_share * 100.0,
        wait_period_share * 100.0,
        sampled_share * 100.0,
    );
    wrapped(page, &text, 2);
    for arm in differ {
        let words: Vec<&str> = arm
            .differs
            .iter()
            .map(|difference| Difference::name(*difference))
            .collect();
        let text = format!(
            "* differs: {} {} {}: {}",
            format!("{} {}", arm.kernel, arm.cmdline).trim_end(),
            arm.sleep,
            arm.rule,
            words.join(", ")
        );
        line(page, &format!("  {text}"));
    }
    let wide = predicted.filter(|arm| arm.wide).count();
    let text = format!(
        "For {wide} of them, the model gives a range, because the result depends on when the loop \
         starts."
    );
    wrapped(page, &text, 2);
    let silent = comparison.arms.len() - compared;
    if silent > 0 {
        let text = format!(
            "{} not compared, because the kernel does not report its tick rate, or the model has \
             no such loop.",
            plain(silent, "loop")
        );
        wrapped(page, &text, 2);
    }
    let legend = "late/s: slots per second without a frame in time. % CPU: share of a CPU that \
        the loop \
        used. % CPU by ticks: the same as the kernel counts it at its ticks.";
    wrapped(page, legend, 2);
}
