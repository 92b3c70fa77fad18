//! Disturbances of known rhythm: what repeats must be found, and named, and nothing else.

use libtest_mimic::Failed;
use ticktax_inject::{Disturbance, Plan, Schedule};
use ticktax_model::Nanos;
use ticktax_model::beats::{BeatLine, BeatStatement};

use super::fixture::{Place, audit_to, check, ticktax};

/// The beats of the injecting thread, as `ticktax beats` tells them of a saved recording.
fn beats_of(schedule: Schedule) -> Result<(Vec<BeatLine>, BeatStatement), Failed> {
    let disturbance = Disturbance::Fifo { priority: 50 };
    let name = disturbance.comm();
    let plan = Plan::new(disturbance, ticktax_inject::default_cpu()?)
        .schedule(schedule)
        .duration(Nanos::from_secs(5));
    let place = Place::new();
    let recording = place.file("recording.parquet");
    audit_to(&plan, &place, &recording)?;
    let output = ticktax(&["beats", "--format", "json"])
        .arg(&recording)
        .output()?;
    let all: BeatStatement = serde_json::from_slice(&output.stdout)?;
    let lines = all.beats.iter().filter(|line| line.name == name);
    Ok((lines.cloned().collect(), all))
}

pub(crate) fn a_thread_has_its_period_its_name_and_its_timer() -> Result<(), Failed> {
    let (period, length) = (Nanos::from_millis(50), Nanos::from_micros(300));
    let (lines, all) = beats_of(Schedule::every(period, length))?;
    let [line] = &lines[..] else {
        return Err(format!("{} beats of the thread: {all:#?}", lines.len()).into());
    };
    let off = line.period / period.0 as f64 - 1.0;
    check(off.abs() < 1e-3, || format!("off by {off}: {line:#?}"))?;
    check(line.false_alarm < 1e-6, || format!("{line:#?}"))?;
    check(
        line.chain
            .first()
            .is_some_and(|first| first.starts_with("local_timer")),
        || format!("{line:#?}"),
    )
}

pub(crate) fn a_thread_at_random_has_none() -> Result<(), Failed> {
    let schedule = Schedule {
        random: true,
        ..Schedule::every(Nanos::from_millis(20), Nanos::from_micros(300))
    };
    let (lines, _) = beats_of(schedule)?;
    check(lines.is_empty(), || format!("{lines:#?}"))
}
