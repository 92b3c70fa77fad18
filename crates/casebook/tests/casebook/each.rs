//! Tests of individual cases that go beyond comparing their rows.

use crate::judged;

#[test]
fn frames_are_predicted_better_than_by_a_straight_line() {
    let (case, file, _) = judged("frame-rate-vs-hz");
    let remarks = case.hold_out(&file);
    let numbers: Vec<f64> = remarks[0]
        .reason
        .split([' ', ';'])
        .filter_map(|word| word.parse().ok())
        .collect();
    assert!(
        numbers[0] < 0.75 && numbers[0] < 0.6 * numbers[1],
        "{remarks:?}"
    );
}

#[test]
fn true_cpu_use_does_not_depend_on_the_tick_rate() {
    let (_, _, judgement) = judged("frame-rate-vs-hz");
    for remark in &judgement.remarks {
        let shares = remark
            .reason
            .split([' ', ',', ':'])
            .map(|word| word.trim_end_matches('.'));
        let shares = shares.filter(|word| word.contains('.'));
        let shares: Vec<f64> = shares.filter_map(|word| word.parse().ok()).collect();
        assert_eq!(shares.len(), 6, "{remark:?}");
        assert!(
            shares.iter().all(|share| (share - 9.0).abs() < 0.5),
            "{remark:?}"
        );
    }
}

#[test]
fn hogs_switch_at_ticks_or_at_slices() {
    let (_, _, judgement) = judged("slice-vs-cache");
    let pattern = |name: &str| {
        let found = judgement
            .remarks
            .iter()
            .find(|remark| remark.topic.contains(name));
        found.map_or("", |remark| &remark.reason)
    };
    // Once the interactive task has slept long enough for the scheduler to prefer it, the hogs
    // alternate at every tick.
    let stock = pattern("running task at 100 Hz, 2.4 (");
    assert!(
        stock.ends_with("X A X A X A | X B X B X B | X A X A X A"),
        "{stock}"
    );
    let patched = pattern("running task at 100 Hz, 2.4 with");
    assert!(
        patched.ends_with("X B X B X B | X B X B X B | X B X B X B"),
        "{patched}"
    );
    assert!(pattern("strictly ascend").contains("p = 1.9e-6"));
}
