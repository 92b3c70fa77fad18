//! A matrix of kernels, boot parameters and ways to pace a loop: what the lab measured, what the
//! model gives, and what was published, as a page.

use std::fmt::Write;

use crate::cases;
use crate::conformance::{self, Difference, Figures, Loop, Predicted, Range, differences};

/// The width of a plot in characters.
const PLOT: usize = 40;
/// The case whose rows stand beside.
const PUBLISHED: &str = "frame-rate-vs-hz";

/// One loop on one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The kernel.
    pub kernel: String,
    /// Its tick rate, in Hz, where it tells it.
    pub hz: Option<u32>,
    /// The parameters that it was booted with.
    pub cmdline: String,
    /// The loop.
    pub loops: Loop,
    /// What was measured.
    pub measured: Figures,
    /// What the model gives; `None` where it has nothing for this loop.
    pub predicted: Option<Predicted>,
}

impl Cell {
    /// Whether the model's range of waits or samples is wider than what may differ on both sides.
    fn is_wide(&self) -> bool {
        let predicted = self.predicted.as_ref();
        predicted.is_some_and(|it| conformance::is_wide(&self.loops, it))
    }

    /// Where the model differs from what was measured by more than it may.
    pub fn differences(&self) -> Vec<Difference> {
        let predicted = self.predicted.as_ref();
        predicted.map_or_else(Vec::new, |it| differences(&self.loops, &self.measured, it))
    }
}

/// All cells of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// What was run in each guest.
    pub verb: String,
    /// What the guests' time was, as they are told it.
    pub clock: String,
    /// The cells, in the order in which they were run.
    pub cells: Vec<Cell>,
}

impl Matrix {
    /// Whether the model agrees with every cell, and has something to say of each.
    pub fn agrees(&self) -> bool {
        let agrees = |cell: &Cell| cell.predicted.is_some() && cell.differences().is_empty();
        !self.cells.is_empty() && self.cells.iter().all(agrees)
    }

    /// All of it as text.
    pub fn page(&self) -> String {
        let mut page = String::new();
        line(
            &mut page,
            &format!("ticktax: {} on real kernels and in the model", self.verb),
        );
        line(&mut page, &format!("Guests' time: {}", self.time()));
        let mut group = None;
        for cell in &self.cells {
            let this = (&cell.kernel, &cell.cmdline);
            if group != Some(this) {
                group = Some(this);
                heading(&mut page, cell);
            }
            row(&mut page, cell);
        }
        self.plot(&mut page);
        published(&mut page, &self.cells);
        self.verdict(&mut page);
        page
    }

    fn time(&self) -> String {
        match self.clock.strip_prefix("icount:") {
            Some(shift) => format!(
                "instructions, 2^{shift} ns each; caches, pipelines and hypervisors cost nothing"
            ),
            None => "the host's, with its noise".to_owned(),
        }
    }

    /// How late the first way's frames are, by kernel and parameters.
    fn plot(&self, page: &mut String) {
        let Some(first) = self.cells.first() else {
            return;
        };
        let same = |cell: &&Cell| {
            (cell.loops.sleep, cell.loops.rule) == (first.loops.sleep, first.loops.rule)
        };
        let cells: Vec<&Cell> = self.cells.iter().filter(same).collect();
        let max = cells
            .iter()
            .map(|cell| cell.measured.wait)
            .fold(0.0, f64::max);
        section(
            page,
            &format!("Mean wait with {}, {}", first.loops.sleep, first.loops.rule),
        );
        for cell in cells {
            let share = cell.measured.wait / max.max(1.0);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of a plot's width"
            )]
            let length = (share.clamp(0.0, 1.0) * PLOT as f64).round() as usize;
            let wait = cell.measured.wait / 1e6;
            let name = format!("{} {}", cell.kernel, cell.cmdline);
            line(
                page,
                &format!("  {name:<32} {wait:>7.3} ms {}", "#".repeat(length)),
            );
        }
    }

    fn verdict(&self, page: &mut String) {
        let compared = self
            .cells
            .iter()
            .filter(|cell| cell.predicted.is_some())
            .count();
        let differ: Vec<&Cell> = self
            .cells
            .iter()
            .filter(|cell| !cell.differences().is_empty())
            .collect();
        section(page, "The model beside the kernel");
        line(
            page,
            &format!(
                "  {} of {compared} agree: rates within 1 %, waits within 1 % of the period, \
                 sampled CPU within 0.5 points",
                compared - differ.len()
            ),
        );
        let wide = self.cells.iter().filter(|cell| cell.is_wide()).count();
        line(
            page,
            &format!(
                "  in {wide} of them the model's range is wider: the moment at which the loop began decides"
            ),
        );
        let silent = self.cells.len() - compared;
        if silent > 0 {
            line(
                page,
                &format!(
                    "  {silent} are compared with nothing: the kernel does not tell its tick rate, or the \
                     loop has no step in the model"
                ),
            );
        }
        for cell in differ {
            let words: Vec<&str> = cell
                .differences()
                .into_iter()
                .map(Difference::name)
                .collect();
            line(
                page,
                &format!(
                    "  differs: {} {} {} {}: {}",
                    cell.kernel,
                    cell.cmdline,
                    cell.loops.sleep,
                    cell.loops.rule,
                    words.join(", ")
                ),
            );
        }
    }
}

fn heading(page: &mut String, cell: &Cell) {
    let hz = cell.hz.map_or_else(String::new, |hz| format!(" ({hz} Hz)"));
    section(page, &format!("{}{hz} {}", cell.kernel, cell.cmdline));
    line(
        page,
        "  loop                             frames/s           wait, ms       late/s  used%      \
         sampled%",
    );
    line(
        page,
        "                                kernel   model   kernel      model   kernel kernel \
         kernel      model",
    );
}

fn row(page: &mut String, cell: &Cell) {
    let Cell {
        loops, measured, ..
    } = cell;
    let modelled = |of: fn(&Predicted) -> Range, scale: f64, digits: usize| {
        cell.predicted
            .as_ref()
            .map_or_else(|| "-".to_owned(), |it| range(of(it), scale, digits))
    };
    let sampled = measured
        .sampled
        .map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"));
    let wrong = if cell.differences().is_empty() {
        ""
    } else {
        " *"
    };
    let name = format!("{} {}", loops.sleep, loops.rule);
    line(
        page,
        &format!(
            "  {name:<29}{:>7.2} {:>7} {:>8.3} {:>11} {:>7.2} {:>6.2} {:>6} {:>11}{wrong}",
            measured.rate,
            modelled(|it| it.rate, 1.0, 2),
            measured.wait / 1e6,
            modelled(|it| it.wait, 1e6, 2),
            measured.overshot,
            measured.used,
            sampled,
            modelled(|it| it.sampled, 1.0, 2),
        ),
    );
}

/// One number where both ends are told alike.
fn range(it: Range, scale: f64, digits: usize) -> String {
    let min = format!("{:.digits$}", it.min / scale);
    let max = format!("{:.digits$}", it.max / scale);
    if min == max {
        min
    } else {
        format!("{min}–{max}")
    }
}

/// What a game server's operators published of the same rates.
fn published(page: &mut String, cells: &[Cell]) {
    let Some(Ok(file)) = cases::find(PUBLISHED).map(cases::Case::file) else {
        return;
    };
    let mut rates: Vec<u32> = cells.iter().filter_map(|cell| cell.hz).collect();
    rates.sort_unstable();
    rates.dedup();
    let of = |series: &str, hz: u32| {
        let rows = &file.series(series)?.rows;
        let row = rows.iter().find(|row| row.at.parse() == Ok(hz))?;
        Some(row.middle())
    };
    let rows: Vec<String> = rates
        .iter()
        .rev()
        .filter_map(|&hz| {
            let (frames, cpu) = (of("frames", hz)?, of("cpu", hz)?);
            Some(format!(
                "  {hz:>5} Hz {frames:>6.2} frames/s {cpu:>5.1} % in top"
            ))
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    section(
        page,
        "Published, of another loop on Linux 2.6 (ticktax case show frame-rate-vs-hz)",
    );
    for row in rows {
        line(page, &row);
    }
}

fn section(page: &mut String, title: &str) {
    line(page, "");
    line(page, title.trim_end());
}

fn line(page: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "{}", text.trim_end());
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pace::{PaceRule, SleepMethod};

    use super::{Cell, Matrix};
    use crate::conformance::{Figures, Loop, Predicted, Range};

    fn cell(rate: f64) -> Cell {
        let at = |value| Range {
            min: value,
            max: value,
        };
        Cell {
            kernel: "hz200".to_owned(),
            hz: Some(200),
            cmdline: "nohz=off".to_owned(),
            loops: Loop {
                period: Nanos::from_millis(30),
                work: Nanos::from_millis(1),
                sleep: SleepMethod::Poll,
                rule: PaceRule::Remaining,
                margin: None,
                code: Nanos::ZERO,
                length: Nanos::from_secs(20),
            },
            measured: Figures {
                rate,
                wait: 2e6,
                overshot: 0.0,
                used: 3.0,
                sampled: None,
            },
            predicted: Some(Predicted {
                rate: at(33.0),
                wait: at(2.1e6),
                overshot: at(0.0),
                sampled: at(3.0),
            }),
        }
    }

    #[test]
    fn a_difference_is_marked_and_named() {
        let matrix = |rate| Matrix {
            verb: "pace".to_owned(),
            clock: "icount:2".to_owned(),
            cells: vec![cell(33.1), cell(rate)],
        };
        let same = matrix(33.2);
        assert!(
            same.agrees() && same.page().contains("2 of 2 agree"),
            "{}",
            same.page()
        );
        assert!(same.page().contains("caches, pipelines"));
        // The case's own row for this rate.
        assert!(
            same.page().contains("200 Hz  29.00 frames/s"),
            "{}",
            same.page()
        );
        let other = matrix(34.0);
        assert!(!other.agrees());
        assert!(other.page().contains("1 of 2 agree"));
        assert!(
            other
                .page()
                .contains("differs: hz200 nohz=off poll remaining: rate\n")
        );
    }
}
