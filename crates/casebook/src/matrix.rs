//! A matrix of kernels, boot parameters and frame loops. Each arm is one combination of them, with
//! the figures measured in the lab and those predicted by the model. The published figures are
//! listed by tick rate.

use ticktax_model::comparison::{
    Arm, ArmEffect, Comparison, Experiment, Figure, KernelsRecord, Measure, Origin, PublishedLoop,
    Scale, Setting, tabulate,
};
use ticktax_model::document::Document;
use ticktax_model::kernels::GuestClock;
use ticktax_model::machine::Machine;
use ticktax_model::pace::PaceArm;

use crate::cases;
use crate::conformance::{self, Deviation, Figures, Kernel, Loop, Predicted, Range};

/// Name of the case that contains the published rows.
const PUBLISHED: &str = "frame-rate-vs-hz";

/// An arm, with the figures known for it.
type TableArm = (Arm, Vec<(Measure, Figure)>);

/// A loop that was measured on a kernel.
#[derive(Clone, Debug)]
pub struct KernelLoop {
    /// Tick rate of the kernel.
    hz: Option<u32>,
    measured: TableArm,
    /// The model's prediction, or `None` if the model does not cover this loop.
    predicted: Option<TableArm>,
    deviations: Vec<Deviation>,
}

/// Returns the loops in a document from a guest that was booted with `cmdline`. Skips loops without
/// frames. Returns `None` if the document contains no loops.
pub fn loops_of(kernel: &str, cmdline: &str, document: Document) -> Option<Vec<KernelLoop>> {
    let (machine, rows) = match document {
        Document::Pace(statement) => {
            let row = statement.as_arm();
            (statement.machine, row.into_iter().collect())
        }
        Document::Comparison(comparison) => match comparison.experiment {
            Experiment::Loops(record) => (comparison.machine.unwrap_or_default(), record.loops),
            _ => return None,
        },
        _ => return None,
    };
    Some(loops(kernel, cmdline, &machine, &rows))
}

fn loops(kernel: &str, cmdline: &str, machine: &Machine, rows: &[PaceArm]) -> Vec<KernelLoop> {
    let facts = Kernel::from_machine(machine);
    let measured = rows.iter();
    let measured = measured.filter_map(|row| conformance::measured(rows, row));
    let loop_on_kernel = |(paced, figures): (Loop, Figures)| {
        let arm = |origin| {
            let settings = [
                ("kernel", kernel.to_owned()),
                ("cmdline", cmdline.to_owned()),
                ("sleep", paced.sleep.to_string()),
                ("rule", paced.rule.to_string()),
                ("period", paced.period.to_string()),
                ("work", paced.work.to_string()),
            ];
            let hz = machine.hz_configured.map(|hz| Setting::new("hz", hz));
            let settings = settings.into_iter();
            let settings = settings.map(|(name, value)| Setting::new(name, value));
            Arm::new(origin, settings.chain(hz).collect())
        };
        let predicted = facts.and_then(|facts| conformance::predict(facts, &paced));
        // Without a prediction, a loop has no deviations, but that doesn't mean that it agrees with
        // the model.
        let deviations = predicted
            .as_ref()
            .map(|predicted| conformance::deviations(&paced, &figures, predicted));
        KernelLoop {
            hz: machine.hz_configured,
            measured: (arm(Origin::Measured), measured_figures(&figures)),
            predicted: predicted
                .map(|predicted| (arm(Origin::Predicted), predicted_figures(&predicted))),
            deviations: deviations.unwrap_or_default(),
        }
    };
    measured.map(loop_on_kernel).collect()
}

/// Combines all loops with the figures published for their tick rates. `verb` is the command that
/// each guest ran.
pub fn comparison(verb: String, clock: GuestClock, loops: Vec<KernelLoop>) -> Comparison {
    let rates = loops.iter().filter_map(|measured| measured.hz).collect();
    let record = KernelsRecord {
        verb,
        clock,
        tolerance: conformance::TOLERANCE,
        published: published(rates),
    };
    let (mut arms, mut deviations) = (Vec::new(), Vec::new());
    for KernelLoop {
        measured,
        predicted,
        deviations: own,
        ..
    } in loops
    {
        let arm = arms.len();
        arms.push(measured);
        arms.extend(predicted);
        deviations.extend(own.into_iter().map(|deviation| (arm, deviation)));
    }
    let (metrics, arms) = tabulate(arms);
    let experiment = Experiment::Kernels(Box::new(record));
    let mut comparison = Comparison {
        metrics,
        arms,
        ..Comparison::new(env!("CARGO_PKG_VERSION"), experiment)
    };
    let effects = deviations.into_iter().filter_map(|(arm, deviation)| {
        Some(ArmEffect {
            metric: comparison.metric(deviation.measure.id())?,
            base: arm + 1,
            arm,
            scale: Scale::Absolute,
            contrast: deviation.contrast,
            tolerance: Some(deviation.tolerance),
            ..ArmEffect::default()
        })
    });
    comparison.effects = effects.collect();
    comparison
}

fn measured_figures(figures: &Figures) -> Vec<(Measure, Figure)> {
    let mut all = vec![
        (Measure::Fps, figures.rate.into()),
        (Measure::LateMean, figures.wait.into()),
        (Measure::Overshot, (60.0 * figures.overshot).into()),
        (Measure::Cpu, (figures.used / 100.0).into()),
    ];
    let sampled = figures.sampled.map(|sampled| (sampled / 100.0).into());
    all.extend(sampled.map(|sampled| (Measure::Sampled, sampled)));
    all
}

fn predicted_figures(predicted: &Predicted) -> Vec<(Measure, Figure)> {
    let figure = |measure, range: Range, factor| {
        let Range { min, max } = range.scaled(factor);
        (measure, Figure::from((min, max)))
    };
    vec![
        figure(Measure::Fps, predicted.rate, 1.0),
        figure(Measure::LateMean, predicted.wait, 1.0),
        figure(Measure::Overshot, predicted.overshot, 60.0),
        figure(Measure::Sampled, predicted.sampled, 0.01),
    ]
}

/// Returns the figures that a game server's operators published for the kernels' tick rates.
fn published(mut rates: Vec<u32>) -> Vec<PublishedLoop> {
    let Some(Ok(file)) = cases::find(PUBLISHED).map(cases::Case::file) else {
        return Vec::new();
    };
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
    use ticktax_model::comparison::{Experiment, KernelsRecord, Measure};
    use ticktax_model::kernels::GuestClock;
    use ticktax_model::machine::Machine;
    use ticktax_model::pace::{Frame, LoopSpec, PaceArm, PaceRule, SleepMethod};
    use ticktax_sim::TickMode;

    use super::{Comparison, KernelLoop, comparison, loops};

    const PERIOD: Nanos = Nanos::from_millis(30);

    /// Returns a loop with a period of 30 ms that runs `rate` frames per second, each of them
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

    fn compare(loops: Vec<KernelLoop>) -> Comparison {
        comparison("pace".to_owned(), GuestClock::Host, loops)
    }

    fn record(comparison: &Comparison) -> &KernelsRecord {
        let Experiment::Kernels(record) = &comparison.experiment else {
            panic!("{:?}", comparison.experiment);
        };
        record
    }

    #[test]
    fn a_kernel_that_differs_from_the_model_is_reported() {
        let probe = compare(loops("hz200", "", &machine(), &[row(33.0, 1e6)]));
        let expected = |measure| {
            let figure = probe.figure(&probe.arms[1], measure).unwrap();
            figure.interval.unwrap().0
        };
        let (rate, wait) = (expected(Measure::Fps), expected(Measure::LateMean));
        assert!((20.0..34.0).contains(&rate), "{probe:?}");
        let rows = [row(rate, wait), row(rate * 0.97, wait)];
        let both = loops("hz200", "nohz=off", &machine(), &rows);
        assert!(compare(both[..1].to_vec()).agrees());
        let compared = compare(both);
        let differ = compared.effects.iter();
        let differ = differ.filter(|effect| effect.contrast.verdict.differs());
        let differ: Vec<_> = differ.map(|effect| (effect.arm, effect.metric)).collect();
        assert_eq!(differ, [(2, compared.metric(Measure::Fps.id()).unwrap())]);
        assert!(!compared.agrees());
        // There must be one published row per tick rate.
        let published = &record(&compared).published;
        assert_eq!(published.len(), 1);
        assert_eq!(
            (published[0].hz, published[0].rate_hz.to_bits()),
            (200, 29f64.to_bits())
        );
    }

    #[test]
    fn a_kernel_with_an_unknown_tick_has_no_prediction() {
        let loops = loops("vmlinuz", "", &Machine::default(), &[row(33.0, 1e6)]);
        let comparison = compare(loops);
        assert_eq!((comparison.arms.len(), comparison.effects.len()), (1, 0));
        assert!(!comparison.agrees() && record(&comparison).published.is_empty());
    }
}
