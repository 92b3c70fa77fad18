//! Tests for the flight recorder on this machine, with rare stalls of known length.

mod faults;
mod frames;
mod kinds;
mod recorder;

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sys::signal::Signal;
use serde_json::Value;
use ticktax_inject::{Disturbance, Plan, Schedule};
use ticktax_model::Nanos;
use ticktax_model::incident::TriggerKind;

use super::checks::incidents::is_stall;
use super::fixture::{RecordingDir, check, injector, ticktax};
use recorder::{Recorder, Victim, incidents, triggers_of};

pub(crate) use faults::{
    a_folder_that_becomes_read_only_is_reported_and_the_recorder_continues,
    a_full_disk_is_reported_and_counted, a_killed_recorder_leaves_a_usable_folder,
    an_extended_recording_does_not_delay_its_lines, excess_triggers_are_counted,
};
pub(crate) use frames::{
    a_lost_frame_is_caught_with_its_culprit, a_program_that_ends_loses_no_more_frames,
    frames_caught_under_load_were_lost,
};
pub(crate) use kinds::{
    a_block_is_caught_with_its_waker, a_gap_is_caught_with_its_cause,
    a_long_softirq_is_caught_with_the_interrupted_thread, a_quota_that_is_used_up_is_caught,
};

const STALL: Nanos = Nanos::from_millis(20);

pub(crate) fn a_stall_is_caught_with_its_culprit() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let folder = dir.file("incidents");
    let cpu = ticktax_inject::default_cpu()?;
    let _victim = Victim::start(cpu)?;
    let recorder = Recorder::start(&folder, "wait:comm=ttx-victim>14ms")?;
    // The stalls are so far apart that each is a separate incident.
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(Schedule::every(Nanos::from_millis(4_500), STALL))
        .duration(Nanos::from_secs(10));
    let (command, _) = injector(&plan, &dir)?;
    let [program, arguments @ ..] = &*command else {
        return Err("no injector".into());
    };
    let mut culprit = Command::new(program).args(arguments).spawn()?;
    let pid = culprit.id();
    check(culprit.wait()?.success(), || {
        "the injector failed".to_owned()
    })?;
    recorder.mark("after the stalls")?;
    recorder.signal(Signal::SIGUSR1)?;
    // Wait until the windows of both requests have been saved. Each window ends 2 s after its
    // request.
    for _ in 0..300 {
        if requested_kinds(&folder)?.len() == 2 {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    let messages = recorder.end()?;
    check(messages.contains(Victim::NAME), || messages.clone())?;
    let found = incidents(&folder)?;
    let is_wanted = |line: &&Value| is_stall(&line["incident"], Victim::NAME, pid, STALL);
    let stall = found.iter().find(is_wanted);
    let stall = stall.ok_or_else(|| format!("no stall of {pid} among {found:#?}"))?;
    // The recording of the incident must be an ordinary recording that names its trigger.
    let triggers = triggers_of(&folder, stall)?;
    check(
        triggers
            .iter()
            .any(|trigger| trigger.kind == TriggerKind::Wait && trigger.comm == Victim::NAME),
        || format!("{triggers:?}"),
    )?;
    let name = stall["recording"].as_str().ok_or("it was not kept")?;
    let report = ticktax(&["report"]).arg(folder.join(name)).output()?;
    check(report.status.success(), || {
        let (page, complaint) = (report.stdout.as_slice(), report.stderr.as_slice());
        let printed = [page, complaint].map(String::from_utf8_lossy).concat();
        format!("{}: {printed}", report.status)
    })?;
    let kinds = requested_kinds(&folder)?;
    check(kinds == [TriggerKind::Signal, TriggerKind::Mark], || {
        format!("{kinds:?}")
    })
}

/// Returns the kinds of requested triggers in any recording in a directory.
fn requested_kinds(folder: &Path) -> Result<Vec<TriggerKind>, Failed> {
    let mut kinds = Vec::new();
    let mut seen = HashSet::new();
    for line in incidents(folder)? {
        // If one request follows soon after another, both share a recording. The recording is
        // written shortly after the lines in the index.
        let name = line["recording"].as_str().unwrap_or_default().to_owned();
        if !folder.join(&name).is_file() || !seen.insert(name) {
            continue;
        }
        let triggers = triggers_of(folder, &line)?.into_iter();
        kinds.extend(
            triggers
                .map(|trigger| trigger.kind)
                .filter(|kind| !kind.is_measured()),
        );
    }
    kinds.sort_unstable();
    Ok(kinds)
}
