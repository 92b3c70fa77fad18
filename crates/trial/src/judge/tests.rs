//! Tests the verdicts on trials whose true effect is known.

use ticktax_fixture::{Draws, RunLaw, noise_runs, timed_trial};
use ticktax_model::comparison::{
    ArmEffect, Better, Check, Comparison, Experiment, FailIf, FailIfResult, Metric, Outcome, Scale,
    Trial, Unit, Verdict,
};

use ticktax_experiment::plan;

/// Returns a trial with run times that follow `law`. The second arm's run times are longer by the
/// fraction `effect`.
fn trial(law: RunLaw, arms: usize, blocks: u64, effect: f64, seed: u64) -> Trial {
    let mut draws = Draws::new(seed);
    let slots = plan(arms, blocks, seed ^ 0xabba);
    let slots: Vec<(u64, u64, usize)> = slots
        .iter()
        .map(|slot| (slot.block, slot.position, slot.arm))
        .collect();
    let noise = law.times(&mut draws, 12);
    let times = law.times(&mut draws, slots.len());
    let mut trial = timed_trial(&slots, &times, effect);
    trial.record.design.noise_runs = 12;
    trial.record.runs.splice(0..0, noise_runs(&noise));
    trial
}

fn judge(trial: Trial, fail_if: &[FailIf]) -> Comparison {
    super::judge(trial, fail_if, "0")
}

fn only(trial: &Comparison) -> &ArmEffect {
    let [only] = &*trial.effects else {
        panic!("{:?}", trial.effects);
    };
    only
}

fn fail_ifs(trial: &Comparison) -> &[FailIfResult] {
    let Experiment::Trial(record) = &trial.experiment else {
        panic!("{:?}", trial.experiment);
    };
    &record.fail_if
}

#[test]
fn an_effect_is_reported_with_its_size_and_direction() {
    let statement = judge(trial(RunLaw::Normal, 2, 10, 0.1, 1), &[]);
    let comparison = only(&statement);
    let effect = comparison.contrast.effect.unwrap();
    assert_eq!(
        (comparison.contrast.verdict, comparison.scale),
        (Verdict::Worse, Scale::Relative)
    );
    assert!(effect.low < 0.1 && 0.1 < effect.high, "{effect:?}");
    assert!(effect.bound() < 0.13, "{effect:?}");
    assert!((comparison.chance.unwrap() - 2.0 / 1024.0).abs() < 1e-12);
    assert_eq!(comparison.chance, comparison.contrast.chance);
    assert_eq!((comparison.blocks, statement.arms[0].runs), (Some(10), 20));
    // Each arm runs twice per block, so a block's difference between the arms has as much noise as
    // a single run.
    let noise = comparison.noise.unwrap();
    assert!((0.01..0.04).contains(&noise), "{noise}");
    let detectable = comparison.detectable.unwrap();
    assert!((0.8..1.3).contains(&(detectable / noise)), "{detectable}");
    let shorter = judge(trial(RunLaw::Normal, 2, 10, -0.1, 1), &[]);
    assert_eq!(only(&shorter).contrast.verdict, Verdict::Better);
}

#[test]
fn no_effect_is_bounded_or_left_open() {
    let quiet = judge(trial(RunLaw::Normal, 2, 20, 0.0, 2), &[]);
    let Verdict::NoDifferenceBeyond { bound } = only(&quiet).contrast.verdict else {
        panic!("{:?}", only(&quiet));
    };
    assert!(bound < 0.02, "{bound}");
    let noisy = judge(trial(RunLaw::LogNormal, 2, 10, 0.0, 3), &[]);
    let Verdict::CannotTell {
        more_blocks: Some(more),
    } = only(&noisy).contrast.verdict
    else {
        panic!("{:?}", only(&noisy));
    };
    assert!(more > 5, "{more}");
    let few = judge(trial(RunLaw::Normal, 2, 4, 0.2, 4), &[]);
    assert!(!only(&few).contrast.verdict.differs(), "4 blocks: 2 in 16");
    assert!(
        only(&few)
            .checks
            .contains(&Check::TooFew { have: 4, need: 6 })
    );
    assert_eq!(only(&few).detectable, None);
}

#[test]
fn p_values_are_corrected_for_all_arms_and_metrics() {
    let mut trial = trial(RunLaw::Normal, 3, 12, 0.1, 5);
    trial.metrics.push(Metric {
        id: "cpu".to_owned(),
        ..trial.metrics[0].clone()
    });
    for run in &mut trial.record.runs {
        let half = run.values[0].map(|value| value / 2.0);
        run.values.push(half);
    }
    let statement = judge(trial, &[]);
    let compared = statement.effects.iter();
    let compared: Vec<_> = compared.map(|effect| (effect.metric, effect.arm)).collect();
    assert_eq!(compared, [(0, 1), (1, 1), (0, 2), (1, 2)]);
    for comparison in &statement.effects {
        assert_eq!(comparison.contrast.verdict, Verdict::Worse);
        let (alone, together) = (
            comparison.chance.unwrap(),
            comparison.contrast.chance.unwrap(),
        );
        assert!((together - 4.0 * alone).abs() < 1e-9, "{alone} {together}");
    }
}

#[test]
fn fail_if_conditions_are_evaluated() {
    use Outcome::{CannotTell, DoesNotHold, Holds};
    let conditions = ["time > +2%", "time > +50%", "time < -2%", "time > +10%"];
    let conditions: Vec<FailIf> = conditions
        .iter()
        .map(|condition| condition.parse().unwrap())
        .collect();
    let statement = judge(trial(RunLaw::Normal, 2, 10, 0.1, 6), &conditions);
    let outcomes = fail_ifs(&statement).iter();
    let outcomes: Vec<Outcome> = outcomes.map(|result| result.outcome).collect();
    assert_eq!(outcomes, [Holds, DoesNotHold, DoesNotHold, CannotTell]);
}

#[test]
fn failed_and_unmeasured_runs_are_excluded_and_reported() {
    let mut trial = trial(RunLaw::Normal, 2, 12, 0.0, 7);
    let mut failed = 0;
    for run in &mut trial.record.runs {
        if run.arm == 1 && run.block < 6 {
            run.succeeded = false;
            run.values[0] = Some(0.001);
            failed += 1;
        }
        if run.arm == 0 && run.block == 7 && run.position > 1 {
            run.values[0] = None;
        }
    }
    let statement = judge(trial, &[]);
    let comparison = only(&statement);
    assert_eq!((comparison.blocks, failed), (Some(6), 12));
    assert!(
        statement.arms[1].figure(0).unwrap().statistics.unwrap().min > 80.0,
        "a failed run was compared"
    );
    let failed = |arm: usize| (statement.arms[arm].failed, statement.arms[arm].runs);
    assert_eq!((failed(0), failed(1)), ((0, 24), (12, 24)));
    let has = |what: fn(&Check) -> bool| comparison.checks.iter().any(what);
    assert!(has(
        |check| matches!(check, Check::Failures { second_share, chance, .. } if *second_share > 0.49 && *chance < 0.001)
    ));
    assert!(has(
        |check| matches!(check, Check::Missing { runs } if *runs > 0)
    ));
}

#[test]
fn constant_and_missing_values_have_no_verdict() {
    let mut constant = trial(RunLaw::Normal, 2, 8, 0.0, 8);
    let mut absent = constant.clone();
    for run in &mut constant.record.runs {
        run.values[0] = Some(0.0);
    }
    let statement = judge(constant, &[]);
    assert_eq!(
        only(&statement).contrast.verdict,
        Verdict::CannotTell { more_blocks: None }
    );
    assert_eq!(only(&statement).checks, [Check::Constant { value: 0.0 }]);
    for run in &mut absent.record.runs {
        run.values.clear();
    }
    let statement = judge(absent.clone(), &["time > +1%".parse().unwrap()]);
    let (comparison, answers) = (only(&statement), fail_ifs(&statement));
    assert_eq!(statement.arms[0].figure(0), None);
    assert_eq!(
        (comparison.contrast.effect, comparison.chance),
        (None, None)
    );
    assert_eq!(
        comparison.contrast.verdict,
        Verdict::CannotTell { more_blocks: None }
    );
    assert_eq!(answers[0].outcome, Outcome::CannotTell);
    absent.record.runs.clear();
    absent.arms.truncate(1);
    assert!(judge(absent, &[]).effects.is_empty());
}

#[test]
fn a_change_from_zero_is_an_absolute_difference() {
    let mut trial = trial(RunLaw::Normal, 2, 10, 0.0, 9);
    trial.metrics[0].unit = Unit::Share;
    for run in &mut trial.record.runs {
        let noise = run.values[0].map_or(0.0, |value| (value - 100.0).abs() / 1e3);
        run.values[0] = Some(if run.arm == 0 { 0.0 } else { 0.3 + noise });
    }
    let statement = judge(
        trial,
        &[
            "time > +20pp".parse().unwrap(),
            "time > +20%".parse().unwrap(),
        ],
    );
    let comparison = only(&statement);
    assert_eq!(
        (comparison.scale, comparison.contrast.verdict),
        (Scale::Absolute, Verdict::Worse)
    );
    assert!((comparison.contrast.effect.unwrap().value - 0.3).abs() < 0.01);
    // A condition in percent is undefined if the first arm's value is zero.
    let outcomes = fail_ifs(&statement).iter();
    let outcomes: Vec<Outcome> = outcomes.map(|result| result.outcome).collect();
    assert_eq!(outcomes, [Outcome::Holds, Outcome::CannotTell]);
}

/// Returns an upper limit for a count whose expected fraction is `share`: the expected count plus
/// three standard deviations.
fn at_most(share: f64, trials: u32) -> f64 {
    let trials = f64::from(trials);
    trials * share + 3.0 * (trials * share * (1.0 - share)).sqrt()
}

/// A smaller version of the benchmark `trial_benchmark`.
#[test]
fn equal_arms_rarely_differ_and_the_interval_holds_the_truth() {
    const TRIALS: u32 = 400;
    for law in RunLaw::ALL {
        for blocks in [6, 12] {
            let (mut differ, mut missed) = (0, 0);
            for seed in 0..TRIALS {
                let seed = u64::from(seed) * 1_000 + blocks;
                let statement = judge(trial(law, 2, blocks, 0.0, seed), &[]);
                let comparison = only(&statement);
                differ += u32::from(comparison.contrast.verdict.differs());
                missed += u32::from(!comparison.contrast.effect.unwrap().may_be_none());
            }
            let name = law.name();
            assert!(
                f64::from(differ) <= at_most(0.05, TRIALS),
                "{name}, {blocks}: {differ}"
            );
            assert!(
                f64::from(missed) <= at_most(0.07, TRIALS),
                "{name}, {blocks}: {missed}"
            );
        }
    }
}

/// An effect of the detectable size must be found in four of five trials.
#[test]
fn detectable_effects_are_detected() {
    const TRIALS: u32 = 400;
    for blocks in [10, 20] {
        let mut found = 0;
        for seed in 0..u64::from(TRIALS) {
            // With two runs per arm in a block, the difference between the arms has the same
            // standard deviation as a single run: 2 %.
            let statement = judge(trial(RunLaw::Normal, 2, blocks, 0.0, seed), &[]);
            let at = only(&statement).detectable.unwrap() * 0.02 / only(&statement).noise.unwrap();
            let statement = judge(trial(RunLaw::Normal, 2, blocks, at, seed + 77_777), &[]);
            found += u32::from(only(&statement).contrast.verdict.differs());
        }
        let share = f64::from(found) / f64::from(TRIALS);
        assert!((0.73..0.88).contains(&share), "{blocks}: {share}");
    }
}

/// The use of resources must not change the verdict on the run time, or its probability.
#[test]
fn used_resources_explain_the_verdict_without_changing_it() {
    let plain = judge(trial(RunLaw::Normal, 2, 10, 0.1, 1), &[]);
    let mut explained = trial(RunLaw::Normal, 2, 10, 0.1, 1);
    let resource = |id| Metric::new(id, Unit::Count, Better::Lower);
    explained.record.resources = vec![resource("faults"), resource("sleeps"), resource("disk")];
    for (at, run) in explained.record.runs.iter_mut().enumerate() {
        let faults = 1_000.0 + at as f64 + 500.0 * run.arm as f64;
        run.resources = vec![Some(faults), Some(7.0), None];
    }
    let explained = judge(explained, &[]);
    assert_eq!(only(&explained), only(&plain));
    let Experiment::Trial(record) = &explained.experiment else {
        panic!("{:?}", explained.experiment);
    };
    let [faults, sleeps, disk] = &*record.reasons else {
        panic!("{:?}", record.reasons);
    };
    assert_eq!((faults.arm, &*faults.resource.id), (1, "faults"));
    assert_eq!(faults.contrast.verdict, Verdict::Worse);
    let [first, value] = faults.values.map(Option::unwrap);
    let difference = value - first;
    assert!((499.0..501.0).contains(&difference), "{difference}");
    assert_eq!(sleeps.values, [Some(7.0); 2]);
    for open in [sleeps, disk] {
        let verdict = open.contrast.verdict;
        assert!(matches!(verdict, Verdict::CannotTell { .. }), "{verdict:?}");
    }
}

/// With five looks, each look has a fifth of the probability of a false verdict: a p-value counts
/// five times, and the interval is wider.
#[test]
fn every_look_spends_an_equal_part_of_the_false_verdicts() {
    let with_looks = |looks: u64| {
        let mut trial = trial(RunLaw::Normal, 2, 10, 0.1, 1);
        trial.record.design.looks = looks;
        only(&judge(trial, &[])).clone()
    };
    let (one, five) = (with_looks(1), with_looks(5));
    assert_eq!(one.chance, five.chance);
    let corrected = |effect: &ArmEffect| effect.contrast.chance.unwrap();
    assert!((corrected(&five) - 5.0 * corrected(&one)).abs() < 1e-12);
    let width = |effect: &ArmEffect| {
        effect
            .contrast
            .effect
            .map(|effect| effect.high - effect.low)
    };
    assert!(width(&five) > width(&one), "{five:?}");
    assert_eq!(five.contrast.verdict, Verdict::Worse);
}

/// A trial without an effect that looks five times must not end with a false verdict more often
/// than one that looks once. A trial that judged each look on its own would.
#[test]
fn a_trial_that_stops_when_certain_is_rarely_wrong() {
    const TRIALS: u64 = 200;
    let (mut wrong, mut naive) = (0, 0);
    for seed in 0..TRIALS {
        let full = trial(RunLaw::LogNormal, 2, 50, 0.0, seed);
        let mut looks = (10..=50).step_by(10).map(|blocks| {
            let mut look = full.clone();
            (look.record.design.blocks, look.record.design.looks) = (50, 5);
            assert!(look.record.design.is_look(blocks));
            look.record.runs.retain(|run| run.block < blocks);
            only(&judge(look, &[])).clone()
        });
        let looks: [ArmEffect; 5] = std::array::from_fn(|_| looks.next().unwrap());
        naive += u64::from(looks.iter().any(|look| look.chance <= Some(0.05)));
        let mut verdicts = looks.iter().map(|look| look.contrast.verdict);
        let end = verdicts.find(|verdict| !matches!(verdict, Verdict::CannotTell { .. }));
        wrong += u64::from(matches!(end, Some(Verdict::Better | Verdict::Worse)));
    }
    assert!(wrong * 20 <= TRIALS, "{wrong} false verdicts");
    assert!(naive * 20 > 2 * TRIALS, "{naive} without a correction");
}

/// A large effect is certain at the first look.
#[test]
fn a_large_effect_ends_the_trial_at_the_first_look() {
    let mut first = trial(RunLaw::Normal, 2, 10, 0.1, 1);
    (first.record.design.blocks, first.record.design.looks) = (50, 5);
    assert!(first.record.design.is_look(10));
    let verdict = only(&judge(first, &[])).contrast.verdict;
    assert_eq!(verdict, Verdict::Worse);
}
