//! Tests for trials that change settings on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Failed;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{complaint, let_children_hear_ctrl_c, text};
use crate::fixture::{JournalDir, QUIET, QUIET_FILE, Quiet, Running, check, verdict};
use crate::{AS_SLEEPER, AS_WORKER, Test, own};

pub(crate) const ALL: &[(&str, Test)] = &[
    ("a_setting_that_does_nothing", a_setting_that_does_nothing),
    (
        "a_watchdog_restores_a_killed_trial",
        a_watchdog_restores_a_killed_trial,
    ),
    ("ctrl_c_restores_everything", ctrl_c_restores_everything),
    ("a_second_trial_refuses", a_second_trial_refuses),
    (
        "settings_changed_by_other_programs_are_left_alone",
        settings_changed_by_other_programs_are_left_alone,
    ),
    ("a_running_process_is_watched", a_running_process_is_watched),
];

pub(crate) const EFFECTS: &[(&str, Test)] = &[
    ("timer_slack_of_a_paced_loop", timer_slack_of_a_paced_loop),
    ("a_quota_of_a_separate_cgroup", a_quota_of_a_separate_cgroup),
];

/// Returns a trial of the harmless setting that takes minutes.
fn long(dir: &JournalDir, quiet: &Quiet) -> Command {
    dir.command(&[
        &quiet.assignment(),
        "--format",
        "json",
        "--noise-runs",
        "0",
        "--settle",
        "0ms",
        "--blocks",
        "100",
        "--",
        "sleep",
        "0.3",
    ])
}

fn timer_slack_of_a_paced_loop() -> Result<(), Failed> {
    let dir = JournalDir::new();
    let statement = dir.statement(&[
        "proc.timer_slack=now,20000000",
        // With this nice value (-20), the loop runs as soon as its timer fires, even on a busy
        // machine.
        "proc.nice=-20",
        "--blocks",
        "8",
        "--noise-runs",
        "6",
        "--",
        &own(),
        AS_SLEEPER,
    ])?;
    let (verdict, effect) = verdict(&statement, "time");
    check(verdict == "worse" && effect > 0.5, || {
        format!("{verdict}, {effect}: {statement:#}")
    })?;
    let settings = statement["arms"][1]["settings"].as_array().unwrap();
    check(settings[0]["value"] == "20000000", || {
        format!("{settings:?}")
    })?;
    check(settings[0]["target"] == "the command", || {
        format!("{settings:?}")
    })?;
    dir.require_clear()
}

fn a_quota_of_a_separate_cgroup() -> Result<(), Failed> {
    let dir = JournalDir::new();
    let statement = dir.statement(&[
        "cgroup.cpu_quota=now,1000/20000",
        "--metric",
        "time,throttled",
        "--blocks",
        "8",
        "--noise-runs",
        "6",
        "--",
        &own(),
        AS_WORKER,
    ])?;
    for metric in ["time", "throttled"] {
        let (verdict, effect) = verdict(&statement, metric);
        check(verdict == "worse" && effect > 0.3, || {
            format!("{metric}: {verdict}, {effect}: {statement:#}")
        })?;
    }
    dir.require_clear()?;
    let left = groups_left();
    check(left.is_empty(), || format!("{left:?}"))
}

/// Returns the cgroups that trials have left behind. Such a cgroup's name ends with the PID of its
/// trial, which has exited.
fn groups_left() -> Vec<PathBuf> {
    let roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(Path::new);
    let entries = roots.iter().flat_map(fs::read_dir).flatten().flatten();
    let is_left = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let pid = name.and_then(|name| name.strip_prefix("ticktax-try-"));
        pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    };
    entries.map(|entry| entry.path()).filter(is_left).collect()
}

fn a_setting_that_does_nothing() -> Result<(), Failed> {
    let (dir, quiet) = (JournalDir::new(), Quiet::new());
    let statement = dir.statement(&[
        &quiet.assignment(),
        "--blocks",
        "6",
        "--noise-runs",
        "6",
        "--settle",
        "0ms",
        "--difference",
        "50%",
        "--",
        "sleep",
        "0.2",
    ])?;
    let (verdict, effect) = verdict(&statement, "time");
    // One in twenty trials reports a difference by chance, but never a large one.
    check(
        verdict == "no-difference-beyond" || effect.abs() < 0.2,
        || format!("{verdict}, {effect}: {statement:#}"),
    )?;
    let restored = statement["experiment"]["restored"].as_array().unwrap();
    let is_back = |setting: &Value| {
        setting["id"] == QUIET
            && (setting["outcome"] == "restored" || setting["outcome"] == "already-restored")
    };
    check(restored.len() == 1 && is_back(&restored[0]), || {
        format!("{restored:?}")
    })?;
    check(Quiet::now() == quiet.0, Quiet::now)?;
    dir.require_clear()
}

/// Kills a trial with SIGKILL in the middle of a block. The watchdog must restore the setting
/// without the help of a later command.
fn a_watchdog_restores_a_killed_trial() -> Result<(), Failed> {
    let (dir, quiet) = (JournalDir::new(), Quiet::new());
    let running = Running::start(long(&dir, &quiet));
    Quiet::wait_for(quiet.other())?;
    running.signal(Signal::SIGKILL);
    Quiet::wait_for(&quiet.0)?;
    let output = running.output();
    check(output.status.code().is_none(), || {
        format!("{}", output.status)
    })?;
    let errors = text(&output.stderr);
    check(errors.contains(QUIET), || errors.clone())?;
    dir.require_clear()
}

fn ctrl_c_restores_everything() -> Result<(), Failed> {
    let_children_hear_ctrl_c();
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let (dir, quiet) = (JournalDir::new(), Quiet::new());
        let running = Running::start(long(&dir, &quiet));
        Quiet::wait_for(quiet.other())?;
        running.signal(signal);
        let output = running.output();
        check(output.status.code() == Some(code), || {
            format!("{signal}: {}, {}", output.status, text(&output.stderr))
        })?;
        check(Quiet::now() == quiet.0, Quiet::now)?;
        let statement: Value = serde_json::from_slice(&output.stdout)?;
        check(statement["experiment"]["interrupted"] == true, || {
            format!("{statement:#}")
        })?;
        dir.require_clear()?;
    }
    Ok(())
}

fn a_second_trial_refuses() -> Result<(), Failed> {
    let (dir, quiet) = (JournalDir::new(), Quiet::new());
    let running = Running::start(long(&dir, &quiet));
    Quiet::wait_for(quiet.other())?;
    let second = dir.run(&["proc.nice=0,1", "--", "true"]);
    let why = complaint(&second);
    let by = format!("ticktax try (PID {})", running.0.id());
    check(second.status.code() == Some(1) && why.contains(&by), || {
        why.clone()
    })?;
    running.signal(Signal::SIGTERM);
    drop(running.output());
    check(Quiet::now() == quiet.0, Quiet::now)
}

fn settings_changed_by_other_programs_are_left_alone() -> Result<(), Failed> {
    let (dir, quiet) = (JournalDir::new(), Quiet::new());
    let running = Running::start(long(&dir, &quiet));
    Quiet::wait_for(quiet.other())?;
    fs::write(QUIET_FILE, "77")?;
    let output = running.output();
    let why = text(&output.stderr);
    let is_reported = why.contains("another program sets it too");
    check(output.status.code() == Some(1) && is_reported, || {
        why.clone()
    })?;
    check(Quiet::now() == "77", Quiet::now)?;
    dir.require_clear()
}

fn a_running_process_is_watched() -> Result<(), Failed> {
    let dir = JournalDir::new();
    let sleeper = Running::start({
        let mut command = Command::new("sh");
        command.args(["-c", "while sleep 0.005; do :; done"]);
        command
    });
    let pid = sleeper.0.id().to_string();
    let statement = dir.statement(&[
        "proc.timer_slack=now,1000000",
        "--pid",
        &pid,
        "--for",
        "200ms",
        "--metric",
        "cpu,wait",
        "--blocks",
        "2",
        "--noise-runs",
        "0",
    ])?;
    let runs = statement["experiment"]["runs"].as_array().unwrap();
    check(runs.len() == 10, || format!("{} runs", runs.len()))?;
    let has_cpu = |run: &Value| run["values"][0].as_f64().is_some_and(|value| value > 0.0);
    check(runs.iter().all(has_cpu), || format!("{runs:#?}"))?;
    let slack = fs::read_to_string(format!("/proc/{pid}/timerslack_ns"))?;
    check(slack.trim() == "50000", || slack.clone())?;
    dir.require_clear()
}
