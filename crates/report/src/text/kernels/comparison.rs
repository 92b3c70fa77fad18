//! Loops measured on kernels, compared with the model of each kernel.

use ticktax_model::kernels::{Difference, KernelCell, KernelComparison, PredictedCell, Tolerance};

use super::super::case::{line, section};
use super::clock;

/// Width of a bar chart in characters.
const PLOT: usize = 40;

/// Shows one table per kernel and set of boot parameters, and the differences from the model.
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
        &format!("Guests' time: {}", clock(comparison.clock)),
    );
    let mut group = None;
    for cell in &comparison.cells {
        let this = (&cell.kernel, &cell.cmdline);
        if group != Some(this) {
            group = Some(this);
            heading(&mut page, cell);
        }
        row(&mut page, cell);
    }
    plot(&mut page, &comparison.cells);
    published(&mut page, comparison);
    verdict(&mut page, comparison);
    page
}

fn heading(page: &mut String, cell: &KernelCell) {
    let hz = cell.hz.map_or_else(String::new, |hz| format!(" ({hz} Hz)"));
    let title = format!("{}{hz} {}", cell.kernel, cell.cmdline);
    section(page, title.trim_end());
    line(
        page,
        "  loop                             frames/s           wait, ms   overshot/s  used%      \
         sampled%",
    );
    line(
        page,
        "                                kernel   model   kernel      model   kernel kernel \
         kernel      model",
    );
}

fn row(page: &mut String, cell: &KernelCell) {
    let measured = &cell.measured;
    let modelled = |value: fn(&PredictedCell) -> (f64, f64), scale: f64| {
        cell.predicted.as_ref().map_or_else(
            || "-".to_owned(),
            |predicted| range(value(predicted), scale),
        )
    };
    let sampled = measured.sampled_share;
    let sampled = sampled.map_or_else(|| "-".to_owned(), |share| format!("{:.2}", share * 100.0));
    let wrong = if cell.differs.is_empty() { "" } else { " *" };
    let name = format!("{} {}", cell.sleep, cell.rule);
    let text = format!(
        "  {name:<29}{:>7.2} {:>7} {:>8.3} {:>11} {:>7.2} {:>6.2} {:>6} {:>11}{wrong}",
        measured.rate_hz,
        modelled(|cell| cell.rate_hz, 1.0),
        measured.wait_ns / 1e6,
        modelled(|cell| cell.wait_ns, 1e-6),
        measured.overshot_hz,
        measured.used_share * 100.0,
        sampled,
        modelled(|cell| cell.sampled_share, 100.0),
    );
    line(page, text.trim_end());
}

/// Formats a range, or one number if both ends print the same.
fn range((min, max): (f64, f64), scale: f64) -> String {
    let (min, max) = (format!("{:.2}", min * scale), format!("{:.2}", max * scale));
    if min == max {
        min
    } else {
        format!("{min}–{max}")
    }
}

/// Writes a bar chart of the mean wait by kernel and boot parameters, for the first cell's loop
/// only.
fn plot(page: &mut String, cells: &[KernelCell]) {
    let Some(first) = cells.first() else {
        return;
    };
    let same = |cell: &&KernelCell| (cell.sleep, cell.rule) == (first.sleep, first.rule);
    let cells: Vec<&KernelCell> = cells.iter().filter(same).collect();
    let waits = cells.iter().map(|cell| cell.measured.wait_ns);
    let max = waits.fold(0.0, f64::max);
    let scale = if max > 0.0 {
        format!("; a full bar is {:.3} ms", max / 1e6)
    } else {
        String::new()
    };
    section(
        page,
        &format!("Mean wait with {}, {}{scale}", first.sleep, first.rule),
    );
    for cell in cells {
        let wait = cell.measured.wait_ns;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of the chart's width, between 0 and 1"
        )]
        let length = ((wait / max.max(1.0)).clamp(0.0, 1.0) * PLOT as f64).round() as usize;
        let name = format!("{} {}", cell.kernel, cell.cmdline);
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
                "  {:>5} Hz {:>6.2} frames/s {:>5.1} % in top",
                row.hz,
                row.rate_hz,
                row.shown_share * 100.0
            ),
        );
    }
}

fn verdict(page: &mut String, comparison: &KernelComparison) {
    let Tolerance {
        rate_share,
        wait_period_share,
        sampled_share,
    } = comparison.tolerance;
    let predicted = comparison.cells.iter();
    let predicted = predicted.filter_map(|cell| cell.predicted.as_ref());
    let compared = predicted.clone().count();
    let differ = comparison
        .cells
        .iter()
        .filter(|cell| !cell.differs.is_empty());
    section(page, "Comparison of model and kernel");
    line(
        page,
        &format!(
            "  {} of {compared} agree: rates within {} %, waits within {} % of the period, \
             sampled CPU within {} points",
            compared - differ.clone().count(),
            rate_share * 100.0,
            wait_period_share * 100.0,
            sampled_share * 100.0,
        ),
    );
    let wide = predicted.filter(|cell| cell.wide).count();
    line(
        page,
        &format!(
            "  {wide} of them have a wider range in the model: the result depends on when the loop \
             starts"
        ),
    );
    let silent = comparison.cells.len() - compared;
    if silent > 0 {
        line(
            page,
            &format!(
                "  {silent} are not compared: the kernel does not report its tick rate, or the \
                 model has no such loop"
            ),
        );
    }
    for cell in differ {
        let words: Vec<&str> = cell
            .differs
            .iter()
            .map(|difference| Difference::name(*difference))
            .collect();
        line(
            page,
            &format!(
                "  * differs: {} {} {} {}: {}",
                cell.kernel,
                cell.cmdline,
                cell.sleep,
                cell.rule,
                words.join(", ")
            ),
        );
    }
}
