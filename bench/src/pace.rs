//! Compares how late a paced loop starts its frames with how late cyclictest wakes up.
//!
//! The two take turns with the same CPU, interval and priority. The frames do no work, so the loop
//! just sleeps and wakes up, as cyclictest does.

use ticktax_model::Nanos;
use ticktax_model::pace::{Frame, PaceRule, SleepMethod};
use ticktax_probes::SchedulingPolicy;
use ticktax_probes::clock::now;
use ticktax_probes::pace::{PaceProbe, PaceSettings};

use crate::sleep::{CYCLICTEST, PRIORITY, Results, SECONDS, run_cyclictest};
use crate::table::Table;
use crate::tracing::INTERVAL;
use crate::{Bench, Outcome, machine};

/// Interval between frames.
const PERIOD: Nanos = Nanos::from_millis(1);

const METHODS: [SleepMethod; 3] = [
    SleepMethod::ClockNanosleepAbs,
    SleepMethod::Timerfd,
    SleepMethod::Hybrid,
];

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## pace");
    machine::pin(bench.other)?;
    let cyclictest = CYCLICTEST.find();
    for (policy, name) in [
        (SchedulingPolicy::Fifo(PRIORITY), "fifo"),
        (SchedulingPolicy::Other, "other"),
    ] {
        let mut ours = METHODS.map(|_| Results::default());
        let mut theirs = Results::default();
        for _ in 0..bench.choose(7, 2) {
            for (method, results) in METHODS.into_iter().zip(&mut ours) {
                bench.go_on()?;
                pace(bench, policy, method, results)?;
            }
            if let Some(cyclictest) = &cyclictest {
                bench.go_on()?;
                run_cyclictest(bench, cyclictest, name, &mut theirs)?;
            }
        }
        println!(
            "\n{policy}, 1000 frames a second without work, {SECONDS} s a turn; from when a frame was due to its begin, µs, medians over the turns (least to most):"
        );
        let mut table = Table::new(["", "n", "frames a turn", "least", "median", "p99", "most"]);
        for (method, results) in METHODS.into_iter().zip(&ours) {
            results.add_to(&mut table, &format!("ticktax pace, {method}"), 1);
        }
        if cyclictest.is_some() {
            theirs.add_to(&mut table, "cyclictest (in whole µs)", 0);
        }
        table.print();
        if cyclictest.is_some() {
            println!(
                "\nMedian, {} to cyclictest: {:.2}.",
                METHODS[0],
                ours[0].median() / theirs.median()
            );
        }
    }
    Ok(())
}

fn pace(
    bench: &Bench,
    policy: SchedulingPolicy,
    sleep: SleepMethod,
    results: &mut Results,
) -> Outcome {
    let settings = PaceSettings {
        cpu: bench.measured,
        policy,
        period: PERIOD,
        work: Nanos::ZERO,
        sleep,
        rule: PaceRule::Deadline,
        ring_capacity: 1 << 16,
    };
    let mut waits = Vec::new();
    // Also count slots in which no frame started. The wait for such a slot ends when the next frame
    // starts.
    let mut note = |frame: Frame| {
        for slot in 0..=frame.dropped(PERIOD) {
            let due = frame.due + Nanos(slot * PERIOD.0);
            waits.push((frame.began - due).0 as f64 / 1e3);
        }
    };
    let mut probe = PaceProbe::start(&settings)?;
    let end = now() + Nanos::from_secs(SECONDS.into());
    while now() < end {
        std::thread::sleep(INTERVAL);
        probe.drain(&mut note);
    }
    let report = probe.stop(&mut note)?;
    if let Some(refusal) = &report.policy.refusal {
        return Err(format!("{policy}: {refusal}").into());
    }
    results.push(&waits.into_iter().collect());
    Ok(())
}
