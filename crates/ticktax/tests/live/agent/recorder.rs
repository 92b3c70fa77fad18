//! Tests for an agent that runs a flight recorder in addition to its sums.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use ticktax_store::recording::RecordingReader;

use super::running::{AS_NOBODY, Agent, recorded_in_classes, sum_of};
use super::{NOBODY, facts_rows, has_no_rights, place_for_nobody};
use crate::fixture::{check, ticktax};

/// Runs `ticktax incidents` on a directory, and returns its output.
fn list(folder: &Path) -> Result<Value, Failed> {
    let mut command = ticktax(&["incidents", "--format", "json", "--dir"]);
    let output = command.arg(folder).output()?;
    check(output.status.success(), || {
        String::from_utf8_lossy(&output.stderr).into_owned()
    })?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Checks that `path` belongs to `nobody`, and that no other user has access to it.
fn is_private(path: &Path) -> Result<(), Failed> {
    let facts = fs::metadata(path)?;
    let mode = facts.permissions().mode() & 0o777;
    check(mode % 0o100 == 0 && facts.uid() == NOBODY, || {
        format!("{}: {mode:o} of {}", path.display(), facts.uid())
    })
}

pub(crate) fn a_recorder_runs_along_with_the_sums() -> Result<(), Failed> {
    let (place, facts) = place_for_nobody()?;
    // Two levels of this path are missing. The agent must create them for its user.
    let folder = place.path().join("state/incidents");
    let shown = |path: &Path| path.display().to_string();
    let (written, kept) = (shown(&facts), shown(&folder));
    let recording = [
        "--trigger",
        "signal",
        "--incidents",
        &kept,
        "--max-count",
        "7",
    ];
    let mut agent = Agent::start(&[&AS_NOBODY[..], &["--facts", &written], &recording].concat())?;
    has_no_rights(agent.pid())?;
    is_private(&folder)?;
    let page = agent.page_when("ticktax_recorded_seconds_total")?;
    recorded_in_classes(&page)?;
    let marked = ticktax(&["mark", "a word", "--dir"])
        .arg(&folder)
        .output()?;
    check(marked.status.success(), || {
        String::from_utf8_lossy(&marked.stderr).into_owned()
    })?;
    agent.page_when("ticktax_incidents_total{kind=\"mark\"")?;
    // The mark's window has ended by now, so this signal causes a separate incident.
    kill(Pid::from_raw(i32::try_from(agent.pid())?), Signal::SIGUSR1)?;
    let page = agent.page_when("ticktax_incidents_total{kind=\"signal\"")?;
    let counted = sum_of(&page, "ticktax_incident_duration_seconds_count");
    check((counted - 2.0).abs() < 0.5, || page.clone())?;
    check(sum_of(&page, "ticktax_ring_reach_seconds") > 0.0, || {
        page.clone()
    })?;
    agent.stops_with_balanced_accounts()?;

    let found = list(&folder)?;
    let groups = found["groups"].as_array().ok_or("no groups")?;
    let mut kinds: Vec<&str> = groups
        .iter()
        .filter_map(|group| group["kind"].as_str())
        .collect();
    kinds.sort_unstable();
    check(kinds == ["mark", "signal"], || found.to_string())?;
    check(!folder.join("mark.sock").exists(), || {
        "the socket is left".to_owned()
    })?;
    let mut recordings = 0;
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        is_private(&path)?;
        if path
            .extension()
            .is_some_and(|extension| extension == "parquet")
        {
            let header = RecordingReader::open(&path)?.header().clone();
            check(header.triggers.len() == 1, || format!("{header:?}"))?;
            recordings += 1;
        }
    }
    check(recordings == 2, || format!("{recordings} recordings"))?;
    let rows = facts_rows(&facts.join("incidents"))?;
    let lines: Vec<String> = rows.iter().map(ToString::to_string).collect();
    let marked = lines.iter().any(|row| row.contains("a word"));
    check(lines.len() == 2 && marked, || lines.join("\n"))
}

/// Checks that the probe threads have no capabilities, either. Capabilities belong to a thread, and
/// the probe threads already exist when the agent drops its own.
pub(crate) fn its_probes_run_without_rights() -> Result<(), Failed> {
    let (place, _) = place_for_nobody()?;
    let folder = place.path().join("incidents").display().to_string();
    let triggers = ["--trigger", "gap>1m", "--trigger", "gap>p99.99"];
    let arguments = [&AS_NOBODY[..], &triggers, &["--incidents", &folder]].concat();
    let mut agent = Agent::start(&arguments)?;
    agent.page_when("ticktax_recorded_seconds_total")?;
    let mut probes = 0;
    for task in fs::read_dir(format!("/proc/{}/task", agent.pid()))? {
        let name = task?.file_name();
        let tid: u32 = name.to_str().ok_or("no number")?.parse()?;
        has_no_rights(tid)?;
        let comm = fs::read_to_string(format!("/proc/{tid}/comm"))?;
        if comm.starts_with("ttx-sleep/") {
            let stat = fs::read_to_string(format!("/proc/{tid}/stat"))?;
            // The priority and the policy are fields 40 and 41 of `/proc/PID/stat`, counted from 1.
            // The name in the second field contains no space here, so the fields can be split at
            // spaces.
            let fields: Vec<&str> = stat.split(' ').collect();
            let policy = fields.get(39..41).ok_or("no policy")?;
            check(policy == ["1", "1"], || format!("{comm}: {policy:?}"))?;
            probes += 1;
        }
    }
    let cpus = ticktax_inject::allowed_cpus();
    check(probes > 0, || format!("no probe on any of {cpus:?}"))?;
    agent.stops_with_balanced_accounts()
}
