//! Tests of individual cases that go beyond comparing their rows.

use crate::judged;

#[test]
fn true_cpu_use_does_not_depend_on_the_tick_rate() {
    let (_, _, judgement) = judged("frame-rate-vs-hz");
    for series in ["cpu, true", "cpu, random phase"] {
        let lines = judgement.lines.iter().filter(|line| line.series == series);
        let shares: Vec<f64> = lines.filter_map(|line| line.modelled).collect();
        assert_eq!(shares.len(), 6, "{series}");
        assert!(
            shares.iter().all(|share| (share - 9.0).abs() < 0.5),
            "{series}: {shares:?}"
        );
    }
}

/// A sampler that is masked in interrupts hides them, but it does not find idle time while a
/// program uses every spare cycle.
#[test]
fn a_masked_sampler_finds_no_idle_time_beside_a_soaker() {
    let (_, _, judgement) = judged("tcp-cpu-cost");
    let idle = |at: &str| judgement.line("idle", at).unwrap().modelled.unwrap();
    assert!(idle("as sampled, masked, with a soaker") < 0.1);
    assert!((idle("as sampled, masked, without a soaker") - 80.0).abs() < 2.0);
    let found = idle("as a soaker finds it");
    assert!((found - idle("really, without a soaker")).abs() < 0.5);
}

/// The patch changes neither how the hogs share the CPU nor how fast the interactive task runs.
#[test]
fn slices_leave_cpu_time_and_latency_as_they_were() {
    let (_, _, judgement) = judged("slice-vs-cache");
    for (series, allowed) in [("hog's share of the CPU", 0.01), ("latency of X", 0.01)] {
        let of = |at: &str| judgement.line(series, at).unwrap().modelled.unwrap();
        let (stock, patched) = (of("stock"), of("patched"));
        assert!(
            (stock / patched - 1.0).abs() < allowed,
            "{series}: {stock} {patched}"
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
