//! Tests each kind of trigger with a disturbance of known length.

use std::fs;
use std::process::Command;

use libtest_mimic::Failed;
use serde_json::Value;
use ticktax_inject::{Disturbance, Plan, Schedule};
use ticktax_model::Nanos;
use ticktax_model::incident::{Trigger, TriggerKind};

use super::recorder::Recorder;
use crate::checks::incidents::{self as checks, Caught};
use crate::fixture::{RecordingDir, check, injector};

/// Runs the disturbance in `plan` while a recorder watches for `trigger`. Returns what the recorder
/// caught.
fn caught(plan: &Plan, trigger: &str) -> Result<Caught, Failed> {
    let dir = RecordingDir::new();
    let folder = dir.file("incidents");
    let recorder = Recorder::start(&folder, trigger)?;
    let (command, truth) = injector(plan, &dir)?;
    let [program, arguments @ ..] = &*command else {
        return Err("no injector".into());
    };
    let status = Command::new(program).args(arguments).status()?;
    check(status.success(), || format!("the injector: {status}"))?;
    recorder.end()?;
    Caught::read(serde_json::from_slice(&fs::read(truth)?)?, &folder)
}

pub(crate) fn a_block_is_caught_with_its_waker() -> Result<(), Failed> {
    const LENGTH: Nanos = Nanos::from_millis(200);
    let plan = Plan::new(Disturbance::Block, ticktax_inject::default_cpu()?)
        .schedule(Schedule::every(Nanos::from_millis(600), LENGTH))
        .duration(Nanos::from_secs(3));
    let name = plan.disturbance.comm();
    checks::blocks_name_the_waker(&caught(&plan, &format!("blocked:comm={name}>60ms"))?)
}

pub(crate) fn a_quota_that_is_used_up_is_caught() -> Result<(), Failed> {
    const QUOTA: Nanos = Nanos::from_millis(10);
    let period = Nanos::from_millis(100);
    let plan = Plan::new(
        Disturbance::Throttle { quota: QUOTA },
        ticktax_inject::default_cpu()?,
    )
    .schedule(Schedule::every(period, QUOTA))
    .duration(Nanos::from_secs(2));
    checks::quotas_name_the_throttled_program(&caught(&plan, "throttled:comm=ttx-inj-hog>50ms")?)
}

pub(crate) fn a_long_softirq_is_caught_with_the_interrupted_thread() -> Result<(), Failed> {
    // Longer than any kernel thread runs without a break on a busy machine (kdamond was seen to run
    // for 31 ms). The disturbance must be that long because an incident is about the longest
    // trigger in its recording.
    const LENGTH: Nanos = Nanos::from_millis(60);
    // The events are so far apart that each is a separate incident. If an incident is about a
    // trigger longer than its event, the other events remain.
    let plan = Plan::new(Disturbance::Filter, ticktax_inject::default_cpu()?)
        .schedule(Schedule::every(Nanos::from_millis(4_500), LENGTH))
        .duration(Nanos::from_secs(10));
    checks::softirqs_name_the_interrupted_thread(&caught(&plan, "stretch>4ms")?, LENGTH)
}

pub(crate) fn a_gap_is_caught_with_its_cause() -> Result<(), Failed> {
    const STALL: Nanos = Nanos::from_millis(20);
    let cpu = ticktax_inject::default_cpu()?;
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(Schedule::every(Nanos::from_millis(4_500), STALL))
        .duration(Nanos::from_secs(6));
    let caught = caught(&plan, &format!("gap:cpu={cpu}>14ms"))?;
    // The probe is due once per millisecond, so its gap does not start exactly with the event. It
    // is enough if the gap and the event overlap.
    let during = |trigger: &Trigger| {
        let mut log = caught.truth.log.iter();
        log.any(|event| trigger.begin() < event.start + event.length && trigger.at > event.start)
    };
    let is_reported = |(incident, triggers): &(Value, Vec<Trigger>)| {
        let has_gap = triggers.iter().any(|trigger| {
            trigger.kind == TriggerKind::Gap
                && trigger.cpu == Some(cpu)
                && trigger.tid == 0
                && during(trigger)
        });
        let first = &incident["ran"][0];
        let time = first["time_ns"].as_i64().unwrap_or(0);
        has_gap
            && incident["kind"] == "gap"
            && incident["thread"].is_null()
            && first["pids"][0] == caught.truth.pid
            && time >= STALL.0 * 7 / 10
    };
    if !caught.incidents.iter().any(is_reported) {
        return Err(format!("no gap: {:#?}, {:?}", caught.incidents, caught.truth).into());
    }
    Ok(())
}
