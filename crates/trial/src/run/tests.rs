//! Tests the order of the runs in a trial.

use ticktax_knobs::Consent;
use ticktax_model::comparison::RunPurpose;

use super::{Named, Subject, TrialMetric, TrialPlan, is_last_look, schedule};

fn wanted(warm_ups: u64, noise_runs: u64, blocks: u64) -> TrialPlan {
    TrialPlan {
        assignments: Vec::new(),
        named: Named::default(),
        subject: Subject::Commands(vec![vec!["true".into()]]),
        before: None,
        metrics: vec![TrialMetric::Time],
        resources: Vec::new(),
        blocks,
        looks: 1,
        fail_if: Vec::new(),
        max_time: None,
        warm_ups,
        noise_runs,
        seed: 7,
        settle: None,
        difference: 0.05,
        consent: Consent::Withheld,
        search: None,
    }
}

#[test]
fn warm_ups_come_first_then_noise_runs_then_blocks() {
    let schedule = schedule(&wanted(2, 3, 5), 2);
    let runs = |purpose| -> Vec<(u64, usize)> {
        let runs = schedule.iter().filter(|run| run.purpose == purpose);
        runs.map(|run| (run.position, run.arm)).collect()
    };
    let warm_ups = [(0, 0), (1, 1), (2, 0), (3, 1)];
    assert_eq!(runs(RunPurpose::WarmUp), warm_ups);
    assert_eq!(runs(RunPurpose::Noise), [(0, 0), (1, 0), (2, 0)]);
    let measured = runs(RunPurpose::Measured);
    assert_eq!(measured.len(), 20);
    for block in measured.chunks(4) {
        let arms: Vec<usize> = block.iter().map(|run| run.1).collect();
        assert!(arms == [0, 1, 1, 0] || arms == [1, 0, 0, 1], "{arms:?}");
    }
    let purposes: Vec<RunPurpose> = schedule.iter().map(|run| run.purpose).collect();
    assert!(
        purposes[..4]
            .iter()
            .all(|purpose| *purpose == RunPurpose::WarmUp)
    );
    assert!(
        purposes[7..]
            .iter()
            .all(|purpose| *purpose == RunPurpose::Measured)
    );
}

/// The check that the arms are comparable must take place exactly once, after every arm has run,
/// whether or not there are warm-ups.
#[test]
fn comparability_is_checked_once() {
    for (warm_ups, noise_runs, blocks, expected) in [
        (2, 3, 5, 3),
        (2, 0, 5, 3),
        (0, 3, 5, 6),
        (0, 0, 1, 3),
        (0, 0, 5, 3),
    ] {
        let schedule = schedule(&wanted(warm_ups, noise_runs, blocks), 2);
        let looks = (0..schedule.len())
            .filter(|&at| is_last_look(schedule[at], schedule.get(at + 1), warm_ups));
        let looks: Vec<usize> = looks.collect();
        assert_eq!(looks, [expected], "{warm_ups} {noise_runs} {blocks}");
    }
}

#[test]
fn the_documentation_has_a_row_for_every_metric() {
    let page = include_str!("../../../../docs/reference/try.md");
    for metric in TrialMetric::ALL {
        let row = format!("| `{}` |", metric.name());
        assert!(
            page.contains(&row),
            "docs/reference/try.md has no row that begins {row}"
        );
    }
}

#[test]
fn metric_names_are_unique() {
    let mut names: Vec<&str> = TrialMetric::ALL
        .iter()
        .map(|metric| metric.name())
        .collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), TrialMetric::ALL.len());
}
