//! Tests of the flight recorder. The guest caused one stall for each trigger.

use std::fs;

use libtest_mimic::Failed;
use serde_json::Value;
use ticktax_model::incident::TriggerKind;
use ticktax_model::statement::Statement;

use super::plan::{self, FRAME, LONG_SOFTIRQ, STALL};
use super::{Scenario, Test, ticktax_output};
use crate::checks::incidents::{self as checks, Caught};
use crate::checks::{Reading, check, text};

pub(super) const TESTS: &[(&str, Test)] = &[
    ("recorder_catches_each_stall_once", each_once),
    ("recorder_names_the_thread_that_delayed_a_waiter", waits),
    ("recorder_names_the_child_that_ended_a_block", blocks),
    (
        "recorder_names_the_thread_that_a_long_softirq_interrupted",
        softirqs,
    ),
    ("recorder_names_the_throttled_thread", quotas),
    ("recorder_names_the_culprit_of_a_lost_frame", frames),
    ("recorder_keeps_requested_moments", asked),
    ("recordings_of_incidents_balance", balance),
];

fn caught(scenario: &Scenario, name: &str) -> Result<Caught, Failed> {
    Caught::read(scenario.truth(name)?.clone(), &scenario.returned.folder)
}

/// Checks the kinds of all incidents and their order. Each trigger must have fired exactly once.
fn each_once(scenario: &Scenario) -> Result<(), Failed> {
    let lines = checks::incidents(&scenario.returned.folder)?;
    let kinds: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["incident"]["kind"].as_str())
        .collect();
    let wanted = [
        "frame",
        "wait",
        "blocked",
        "stretch",
        "throttled",
        "signal",
        "mark",
    ];
    check(kinds == wanted, || format!("{lines:#?}"))
}

fn waits(scenario: &Scenario) -> Result<(), Failed> {
    let caught = caught(scenario, plan::WAIT_STALL)?;
    let culprit = u32::try_from(caught.truth.pid)?;
    let is_stall =
        |(incident, _): &&(Value, _)| checks::is_stall(incident, plan::HELD_UP, culprit, STALL);
    let found = caught.incidents.iter().find(is_stall);
    let why = || format!("{:#?}", caught.incidents);
    let (incident, triggers) = found.ok_or_else(why)?;
    let is_wait = triggers
        .iter()
        .any(|trigger| trigger.kind == TriggerKind::Wait && trigger.comm == plan::HELD_UP);
    check(is_wait, || format!("{triggers:?}"))?;
    // The victim waited during the stall, and also while the culprit woke up and went to sleep, so
    // allow 1 % more.
    let lasted = incident["lasted_ns"].as_i64().unwrap_or_default();
    check((STALL.0..STALL.0 * 101 / 100).contains(&lasted), why)
}

fn blocks(scenario: &Scenario) -> Result<(), Failed> {
    checks::blocks_name_the_waker(&caught(scenario, "stall-block")?)
}

fn softirqs(scenario: &Scenario) -> Result<(), Failed> {
    let caught = caught(scenario, "stall-softirq")?;
    checks::softirqs_name_the_interrupted_thread(&caught, LONG_SOFTIRQ)
}

fn quotas(scenario: &Scenario) -> Result<(), Failed> {
    checks::quotas_name_the_throttled_program(&caught(scenario, "stall-quota")?)
}

fn frames(scenario: &Scenario) -> Result<(), Failed> {
    let caught = caught(scenario, "stall-frame")?;
    let readings = fs::read(scenario.file(plan::READINGS))?;
    let readings: Vec<Reading> = serde_json::from_slice(&readings)?;
    let triggers = || caught.incidents.iter().flat_map(|(_, triggers)| triggers);
    let frames = triggers().filter(|trigger| trigger.kind == TriggerKind::Frame);
    checks::frames_were_lost(&readings, FRAME, frames)?;
    checks::lost_frames_name_the_culprit(&caught, plan::PACED, STALL)?;
    let output = fs::read_to_string(scenario.file("recorder.json"))?;
    let parts = [
        "a frame of paced (",
        " late on CPU 0: ",
        " ran instead for ",
    ];
    let names_it = |line: &str| parts.iter().all(|part| line.contains(part));
    check(output.lines().any(names_it), || output.clone())
}

fn asked(scenario: &Scenario) -> Result<(), Failed> {
    let lines = checks::incidents(&scenario.returned.folder)?;
    let mut kinds = Vec::new();
    for line in &lines {
        let triggers = checks::triggers_of(&scenario.returned.folder, line)?.into_iter();
        kinds.extend(triggers.filter(|trigger| !trigger.kind.is_measured()));
    }
    let [signal, mark] = &kinds[..] else {
        return Err(format!("{kinds:#?}").into());
    };
    let right = signal.kind == TriggerKind::Signal
        && mark.kind == TriggerKind::Mark
        && mark.comm == plan::MARK;
    check(right, || format!("{kinds:#?}"))
}

/// Checks that the accounts in each incident's recording balance, and that `report` prints
/// something about it.
fn balance(scenario: &Scenario) -> Result<(), Failed> {
    for line in checks::incidents(&scenario.returned.folder)? {
        let name = line["recording"].as_str().ok_or("it was not kept")?;
        let file = scenario.file(name);
        let json = ticktax_output(&["report", "--format", "json"], &file)?;
        let statement: Statement = serde_json::from_slice(&json)?;
        check(statement.balances(), || {
            format!("{name}: {:?}", statement.balance)
        })?;
        let page = text(&ticktax_output(&["report"], &file)?);
        check(!page.is_empty(), || format!("no page of {name}"))?;
    }
    Ok(())
}
