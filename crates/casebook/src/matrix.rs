//! A matrix of kernels, boot parameters and frame loops. Each arm is one combination of them. It
//! contains the figures that were measured in the lab and those that the model predicts. The
//! published figures are listed by tick rate.

use ticktax_model::document::Document;
use ticktax_model::kernels::{
    GuestClock, KernelArm, KernelComparison, LoopFigures, PredictedLoop, PublishedLoop,
};
use ticktax_model::machine::Machine;
use ticktax_model::pace::PaceArm;

use crate::cases;
use crate::conformance::{self, Figures, Kernel, Loop, Predicted, Range};

/// Name of the case that contains the published rows.
const PUBLISHED: &str = "frame-rate-vs-hz";

/// Converts a document from a guest to arms. Returns `None` if the document contains no loops.
pub fn arms_of(kernel: &str, cmdline: &str, document: Document) -> Option<Vec<KernelArm>> {
    let (machine, rows) = match document {
        Document::Pace(statement) => {
            let row = statement.as_arm();
            (statement.machine, row.into_iter().collect())
        }
        Document::PaceComparison(comparison) => (comparison.machine, comparison.arms),
        _ => return None,
    };
    Some(arms(kernel, cmdline, &machine, &rows))
}

/// Creates an arm for each loop of a guest that was booted with `cmdline`. Skips loops that had no
/// frames.
fn arms(kernel: &str, cmdline: &str, machine: &Machine, rows: &[PaceArm]) -> Vec<KernelArm> {
    let facts = Kernel::from_machine(machine);
    let measured = rows.iter();
    let measured = measured.filter_map(|row| conformance::measured(rows, row));
    let arm = |(paced, figures): (Loop, Figures)| {
        let predicted = facts.and_then(|facts| conformance::predict(facts, &paced));
        let differs = predicted.as_ref().map(|predicted| {
            // An arm without a prediction has no differences either. It does not count as an arm
            // that agrees with the model, because its `predicted` is `None`.
            conformance::differences(&paced, &figures, predicted)
        });
        KernelArm {
            kernel: kernel.to_owned(),
            hz: machine.hz_configured,
            cmdline: cmdline.to_owned(),
            sleep: paced.sleep,
            rule: paced.rule,
            period: paced.period,
            work: paced.work,
            measured: measured_loop(&figures),
            predicted: predicted.map(|predicted| predicted_loop(&paced, &predicted)),
            differs: differs.unwrap_or_default(),
        }
    };
    measured.map(arm).collect()
}

/// Combines all arms with the figures that were published for their tick rates. `verb` is the
/// command that each guest ran.
pub fn comparison(verb: String, clock: GuestClock, arms: Vec<KernelArm>) -> KernelComparison {
    KernelComparison {
        verb,
        clock,
        tolerance: conformance::TOLERANCE,
        published: published(&arms),
        arms,
    }
}

fn measured_loop(figures: &Figures) -> LoopFigures {
    LoopFigures {
        rate_hz: figures.rate,
        wait_ns: figures.wait,
        overshot_hz: figures.overshot,
        used_share: figures.used / 100.0,
        sampled_share: figures.sampled.map(|sampled| sampled / 100.0),
    }
}

fn predicted_loop(paced: &Loop, predicted: &Predicted) -> PredictedLoop {
    let ends = |range: Range, scale: f64| (range.min / scale, range.max / scale);
    PredictedLoop {
        rate_hz: ends(predicted.rate, 1.0),
        wait_ns: ends(predicted.wait, 1.0),
        overshot_hz: ends(predicted.overshot, 1.0),
        sampled_share: ends(predicted.sampled, 100.0),
        wide: conformance::is_wide(paced, predicted),
    }
}

/// Returns the figures that the operators of a game server published for the tick rates that occur
/// in `arms`.
fn published(arms: &[KernelArm]) -> Vec<PublishedLoop> {
    let Some(Ok(file)) = cases::find(PUBLISHED).map(cases::Case::file) else {
        return Vec::new();
    };
    let mut rates: Vec<u32> = arms.iter().filter_map(|arm| arm.hz).collect();
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
    use ticktax_model::pace::{Frame, LoopSpec, PaceArm, PaceRule, SleepMethod};
    use ticktax_sim::TickMode;

    use super::{arms, comparison};

    const PERIOD: Nanos = Nanos::from_millis(30);

    /// Returns a loop with a period of 30 ms that runs `rate` frames per second. Each frame is
    /// `late` ns late.
    fn row(rate: f64, late: f64) -> PaceArm {
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
        PaceArm {
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
        let probe = arms("hz200", "", &machine(), &[row(33.0, 1e6)]);
        let expected = probe[0].predicted.unwrap();
        let (rate, wait) = (expected.rate_hz.0, expected.wait_ns.0);
        assert!((20.0..34.0).contains(&rate), "{expected:?}");
        let rows = [row(rate, wait), row(rate * 0.97, wait)];
        let arms = arms("hz200", "nohz=off", &machine(), &rows);
        assert_eq!(arms[0].differs, []);
        assert_eq!(arms[1].differs, [Difference::Rate]);
        let comparison = |arms| comparison("pace".to_owned(), GuestClock::Host, arms);
        assert!(comparison(arms[..1].to_vec()).agrees());
        let compared = comparison(arms);
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
        let arms = arms("vmlinuz", "", &Machine::default(), &[row(33.0, 1e6)]);
        assert_eq!((arms.len(), arms[0].predicted), (1, None));
        let comparison = comparison("pace".to_owned(), GuestClock::Host, arms);
        assert!(!comparison.agrees() && comparison.published.is_empty());
    }
}
