//! Tests for pages about trials and about lists of numbers.

use ticktax_model::Nanos;
use ticktax_model::knob::{UndoOutcome, UndoneSetting};
use ticktax_model::machine::Machine;
use ticktax_model::trial::{
    Arm, ArmFigures, ArmSetting, ArmSuccess, Better, Check, Comparison, Contrast, Design, Effect,
    FailIfResult, Metric, Numbers, NumbersComparison, Origin, Outcome, Predicted, RunPurpose,
    Scale, Trial, TrialRun, TrialStatement, Unit, Verdict,
};

use crate::text::Paged;
use crate::{Section, Sections, TextStyle, View};

/// Returns the figures of a list with this mean. Its smallest value is 2 % below the mean, its
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

fn metric(id: &str, unit: Unit, better: Better) -> Metric {
    Metric {
        id: id.to_owned(),
        unit,
        better,
        origin: Origin::Command,
    }
}

fn arm(label: &str, value: &str) -> Arm {
    Arm {
        label: label.to_owned(),
        settings: vec![ArmSetting {
            knob: "kernel.numa_balancing".to_owned(),
            target: "the machine".to_owned(),
            value: value.to_owned(),
        }],
    }
}

/// Returns a comparison of two means of a metric. The confidence interval of a certain effect
/// extends to about 20 % of the effect on either side. That of an uncertain effect includes 0.
fn comparison(metric: &str, arm: usize, (a, b): (f64, f64), verdict: Verdict) -> Comparison {
    let value = b / a - 1.0;
    let (margin, chance) = match verdict {
        Verdict::CannotTell { .. } => (1.6 * value.abs() + 0.002, 0.19),
        Verdict::NoDifferenceBeyond { .. } => (0.2 * value.abs() + 0.002, 0.81),
        _ => (0.2 * value.abs() + 0.002, 0.005_9),
    };
    Comparison {
        metric: metric.to_owned(),
        arm,
        first: Some(figures(20, a)),
        second: Some(figures(20, b)),
        blocks: Some(10),
        scale: Scale::Relative,
        contrast: Contrast {
            effect: Some(Effect::within(value, margin)),
            chance: Some(chance),
            verdict,
        },
        chance: Some(chance / 3.0),
        // The noise of the ten blocks from which an interval with this margin results, and the
        // effect that they detect with 80 % power.
        noise: Some(1.4 * margin),
        detectable: Some(1.5 * margin),
        predicted: None,
        checks: Vec::new(),
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

/// Means of the metrics of the trial in each of its arms.
const MEANS: [[f64; 4]; 2] = [
    [2.03e9, 310e3, 0.031, 59.94],
    [1.95e9, 420e3, 0.031_02, 59.6],
];

/// Returns the runs of a block, in the order A B B A. The values of the ten blocks average to
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
            }
        }
    })
}

/// Returns a trial with two arms and four metrics. Each metric has a different verdict.
pub(crate) fn two_arms() -> TrialStatement {
    let comparisons = vec![
        comparison("time", 1, (2.03e9, 1.95e9), Verdict::Better),
        comparison("p99", 1, (310e3, 420e3), Verdict::Worse),
        comparison(
            "wait",
            1,
            (0.031, 0.031_02),
            Verdict::NoDifferenceBeyond { bound: 0.003 },
        ),
        comparison(
            "fps",
            1,
            (59.94, 59.6),
            Verdict::CannotTell {
                more_blocks: Some(34),
            },
        ),
    ];
    let condition = "p99 > +2%".parse().unwrap();
    TrialStatement {
        trial: Trial {
            tool_version: "0.1.0".to_owned(),
            machine: Machine {
                host: "audio-7".to_owned(),
                kernel: "6.12.9-generic".to_owned(),
                ..Machine::default()
            },
            began_unix: 1_700_000_000,
            subject: "./render --frames 300".to_owned(),
            arms: vec![arm("A", "1"), arm("B", "0")],
            metrics: vec![
                metric("time", Unit::Ns, Better::Lower),
                metric("p99", Unit::Ns, Better::Lower),
                metric("wait", Unit::Share, Better::Lower),
                metric("fps", Unit::Hz, Better::Higher),
            ],
            design: Design {
                blocks: 10,
                seed: 7,
                warm_ups: 1,
                noise_runs: 12,
                settle: Nanos::from_millis(200),
                difference: 0.05,
            },
            runs: (0..10).flat_map(runs).collect(),
            interrupted: false,
        },
        successes: vec![succeeded(0, 20), succeeded(1, 20)],
        comparisons,
        fail_if: vec![FailIfResult {
            condition,
            arm: 1,
            outcome: Outcome::Holds,
        }],
        restored: vec![undone("kernel.numa_balancing", UndoOutcome::Restored)],
    }
}

fn succeeded(arm: usize, succeeded: u64) -> ArmSuccess {
    ArmSuccess {
        arm,
        runs: 20,
        succeeded,
        chance: (arm > 0 && succeeded < 20).then_some(0.02),
    }
}

/// Returns a trial with three arms and every problem that a trial can have.
fn in_trouble() -> TrialStatement {
    let mut statement = two_arms();
    statement.trial.arms.push(arm("C", "2"));
    statement.trial.interrupted = true;
    for run in 0..20 {
        let mut third = statement.trial.runs[2 * run].clone();
        (third.arm, third.position) = (2, 4 + run as u64 % 2);
        statement.trial.runs.push(third);
    }
    let mut second = statement.trial.runs.iter_mut().filter(|run| run.arm == 1);
    second
        .by_ref()
        .take(6)
        .for_each(|run| run.succeeded = false);
    statement.successes = vec![succeeded(0, 20), succeeded(1, 14), succeeded(2, 20)];
    statement.comparisons[0].blocks = Some(4);
    statement.comparisons[0].contrast = Contrast {
        effect: Some(Effect::within(-0.039, 0.052)),
        chance: Some(0.37),
        verdict: Verdict::CannotTell { more_blocks: None },
    };
    statement.comparisons[0].checks = vec![
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
    ];
    statement.comparisons[1].checks = vec![
        Check::Sorted {
            first: false,
            second: true,
            chance: 0.001,
        },
        Check::Missing { runs: 3 },
    ];
    let mut third_arm = statement.comparisons.clone();
    for comparison in &mut third_arm {
        comparison.arm = 2;
        comparison.checks.clear();
    }
    third_arm[2].scale = Scale::Absolute;
    third_arm[2].contrast.verdict = Verdict::Differs;
    third_arm[3] = Comparison {
        first: Some(figures(20, 0.0)),
        second: Some(figures(20, 0.0)),
        contrast: Contrast::default(),
        chance: None,
        checks: vec![Check::Constant { value: 0.0 }],
        ..third_arm[3].clone()
    };
    statement.comparisons[0].predicted = Some(Predicted {
        load: "build.parquet".to_owned(),
        settings: vec!["slice=3ms".to_owned()],
        effect: Effect {
            value: -0.031,
            low: -0.034,
            high: -0.029,
        },
        error: statement.comparisons[0]
            .contrast
            .effect
            .map(|effect| -0.031 - effect.value),
    });
    statement.comparisons.extend(third_arm);
    statement.fail_if[0].condition = "fps < -1%".parse().unwrap();
    statement.fail_if[0].outcome = Outcome::CannotTell;
    let changed = undone("kernel.numa_balancing", UndoOutcome::ChangedByOther);
    statement.restored = vec![changed];
    statement
}

fn list(file: &str, name: Option<&str>, count: u64) -> Numbers {
    Numbers {
        file: file.to_owned(),
        name: name.map(str::to_owned),
        count,
        failed: 0,
    }
}

/// Returns a comparison of the build times from the case `slice-vs-cache`.
pub(crate) fn lists() -> NumbersComparison {
    NumbersComparison {
        tool_version: "0.1.0".to_owned(),
        first: list("stock.txt", None, 6),
        second: list("patched.csv", Some("time"), 6),
        unit: Unit::None,
        better: Better::Unknown,
        difference: 0.05,
        comparison: Comparison {
            blocks: None,
            noise: None,
            detectable: None,
            first: Some(figures(6, 61.97)),
            second: Some(figures(6, 60.404)),
            chance: Some(2.0 / 924.0),
            checks: vec![Check::Sorted {
                first: true,
                second: true,
                chance: 1.93e-6,
            }],
            ..comparison("value", 1, (61.970, 60.404), Verdict::Differs)
        },
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

#[test]
fn page_that_compares_two_lists() {
    insta::assert_snapshot!(first(&lists()));
}

#[test]
fn pages_of_inconclusive_comparisons() {
    let mut pages = Vec::new();
    let mut document = lists();
    document.unit = Unit::S;
    document.better = Better::Lower;
    document.first.failed = 2;
    document.second.name = Some("sleep 0.1 && a command that is longer than any line".to_owned());
    (document.first.count, document.second.count) = (3, 3);
    document.comparison = Comparison {
        blocks: None,
        first: Some(figures(3, 0.25)),
        second: Some(figures(3, 0.253)),
        checks: vec![Check::TooFew { have: 3, need: 4 }],
        ..comparison(
            "value",
            1,
            (0.25, 0.253),
            Verdict::CannotTell {
                more_blocks: Some(1_200),
            },
        )
    };
    document.comparison.chance = Some(0.4);
    pages.push(first(&document));
    (document.first.count, document.second.count) = (20, 20);
    let same = Some(figures(20, 0.25));
    (document.comparison.first, document.comparison.second) = (same, same);
    document.comparison.contrast.effect = Some(Effect::within(0.0, 0.034));
    document.comparison.contrast.verdict = Verdict::NoDifferenceBeyond { bound: 0.034 };
    document.comparison.chance = Some(1.0);
    document.comparison.checks = vec![Check::Identical];
    pages.push(first(&document));
    let constant = Some(ArmFigures {
        median: 0.25,
        deviation: 0.0,
        min: 0.25,
        max: 0.25,
        ..figures(20, 0.25)
    });
    (document.comparison.first, document.comparison.second) = (constant, constant);
    document.comparison.contrast.effect = None;
    document.comparison.chance = None;
    document.comparison.contrast.verdict = Verdict::CannotTell { more_blocks: None };
    document.comparison.checks = vec![Check::Constant { value: 0.25 }];
    pages.push(first(&document));
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
