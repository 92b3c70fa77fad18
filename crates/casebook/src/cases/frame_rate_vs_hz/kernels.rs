//! `frame-rate-vs-hz` on real kernels: runs the same loop on kernels that end sleeps on ticks.

use ticktax_model::Nanos;
use ticktax_model::kernels::{Allowance, GuestClock, KernelRow, KernelTable, KernelsStatement};
use ticktax_sim::{Report, Setup, Step, TaskSpec, run};

use crate::cases;
use crate::conformance::{Kernel, PHASES, Range, machine};
use crate::file::CaseFile;
use crate::kernels::{GuestJob, KernelCase, Trial, modelled, published, rates, release};

pub(super) struct Frames;

/// Boots a kernel that ends sleeps on ticks, as the published machine did, and that keeps ticking
/// while the CPU is idle.
const JOB: GuestJob = GuestJob {
    cmdline: "highres=off nohz=off",
    length: Nanos::from_secs(60),
    programs: true,
    counted: false,
};

/// A figure to compare between kernels, the model and the source.
struct Figure {
    what: &'static str,
    series: &'static str,
    unit: &'static str,
    allowed: Option<Allowance>,
    value: fn(&LoopRates) -> f64,
}

const FIGURES: [Figure; 4] = [
    Figure {
        what: "frames",
        series: "frames",
        unit: "1/s",
        allowed: Some(Allowance::Share(0.01)),
        value: |rates| rates.frames,
    },
    Figure {
        what: "CPU as sampled at ticks",
        series: "cpu",
        unit: "%",
        allowed: Some(Allowance::Of(0.5)),
        value: |rates| rates.sampled,
    },
    Figure {
        what: "CPU as used",
        series: "",
        unit: "%",
        // No tolerance applies, because this value, measured with the kernel's own clock, is an
        // input of the model.
        allowed: None,
        value: |rates| rates.used,
    },
    Figure {
        what: "overshot",
        series: "overshot",
        unit: "1/s",
        allowed: None,
        value: |rates| rates.overshot,
    },
];

/// Results of the loop, per second or in % of a CPU.
struct LoopRates {
    frames: f64,
    sampled: f64,
    used: f64,
    overshot: f64,
}

impl KernelCase for Frames {
    fn jobs(&self) -> Vec<GuestJob> {
        vec![JOB]
    }

    fn rates(&self, file: &CaseFile) -> Vec<u32> {
        rates(file, "frames")
    }

    fn statement(&self, file: &CaseFile, clock: GuestClock, trials: &[Trial]) -> KernelsStatement {
        let case = cases::find(&file.name);
        let programs = case.map_or_else(Vec::new, |case| case.programs(&file.values()));
        let modelled = modelled(file);
        let results: Vec<(u32, LoopRates, Vec<LoopRates>)> = trials
            .iter()
            .filter_map(|trial| {
                let task = programs.first()?;
                Some((trial.hz, measured(trial)?, expected(trial, task)))
            })
            .collect();
        let table = |figure: &Figure| {
            let rows = results.iter().map(|(hz, kernel, expected)| {
                let (published, modelled) = published(file, &modelled, figure.series, *hz);
                let range = Range::from_values(expected.iter().map(figure.value));
                KernelRow {
                    hz: *hz,
                    published,
                    modelled,
                    expected: (!expected.is_empty()).then_some((range.min, range.max)),
                    fit: false,
                    kernel: (figure.value)(kernel),
                }
            });
            KernelTable {
                what: figure.what.to_owned(),
                cmdline: JOB.cmdline.to_owned(),
                unit: figure.unit.to_owned(),
                kernel_unit: figure.unit.to_owned(),
                expectation: "the model of this kernel".to_owned(),
                allowed: figure.allowed,
                rows: rows.collect(),
            }
        };
        KernelsStatement {
            head: file.head(),
            release: release(trials),
            clock,
            tables: FIGURES.iter().map(table).collect(),
            remarks: vec![
                cases::remark(
                    "frames",
                    "on the published kernel, a sleep takes one tick longer than requested (the \
                     rule of 2.6); on these kernels it ends at the first tick at or after its \
                     deadline"
                        .to_owned(),
                ),
                cases::remark(
                    "CPU",
                    "published from top, which showed time sampled at ticks; these kernels sample \
                     for /proc/stat, but measure each process exactly"
                        .to_owned(),
                ),
            ],
        }
    }
}

fn measured(trial: &Trial) -> Option<LoopRates> {
    let replay = &trial.replay;
    let task = replay.tasks.first()?;
    let seconds = replay.elapsed.as_secs_f64();
    Some(LoopRates {
        frames: task.frames as f64 / seconds,
        sampled: replay.sampled.as_secs_f64() / seconds * 100.0,
        used: task.ran.as_secs_f64() / seconds * 100.0,
        overshot: task.overshot as f64 / seconds,
    })
}

/// Returns the model's results for the same loop on this kernel, one for each phase of the tick at
/// which the loop may start. Each burst of work includes the CPU time that kernel entry and exit
/// add.
fn expected(trial: &Trial, task: &TaskSpec) -> Vec<LoopRates> {
    let Some(kernel) = Kernel::from_machine(&trial.replay.machine) else {
        return Vec::new();
    };
    let replayed = trial.replay.tasks.first();
    let more = replayed.map_or(Nanos::ZERO, |task| {
        let bursts = i64::try_from(task.bursts.max(1)).unwrap_or(i64::MAX);
        Nanos((task.ran - task.requested).0 / bursts)
    });
    let phases = (0..PHASES).map(|phase| {
        let mut setup = Setup::new(machine(kernel, phase), trial.job.length);
        setup.tasks.push(longer(task, more));
        let report = run(&setup).unwrap_or_else(|error| panic!("the case's machine: {error}"));
        rates_of(&report, kernel.hz)
    });
    phases.collect()
}

/// Returns a copy of `task` in which each work step takes `more` longer.
fn longer(task: &TaskSpec, more: Nanos) -> TaskSpec {
    let mut task = task.clone();
    for step in &mut task.program {
        if let Step::Every { work: law, .. } | Step::Work(law) = step {
            *law = law.plus(more.max(Nanos::ZERO));
        }
    }
    task
}

fn rates_of(report: &Report, hz: u32) -> LoopRates {
    let seconds = report.elapsed.as_secs_f64();
    let task = report.tasks[0];
    LoopRates {
        frames: task.frames as f64 / seconds,
        sampled: task.sampled as f64 / f64::from(hz) / seconds * 100.0,
        used: task.ran.as_secs_f64() / seconds * 100.0,
        overshot: task.overshot as f64 / seconds,
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::machine::{Machine as Facts, TickMode};
    use ticktax_sim::{Setup, run};

    use ticktax_model::kernels::GuestClock;

    use super::{Frames, JOB};
    use crate::cases;
    use crate::conformance::{Kernel, machine};
    use crate::kernels::{KernelCase, Trial};
    use crate::replay::Replay;
    use ticktax_model::replay::ReplayedTask;

    /// Returns a trial on a kernel that behaves like the model, except that it completes only the
    /// fraction `share` of the frames.
    fn trial(hz: u32, share: f64) -> Trial {
        let facts = Facts {
            kernel: "6.1.0".to_owned(),
            hz_configured: Some(hz),
            high_resolution: Some(false),
            tick_mode: Some(TickMode::Periodic),
            ..Facts::default()
        };
        let case = cases::find("frame-rate-vs-hz").unwrap();
        let file = case.file().unwrap();
        let mut setup = Setup::new(
            machine(Kernel::from_machine(&facts).unwrap(), 5),
            JOB.length,
        );
        setup.tasks = case.programs(&file.values());
        let task = run(&setup).unwrap().tasks[0];
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a few thousand frames"
        )]
        let frames = (task.frames as f64 * share) as u64;
        Trial {
            hz,
            job: JOB,
            replay: Replay {
                machine: facts,
                elapsed: JOB.length,
                sampled: Nanos(
                    i64::try_from(task.sampled).unwrap() * 1_000_000_000 / i64::from(hz),
                ),
                tasks: vec![ReplayedTask {
                    frames,
                    overshot: task.overshot,
                    bursts: task.bursts,
                    sleeps: task.sleeps,
                    requested: task.ran,
                    ran: task.ran,
                }],
            },
            instructions: None,
        }
    }

    #[test]
    fn a_kernel_like_the_model_agrees_and_a_slower_one_does_not() {
        let file = cases::find("frame-rate-vs-hz").unwrap().file().unwrap();
        assert_eq!(Frames.rates(&file), [1000, 800, 600, 500, 400, 200]);
        let same = Frames.statement(
            &file,
            GuestClock::Host,
            &[trial(1000, 1.0), trial(200, 1.0)],
        );
        assert_eq!(same.met(), (4, 4), "{same:#?}");
        assert_eq!(same.release.as_deref(), Some("6.1.0"));
        let frames = &same.tables[0].rows[1];
        assert_eq!((frames.hz, frames.published), (200, Some((29.0, 29.0))));
        // The kernel's sampling must not charge any CPU time to the loop, even though the loop uses
        // some.
        let (sampled, used) = (&same.tables[1].rows[1], &same.tables[2].rows[1]);
        assert!(
            sampled.kernel < 0.1 && used.kernel > 9.0,
            "{sampled:?} {used:?}"
        );
        let slower = Frames.statement(&file, GuestClock::Host, &[trial(1000, 0.98)]);
        assert_eq!(slower.met(), (1, 2));
    }
}
