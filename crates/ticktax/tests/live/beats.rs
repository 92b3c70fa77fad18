//! Tests with disturbances that have a known period. ticktax must find this period and name its
//! source, and must not report any other period for it.

use libtest_mimic::Failed;
use ticktax_inject::{Disturbance, Plan, Schedule, Truth};
use ticktax_model::Nanos;
use ticktax_model::beats::BeatStatement;

use super::checks::beats as checks;
use super::fixture::{RecordingDir, audit_to, check, ticktax};

const SHORT: Nanos = Nanos::from_secs(5);

/// Records a thread that runs on this schedule. Returns its `Truth` and the output of `ticktax
/// beats`.
fn beats_of(schedule: Schedule, duration: Nanos) -> Result<(Truth, BeatStatement), Failed> {
    let disturbance = Disturbance::Fifo { priority: 50 };
    let plan = Plan::new(disturbance, ticktax_inject::default_cpu()?)
        .schedule(schedule)
        .duration(duration);
    let dir = RecordingDir::new();
    let recording = dir.file("recording.parquet");
    let truth = audit_to(&plan, &dir, &recording)?;
    let output = ticktax(&["beats", "--format", "json"])
        .arg(&recording)
        .output()?;
    Ok((truth, serde_json::from_slice(&output.stdout)?))
}

pub(crate) fn a_thread_has_its_period_its_name_and_its_timer() -> Result<(), Failed> {
    let (period, length) = (Nanos::from_millis(50), Nanos::from_micros(300));
    let (truth, all) = beats_of(Schedule::every(period, length), SHORT)?;
    checks::has_its_period_and_its_timer(&truth, period, &all)
}

/// Checks that a period's cause is the thread's waker. Shortly before a rare real-time thread wakes
/// up, the timer of the real-time budget expires, and the tick balances the load on an idle CPU.
/// Neither of these wakes the thread, so neither may be named. Periodic kernel work must be
/// attributed to the timers that trigger it.
pub(crate) fn a_cause_is_the_waker_and_not_a_neighbour_in_time() -> Result<(), Failed> {
    let (period, length) = (Nanos::from_secs(3), Nanos::from_millis(1));
    // The thread starts once more when the disturbance ends. With this duration, that start comes
    // so soon after the ninth start that the two count as one. If it came a third of a period
    // later, one interval between starts would be irregular, and nine starts are too few to make up
    // for that.
    let duration = Nanos::from_millis(24_500);
    let (truth, all) = beats_of(Schedule::every(period, length), duration)?;
    checks::is_caused_by_its_timer(&truth, &all)?;
    let of_timers = ["kdamond", "vmstat_update", "psi_avgs_work"];
    let beats = all.beats.iter().filter(|line| !line.chain.is_empty());
    for line in beats.filter(|line| of_timers.iter().any(|name| line.name.contains(name))) {
        let before = &line.chain[line.chain.len() - 2];
        let right = before.starts_with("softirq TIMER ") || before.contains("vmstat_shepherd");
        check(right, || format!("{line:#?}"))?;
    }
    Ok(())
}

pub(crate) fn a_thread_at_random_times_has_no_period() -> Result<(), Failed> {
    let schedule = Schedule {
        random: true,
        ..Schedule::every(Nanos::from_millis(20), Nanos::from_micros(300))
    };
    let (truth, all) = beats_of(schedule, SHORT)?;
    checks::has_no_period(&truth, &all)
}
