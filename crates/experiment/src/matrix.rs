//! A matrix of kernels, boot parameters and frame loops. Each cell has figures that were measured
//! in the lab, predicted by the model, and published.

use ticktax_model::document::Document;
use ticktax_model::kernels::{
    CellFigures, GuestClock, KernelCell, KernelComparison, PredictedCell, PublishedLoop,
};
use ticktax_model::machine::Machine;
use ticktax_model::pace::PaceVariant;

use crate::cases;
use crate::conformance::{self, Figures, Kernel, Loop, Predicted, Range};

/// Name of the case that has the published rows.
const PUBLISHED: &str = "frame-rate-vs-hz";

/// Converts the document that a guest produced to table cells. Returns `None` if the document
/// contains no loops.
pub fn cells_of(kernel: &str, cmdline: &str, document: Document) -> Option<Vec<KernelCell>> {
    let (machine, rows) = match document {
        Document::Pace(statement) => {
            let row = statement.as_variant();
            (statement.machine, row.into_iter().collect())
        }
        Document::PaceComparison(comparison) => (comparison.machine, comparison.rows),
        _ => return None,
    };
    Some(cells(kernel, cmdline, &machine, &rows))
}

/// Creates cells for the loops of a guest that was booted with `cmdline`. Skips loops without
/// frames.
fn cells(kernel: &str, cmdline: &str, machine: &Machine, rows: &[PaceVariant]) -> Vec<KernelCell> {
    let facts = Kernel::from_machine(machine);
    let measured = rows.iter();
    let measured = measured.filter_map(|row| conformance::measured(rows, row));
    let cell = |(paced, figures): (Loop, Figures)| {
        let predicted = facts.and_then(|facts| conformance::predict(facts, &paced));
        let differs = predicted.as_ref().map(|predicted| {
            // A cell without a prediction has no differences, but it must not count as agreeing.
            conformance::differences(&paced, &figures, predicted)
        });
        KernelCell {
            kernel: kernel.to_owned(),
            hz: machine.hz_configured,
            cmdline: cmdline.to_owned(),
            sleep: paced.sleep,
            rule: paced.rule,
            period: paced.period,
            work: paced.work,
            measured: measured_cell(&figures),
            predicted: predicted.map(|predicted| predicted_cell(&paced, &predicted)),
            differs: differs.unwrap_or_default(),
        }
    };
    measured.map(cell).collect()
}

/// Combines all cells with the figures published for their tick rates. `verb` is the command that
/// each guest ran.
pub fn comparison(verb: String, clock: GuestClock, cells: Vec<KernelCell>) -> KernelComparison {
    KernelComparison {
        verb,
        clock,
        tolerance: conformance::TOLERANCE,
        published: published(&cells),
        cells,
    }
}

fn measured_cell(figures: &Figures) -> CellFigures {
    CellFigures {
        rate_hz: figures.rate,
        wait_ns: figures.wait,
        overshot_hz: figures.overshot,
        used_share: figures.used / 100.0,
        sampled_share: figures.sampled.map(|sampled| sampled / 100.0),
    }
}

fn predicted_cell(paced: &Loop, predicted: &Predicted) -> PredictedCell {
    let ends = |range: Range, scale: f64| (range.min / scale, range.max / scale);
    PredictedCell {
        rate_hz: ends(predicted.rate, 1.0),
        wait_ns: ends(predicted.wait, 1.0),
        overshot_hz: ends(predicted.overshot, 1.0),
        sampled_share: ends(predicted.sampled, 100.0),
        wide: conformance::is_wide(paced, predicted),
    }
}

/// Figures that a game server's operators published for the tick rates in `cells`.
fn published(cells: &[KernelCell]) -> Vec<PublishedLoop> {
    let Some(Ok(file)) = cases::find(PUBLISHED).map(cases::Case::file) else {
        return Vec::new();
    };
    let mut rates: Vec<u32> = cells.iter().filter_map(|cell| cell.hz).collect();
    rates.sort_unstable();
    rates.dedup();
    let published = |series: &str, hz: u32| file.row(series, &hz.to_string())?.middle();
    let published_loop = |&hz: &u32| {
        Some(PublishedLoop {
            hz,
            rate_hz: published("frames", hz)?,
            shown_share: published("cpu", hz)? / 100.0,
        })
    };
    rates.iter().rev().filter_map(published_loop).collect()
}

#[cfg(test)]
mod tests {
    use ticktax_analysis::pace::{FrameStats, Terms};
    use ticktax_model::Nanos;
    use ticktax_model::kernels::{Difference, GuestClock};
    use ticktax_model::machine::Machine;
    use ticktax_model::pace::{Frame, LoopSpec, PaceRule, PaceVariant, SleepMethod};
    use ticktax_sim::TickMode;

    use super::{cells, comparison};

    const PERIOD: Nanos = Nanos::from_millis(30);

    /// A loop with a 30 ms period that runs `rate` frames per second, each `late` ns late.
    fn row(rate: f64, late: f64) -> PaceVariant {
        let mut stats = FrameStats::new(Terms {
            period: PERIOD,
            overshot_from: None,
            asked_for: true,
        });
        for frame in 0..600 {
            #[expect(clippy::cast_possible_truncation, reason = "times in ns")]
            let (began, late) = (
                Nanos((f64::from(frame) * 1e9 / rate) as i64),
                Nanos(late as i64),
            );
            stats.frame(Frame {
                due: began - late,
                began,
                ended: began + Nanos::from_millis(1),
                cpu: Nanos::from_millis(1),
            });
        }
        PaceVariant {
            spec: LoopSpec {
                rate: 1e3 / 30.0,
                period: PERIOD,
                work: Nanos::from_millis(1),
                sleep: SleepMethod::Nanosleep,
                rule: PaceRule::Remaining,
            },
            turns: 1,
            figures: stats.close().figures(),
            cpu_time: Nanos::from_millis(600),
            elapsed: Nanos::from_secs(20),
            readings: Vec::new(),
            margin: None,
            by_turn: Vec::new(),
        }
    }

    fn machine() -> Machine {
        Machine {
            hz_configured: Some(200),
            high_resolution: Some(false),
            tick_mode: Some(TickMode::Periodic),
            ..Machine::default()
        }
    }

    #[test]
    fn a_kernel_that_differs_from_the_model_is_reported() {
        let probe = cells("hz200", "", &machine(), &[row(33.0, 1e6)]);
        let expected = probe[0].predicted.unwrap();
        let (rate, wait) = (expected.rate_hz.0, expected.wait_ns.0);
        assert!((20.0..34.0).contains(&rate), "{expected:?}");
        let rows = [row(rate, wait), row(rate * 0.97, wait)];
        let cells = cells("hz200", "nohz=off", &machine(), &rows);
        assert_eq!(cells[0].differs, []);
        assert_eq!(cells[1].differs, [Difference::Rate]);
        let comparison = |cells| comparison("pace".to_owned(), GuestClock::Host, cells);
        assert!(comparison(cells[..1].to_vec()).agrees());
        let compared = comparison(cells);
        assert!(!compared.agrees());
        // There must be one published row per tick rate.
        assert_eq!(compared.published.len(), 1);
        assert_eq!(
            (
                compared.published[0].hz,
                compared.published[0].rate_hz.to_bits()
            ),
            (200, 29f64.to_bits())
        );
    }

    #[test]
    fn a_kernel_with_an_unknown_tick_has_no_prediction() {
        let cells = cells("vmlinuz", "", &Machine::default(), &[row(33.0, 1e6)]);
        assert_eq!((cells.len(), cells[0].predicted), (1, None));
        let comparison = comparison("pace".to_owned(), GuestClock::Host, cells);
        assert!(!comparison.agrees() && comparison.published.is_empty());
    }
}
