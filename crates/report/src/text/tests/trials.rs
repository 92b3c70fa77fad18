//! Tests for pages about trials and about lists of numbers.

use ticktax_model::Nanos;
use ticktax_model::comparison::{
    Arm, ArmEffect, ArmFigures, Better, Check, Comparison, Contrast, Design, Effect, Experiment,
    FailIfResult, Figure, Metric, Outcome, Predicted, ResourceEffect, RunPurpose, Scale, Setting,
    TrialRecord, TrialRun, Unit, Verdict,
};
use ticktax_model::knob::{UndoOutcome, UndoneSetting};
use ticktax_model::machine::Machine;

use crate::text::Paged;
use crate::{Section, Sections, TextStyle, View};

/// Returns the figures for a list with this mean. Its smallest value is 2 % below the mean, its
/// largest is 3 % above it, and all others are equal.
fn figures(count: u64, mean: f64) -> ArmFigures {
    let (low, high, others) = (0.98, 1.03, count as f64 - 2.0);
    let middle = (count as f64 - low - high) / others;
    let square = |value: f64| (value - 1.0) * (value - 1.0);
    let squares = square(low) + square(high) + others * square(middle);
    ArmFigures {
        count,
        mean,
        median: middle * mean,
        deviation: (squares / (count as f64 - 1.0)).sqrt() * mean,
        min: low * mean,
        max: high * mean,
    }
}

fn arm(label: &str, value: &str, means: [f64; 4]) -> Arm {
    Arm {
        label: label.to_owned(),
        settings: vec![Setting {
            target: "the machine".to_owned(),
            ..Setting::new("kernel.numa_balancing", value)
        }],
        runs: 20,
        figures: means.map(|mean| Some(figures(20, mean).into())).to_vec(),
        ..Arm::default()
    }
}

/// Returns the effect for two means of a metric. If it is certain, its confidence interval extends
/// by about 20 % of the effect on either side. If it is uncertain, the interval includes 0.
fn effect(metric: usize, (a, b): (f64, f64), verdict: Verdict) -> ArmEffect {
    let value = b / a - 1.0;
    let (margin, chance) = match verdict {
        Verdict::CannotTell { .. } => (1.6 * value.abs() + 0.002, 0.19),
        Verdict::NoDifferenceBeyond { .. } => (0.2 * value.abs() + 0.002, 0.81),
        _ => (0.2 * value.abs() + 0.002, 0.005_9),
    };
    ArmEffect {
        metric,
        arm: 1,
        blocks: Some(10),
        contrast: Contrast {
            effect: Some(Effect::within(value, margin)),
            chance: Some(chance),
            verdict,
        },
        chance: Some(chance / 3.0),
        // The noise of ten blocks that would lead to an interval with this margin, and the effect
        // that they detect with 80 % power.
        noise: Some(1.4 * margin),
        detectable: Some(1.5 * margin),
        ..ArmEffect::default()
    }
}

fn undone(id: &str, outcome: UndoOutcome) -> UndoneSetting {
    UndoneSetting {
        id: id.to_owned(),
        target: "the machine".to_owned(),
        original: "1".to_owned(),
        found: Some("0".to_owned()),
        outcome,
        problem: None,
    }
}

/// Means of the trial's metrics in each of its arms.
const MEANS: [[f64; 4]; 2] = [
    [2.03e9, 310e3, 0.031, 59.94],
    [1.95e9, 420e3, 0.031_02, 59.6],
];

/// Returns the runs in a block, in the order A B B A. The values of the ten blocks average to
/// [`MEANS`].
fn runs(block: u64) -> [TrialRun; 4] {
    let deviation = ((block * 7 % 10) as f64 - 4.5) / 450.0;
    [0, 1, 1, 0].map({
        let mut position = 0;
        move |arm: usize| {
            position += 1;
            let side = if position > 2 { 0.003 } else { -0.003 };
            TrialRun {
                purpose: RunPurpose::Measured,
                block,
                position: position - 1,
                arm,
                began: Nanos::from_secs(i64::try_from(2 * (4 * block + position)).unwrap()),
                succeeded: true,
                values: MEANS[arm]
                    .map(|mean| Some(mean * (1.0 + deviation + side)))
                    .to_vec(),
                resources: Vec::new(),
            }
        }
    })
}

/// Returns a trial with two arms and four metrics. Each metric has a different verdict.
pub(crate) fn two_arms() -> Comparison {
    let pair = |metric: usize| (MEANS[0][metric], MEANS[1][metric]);
    let bound = Verdict::NoDifferenceBeyond { bound: 0.003 };
    let open = Verdict::CannotTell {
        more_blocks: Some(34),
    };
    let verdicts = [Verdict::Better, Verdict::Worse, bound, open].into_iter();
    let effects = (0..).zip(verdicts);
    let record = TrialRecord {
        resources: Vec::new(),
        reasons: Vec::new(),
        subject: "./render --frames 300".to_owned(),
        design: Design {
            blocks: 10,
            looks: 1,
            seed: 7,
            warm_ups: 1,
            noise_runs: 12,
            settle: Nanos::from_millis(200),
            difference: 0.05,
        },
        runs: (0..10).flat_map(runs).collect(),
        interrupted: false,
        stopped: None,
        fail_if: vec![FailIfResult {
            condition: "p99 > +2%".parse().unwrap(),
            arm: 1,
            outcome: Outcome::Holds,
        }],
        restored: vec![undone("kernel.numa_balancing", UndoOutcome::Restored)],
    };
    Comparison {
        machine: Some(Machine {
            host: "audio-7".to_owned(),
            kernel: "6.12.9-generic".to_owned(),
            ..Machine::default()
        }),
        began_unix: Some(1_700_000_000),
        arms: vec![arm("A", "1", MEANS[0]), arm("B", "0", MEANS[1])],
        metrics: vec![
            Metric::new("time", Unit::Ns, Better::Lower),
            Metric::new("p99", Unit::Ns, Better::Lower),
            Metric::new("wait", Unit::Share, Better::Lower),
            Metric::new("fps", Unit::Hz, Better::Higher),
        ],
        effects: effects
            .map(|(metric, verdict)| effect(metric, pair(metric), verdict))
            .collect(),
        ..Comparison::new("0.1.0", Experiment::Trial(Box::new(record)))
    }
}

/// Returns a trial with three arms and every problem that a trial can have.
fn in_trouble() -> Comparison {
    let mut trial = two_arms();
    trial.arms.push(arm("C", "2", MEANS[1]));
    trial.arms[1].failed = 6;
    let Experiment::Trial(record) = &mut trial.experiment else {
        panic!("{trial:?}");
    };
    record.interrupted = true;
    record.fail_if[0].condition = "fps < -1%".parse().unwrap();
    record.fail_if[0].outcome = Outcome::CannotTell;
    record.restored = vec![undone("kernel.numa_balancing", UndoOutcome::ChangedByOther)];
    let predicted = Effect {
        value: -0.031,
        low: -0.034,
        high: -0.029,
    };
    let measured = Effect::within(-0.039, 0.052);
    let mut third_arm = trial.effects.clone();
    trial.effects[0] = ArmEffect {
        blocks: Some(4),
        contrast: Contrast {
            effect: Some(measured),
            chance: Some(0.37),
            verdict: Verdict::CannotTell { more_blocks: None },
        },
        predicted: Some(Predicted {
            load: "build.parquet".to_owned(),
            settings: vec!["slice=3ms".to_owned()],
            effect: predicted,
            error: Some(predicted.value - measured.value),
        }),
        checks: vec![
            Check::TooFew { have: 4, need: 7 },
            Check::Drift {
                change: 0.104,
                chance: 0.000_3,
            },
            Check::Order {
                change: -0.02,
                chance: 0.008,
            },
            Check::Failures {
                first_share: 0.0,
                second_share: 0.3,
                chance: 0.02,
            },
        ],
        ..trial.effects[0].clone()
    };
    trial.effects[1].checks = vec![
        Check::Sorted {
            first: false,
            second: true,
            chance: 0.001,
        },
        Check::Missing { runs: 3 },
    ];
    for effect in &mut third_arm {
        effect.arm = 2;
    }
    third_arm[2].scale = Scale::Absolute;
    third_arm[2].contrast.verdict = Verdict::Differs;
    third_arm[3] = ArmEffect {
        contrast: Contrast::default(),
        chance: None,
        checks: vec![Check::Constant { value: 0.0 }],
        ..third_arm[3].clone()
    };
    trial.effects.extend(third_arm);
    trial
}

fn list(label: &str, file: &str, name: Option<&str>, values: ArmFigures) -> Arm {
    let mut settings = vec![Setting::new("file", file)];
    settings.extend(name.map(|name| Setting::new("name", name)));
    Arm {
        label: label.to_owned(),
        settings,
        runs: values.count,
        figures: vec![Some(values.into())],
        ..Arm::default()
    }
}

/// Returns a comparison of the build times in the case `slice-vs-cache`.
pub(crate) fn lists() -> Comparison {
    let (first, second) = (figures(6, 61.97), figures(6, 60.404));
    Comparison {
        arms: vec![
            list("A", "stock.txt", None, first),
            list("B", "patched.csv", Some("time"), second),
        ],
        metrics: vec![Metric::new("mean", Unit::None, Better::Unknown)],
        effects: vec![ArmEffect {
            blocks: None,
            noise: None,
            detectable: None,
            chance: Some(2.0 / 924.0),
            checks: vec![Check::Sorted {
                first: true,
                second: true,
                chance: 1.93e-6,
            }],
            ..effect(0, (61.970, 60.404), Verdict::Differs)
        }],
        ..Comparison::new("0.1.0", Experiment::Numbers { difference: 0.05 })
    }
}

/// Renders the first screen of a document and checks that it fits.
fn first(document: &impl Paged) -> String {
    let page = document.page(&TextStyle::default());
    assert!(page.lines().count() <= 23, "{page}");
    assert!(
        page.lines().all(|line| line.chars().count() <= 80),
        "{page}"
    );
    page.into()
}

#[test]
fn page_of_a_trial() {
    insta::assert_snapshot!(first(&two_arms()));
}

#[test]
fn page_of_a_trial_with_every_kind_of_check() {
    insta::assert_snapshot!(first(&in_trouble()));
}

#[test]
fn full_page_of_a_trial() {
    let statement = two_arms();
    let full = TextStyle {
        view: View::Full,
        ..TextStyle::default()
    };
    insta::assert_snapshot!(statement.page(&full));
}

/// Returns a trial of two programs, in which one of three resources differs.
fn two_programs() -> Comparison {
    let mut trial = two_arms();
    for (arm, command) in trial.arms.iter_mut().zip(["./old --fast", "./new --fast"]) {
        arm.settings = vec![Setting::new(Setting::COMMAND, command)];
    }
    let Experiment::Trial(record) = &mut trial.experiment else {
        panic!("{trial:?}");
    };
    let resources = [
        ("faults", Unit::Count, 1_270.0, 5_271.0),
        ("system", Unit::Ns, 4.5e6, 34.5e6),
        ("disk-time", Unit::Ns, 1.2e6, 1.3e6),
    ];
    let reason = |(id, unit, first, value): (&str, Unit, f64, f64)| ResourceEffect {
        arm: 1,
        resource: Metric::new(id, unit, Better::Lower),
        values: [Some(first), Some(value)],
        scale: Scale::Relative,
        contrast: Contrast {
            effect: Some(Effect::within(value / first - 1.0, 0.1)),
            chance: Some(0.017_6),
            verdict: match id {
                "disk-time" => Verdict::CannotTell { more_blocks: None },
                _ => Verdict::Worse,
            },
        },
    };
    record.subject = "2 commands".to_owned();
    record.reasons = resources.map(reason).to_vec();
    trial
}

#[test]
fn page_of_a_trial_of_two_programs() {
    insta::assert_snapshot!(first(&two_programs()));
}

#[test]
fn page_that_compares_two_lists() {
    insta::assert_snapshot!(first(&lists()));
}

#[test]
fn pages_of_inconclusive_comparisons() {
    let mut pages = Vec::new();
    let mut document = lists();
    document.metrics = vec![Metric::new("mean", Unit::S, Better::Lower)];
    document.arms[0].failed = 2;
    let long = "sleep 0.1 && a command that is longer than any line";
    document.arms[1].settings[1].value = long.to_owned();
    let mut page_with = |values: [ArmFigures; 2], effect: ArmEffect| {
        for (arm, values) in document.arms.iter_mut().zip(values) {
            arm.figures = vec![Some(Figure::from(values))];
        }
        document.effects = vec![ArmEffect {
            arm: 1,
            blocks: None,
            ..effect
        }];
        pages.push(first(&document));
    };
    let open = |more_blocks| Verdict::CannotTell { more_blocks };
    page_with(
        [figures(3, 0.25), figures(3, 0.253)],
        ArmEffect {
            chance: Some(0.4),
            checks: vec![Check::TooFew { have: 3, need: 4 }],
            ..effect(0, (0.25, 0.253), open(Some(1_200)))
        },
    );
    page_with(
        [figures(20, 0.25); 2],
        ArmEffect {
            contrast: Contrast {
                effect: Some(Effect::within(0.0, 0.034)),
                chance: Some(1.0),
                verdict: Verdict::NoDifferenceBeyond { bound: 0.034 },
            },
            chance: Some(1.0),
            checks: vec![Check::Identical],
            ..ArmEffect::default()
        },
    );
    let constant = ArmFigures {
        median: 0.25,
        deviation: 0.0,
        min: 0.25,
        max: 0.25,
        ..figures(20, 0.25)
    };
    page_with(
        [constant; 2],
        ArmEffect {
            checks: vec![Check::Constant { value: 0.25 }],
            ..ArmEffect::default()
        },
    );
    insta::assert_snapshot!(pages.join("\n"));
}

#[test]
fn pages_fit_their_width_and_legends_can_be_shown_alone() {
    let legend = View::Only(Sections::from_iter([Section::Legend]));
    for width in [40, 60, 80, 120, 200] {
        for view in [View::First, View::Full, legend] {
            for explain in [false, true] {
                let style = TextStyle {
                    width,
                    view,
                    explain,
                    ..TextStyle::default()
                };
                for page in [
                    two_arms().page(&style),
                    in_trouble().page(&style),
                    lists().page(&style),
                ] {
                    let widest = page.lines().map(|line| line.chars().count()).max();
                    assert!(widest.unwrap_or(0) <= width, "{width} {view:?}: {page}");
                    assert_eq!(
                        view == legend,
                        !page.contains("audio-7") && !page.contains("stock"),
                        "{page}"
                    );
                }
            }
        }
    }
}
