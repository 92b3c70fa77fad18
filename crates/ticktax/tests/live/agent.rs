//! Tests for the agent on this machine: its metrics, its files, its rights, and its failures.

mod contrib;
mod groups;
mod recorder;
mod rights;
mod running;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Failed;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

pub(crate) use contrib::{
    a_prometheus_scrapes_it_and_evaluates_the_rules, a_prometheus_takes_native_histograms,
    has_prometheus, has_systemd_analyze, the_dashboard_and_the_rules_name_existing_metrics,
    the_unit_has_room_for_a_recorder, the_unit_is_sound,
};
pub(crate) use groups::{
    a_prometheus_has_the_values_of_groups, a_throttled_group_has_waits_and_a_quota, no_quotas,
};
pub(crate) use recorder::{a_recorder_runs_along_with_the_sums, its_probes_run_without_rights};
pub(crate) use rights::{
    folders_of_other_users_are_refused, its_socket_belongs_to_its_user_in_every_folder,
    its_threads_are_filtered_and_have_no_bounding_set,
    links_in_place_of_its_folder_or_socket_are_not_followed, parents_of_its_folders_stay_roots,
    state_folders_work_in_any_order,
};
use running::{AS_NOBODY, Agent, SERVING, recorded_in_classes, sum_of};

use super::fixture::check;

const NOBODY: u32 = 65_534;

/// Creates a directory owned by `nobody`, and returns it with the path of a subdirectory that does
/// not exist yet.
fn place_for_nobody() -> Result<(tempfile::TempDir, PathBuf), Failed> {
    let place = tempfile::Builder::new()
        .prefix("ticktax-test")
        .tempdir_in("/tmp")?;
    chown(place.path(), Some(NOBODY), Some(NOBODY))?;
    let facts = place.path().join("facts");
    Ok((place, facts))
}

fn status(pid: u32) -> Result<BTreeMap<String, String>, Failed> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    Ok(lines
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect())
}

/// Checks that the process has no capabilities and cannot gain any.
fn has_no_rights(pid: u32) -> Result<(), Failed> {
    let status = status(pid)?;
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        check(status[set] == "0000000000000000", || {
            format!("{set}: {}", status[set])
        })?;
    }
    check(status["NoNewPrivs"] == "1", || {
        "it may gain rights".to_owned()
    })?;
    let nobody = format!("{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}");
    for ids in ["Uid", "Gid"] {
        check(status[ids] == nobody, || format!("{ids}: {}", status[ids]))?;
    }
    Ok(())
}

pub(crate) fn serves_what_it_counts_without_rights() -> Result<(), Failed> {
    let mut agent = Agent::start(&AS_NOBODY)?;
    has_no_rights(agent.pid())?;
    let page = agent.page_when("ticktax_recorded_seconds_total")?;
    let recorded = recorded_in_classes(&page)?;
    let accounts = sum_of(&page, "ticktax_account_seconds_total");
    check((recorded - accounts).abs() < 1e-6, || {
        format!("{accounts} s in accounts, {recorded} s recorded")
    })?;
    for family in [
        "ticktax_ticks_total",
        "ticktax_tick_duration_seconds_count",
        "ticktax_account_duration_seconds_bucket",
        "ticktax_own_events_total",
    ] {
        check(sum_of(&page, family) > 0.0, || {
            format!("no {family} in\n{page}")
        })?;
    }
    check(page.ends_with("# EOF\n"), || page.clone())?;
    let later = agent.page_when_it_changes(&page)?;
    check(
        sum_of(&later, "ticktax_recorded_seconds_total") > recorded,
        || later.clone(),
    )?;
    agent.stops_with_balanced_accounts()
}

pub(crate) fn programs_are_named_without_their_arguments() -> Result<(), Failed> {
    let busy = ["-c", "while :; do sleep 0.01; done", "a-secret-of-mine"];
    let mut busy = Command::new("sh").args(busy).spawn()?;
    let watch = || {
        let mut agent = Agent::start(&SERVING)?;
        let page = agent.page_that(|page| page.contains("name=\"sh\""))?;
        check(!page.contains("a-secret-of-mine"), || page.clone())?;
        agent.stops_with_balanced_accounts()
    };
    let result = watch();
    busy.kill()?;
    busy.wait()?;
    result
}

/// Creates a copy of the ticktax binary that every user can run. The copy is removed when the
/// returned directory is dropped.
fn copy_for_anybody() -> Result<(tempfile::TempDir, PathBuf), Failed> {
    let place = tempfile::Builder::new()
        .prefix("ticktax-test")
        .tempdir_in("/tmp")?;
    let copy = place.path().join("ticktax");
    fs::copy(env!("CARGO_BIN_EXE_ticktax"), &copy)?;
    for path in [place.path(), &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok((place, copy))
}

pub(crate) fn three_capabilities_are_enough() -> Result<(), Failed> {
    let (_place, copy) = copy_for_anybody()?;
    let three = "+bpf,+perfmon,+syslog";
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.args(["--bounding-set", &format!("-all,{three}")]);
    command.args(["--inh-caps", &format!("-all,{three}")]);
    command.args(["--ambient-caps", &format!("-all,{three}")]);
    command.arg(&copy).arg("agent");
    let mut agent = Agent::run(command, &SERVING)?;
    has_no_rights(agent.pid())?;
    let page = agent.page_when("ticktax_recorded_seconds_total")?;
    // CAP_SYSLOG makes the names of kernel functions visible. Without them, ticks could not be
    // recognized.
    check(sum_of(&page, "ticktax_ticks_total") > 0.0, || page.clone())?;
    agent.stops_with_balanced_accounts()
}

pub(crate) fn without_rights_it_names_the_missing_ones() -> Result<(), Failed> {
    let (_place, copy) = copy_for_anybody()?;
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(&copy).args(["agent", "--listen", "none"]);
    let errors = complaint(&mut command)?;
    check(errors.contains("CAP_BPF"), || errors.clone())
}

/// Runs a command that must fail. Returns its error message, which must be a single line.
fn complaint(command: &mut Command) -> Result<String, Failed> {
    let output = command.output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    check(output.status.code() == Some(1), || {
        format!("{}: {errors}", output.status)
    })?;
    let complaints = errors.lines().filter(|line| line.starts_with("ticktax: "));
    check(complaints.count() == 1, || errors.clone())?;
    check(!errors.contains("os error"), || errors.clone())?;
    Ok(errors)
}

/// Reads a table of accounts. Each row consists of a CPU, a time in ns and a count.
fn rows(table: &Path) -> Result<Vec<(i64, i64, i64)>, Failed> {
    let all = facts_rows(table)?;
    let number = |row: &Row, name: &str| {
        let mut columns = row.get_column_iter();
        match columns
            .find(|column| column.0 == name)
            .map(|column| column.1)
        {
            Some(Field::Long(number)) => *number,
            Some(Field::Short(number)) => i64::from(*number),
            other => panic!("{name}: {other:?}"),
        }
    };
    let figures = |row: &Row| {
        (
            number(row, "cpu"),
            number(row, "time_ns"),
            number(row, "count"),
        )
    };
    Ok(all.iter().map(figures).collect())
}

fn facts_rows(table: &Path) -> Result<Vec<Row>, Failed> {
    let mut rows = Vec::new();
    for day in fs::read_dir(table)? {
        for part in fs::read_dir(day?.path())? {
            let part = part?.path();
            let mode = fs::metadata(&part)?.permissions().mode();
            check(mode % 0o10 == 0, || {
                format!("{} is for all", part.display())
            })?;
            let reader = SerializedFileReader::new(File::open(&part)?)?;
            for row in reader.get_row_iter(None)? {
                rows.push(row?);
            }
        }
    }
    Ok(rows)
}

pub(crate) fn facts_hold_all_counted_time() -> Result<(), Failed> {
    let (_place, facts) = place_for_nobody()?;
    let folder = facts.display().to_string();
    let agent = Agent::start(&[
        "--listen", "none", "--user", "nobody", "--facts", &folder, "--for", "3s",
    ])?;
    let messages = agent.ends_with_balanced_accounts()?;
    let per_cpu = |table: &str| {
        let mut times: BTreeMap<i64, i64> = BTreeMap::new();
        for (cpu, time, _) in rows(&facts.join(table))? {
            *times.entry(cpu).or_default() += time;
        }
        Ok::<_, Failed>(times)
    };
    let minutes = per_cpu("accounts")?;
    for (cpu, time) in &minutes {
        let seconds = *time as f64 / 1e9;
        check((2.0..60.0).contains(&seconds), || {
            format!("CPU {cpu}: {seconds} s\n{messages}")
        })?;
    }
    check(!minutes.is_empty(), || "no rows".to_owned())?;
    for table in ["accounts_10m", "accounts_1h"] {
        let longer = per_cpu(table)?;
        check(longer == minutes, || {
            format!("{table}: {longer:?}, {minutes:?}")
        })?;
    }
    // The table of ticks has the same columns as the tables of accounts. Three seconds must contain
    // a few ticks.
    let ticks = rows(&facts.join("tick"))?;
    check(ticks.iter().map(|row| row.2).sum::<i64>() > 0, || {
        format!("{ticks:?}")
    })?;
    let hosts = facts_rows(&facts.join("host"))?;
    check(hosts.len() == 1, || format!("{hosts:?}"))?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    check(hosts[0].to_string().contains(kernel.trim()), || {
        format!("{hosts:?}")
    })?;
    let mode = fs::metadata(&facts)?.permissions().mode();
    check(mode % 0o10 == 0, || format!("{mode:o}"))
}

pub(crate) fn two_agents_do_not_share_a_port_or_a_folder() -> Result<(), Failed> {
    let (_place, facts) = place_for_nobody()?;
    let folder = facts.display().to_string();
    let mut first = Agent::start(&[&AS_NOBODY[..], &["--facts", &folder]].concat())?;
    let ticktax = || Command::new(env!("CARGO_BIN_EXE_ticktax"));
    let address = first.address()?;
    let errors = complaint(ticktax().args(["agent", "--listen", &address]))?;
    check(errors.contains("already in use"), || errors.clone())?;
    let errors = complaint(ticktax().args([
        "agent", "--listen", "none", "--user", "nobody", "--facts", &folder,
    ]))?;
    check(errors.contains("another agent writes"), || errors.clone())?;
    // The first agent keeps running. A second agent with a different port and directory must be
    // able to run as well.
    let mut second = Agent::start(&SERVING)?;
    second.page_when("ticktax_recorded_seconds_total")?;
    second.stops_with_balanced_accounts()?;
    first.page_when("ticktax_recorded_seconds_total")?;
    first.stops_with_balanced_accounts()
}

pub(crate) fn a_full_disk_is_reported_and_the_agent_continues() -> Result<(), Failed> {
    let (_place, facts) = place_for_nobody()?;
    fs::create_dir(&facts)?;
    // The disk is mounted in a mount namespace, which ends with the process.
    let script = "mount -t tmpfs -o size=16k,uid=65534,mode=700 none \"$1\" && \
                  head -c 12288 /dev/zero > \"$1/filler\" && \
                  exec \"$2\" agent --listen none --user nobody --for 2s --facts \"$1\"";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(&facts)
        .arg(env!("CARGO_BIN_EXE_ticktax"))
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    check(output.status.code() == Some(1), || {
        format!("{}: {errors}", output.status)
    })?;
    check(errors.contains("the disk is full"), || errors.clone())?;
    check(!errors.contains("os error"), || errors.clone())?;
    check(!errors.contains("accounts do not balance"), || {
        errors.clone()
    })
}

pub(crate) fn a_disk_that_becomes_read_only_is_reported_and_the_agent_continues()
-> Result<(), Failed> {
    let (place, facts) = place_for_nobody()?;
    fs::create_dir(&facts)?;
    // Once its lock file exists, the agent is using the directory. A signal ends the agent, so the
    // test does not depend on timing.
    let script = "mount -t tmpfs -o uid=65534,mode=700 none \"$1\" || exit 9; \
                  \"$2\" agent --listen none --every 1s --user nobody --facts \"$1\" 2>\"$3\" & agent=$!; \
                  until [ -e \"$1/.lock\" ]; do kill -0 $agent || exit 9; sleep 0.1; done; \
                  until mount -o remount,ro \"$1\"; do kill -0 $agent || exit 9; sleep 0.1; done; \
                  kill -TERM $agent; wait $agent";
    let messages = place.path().join("said");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(&facts)
        .arg(env!("CARGO_BIN_EXE_ticktax"))
        .arg(&messages)
        .output()?;
    let messages = fs::read_to_string(messages)?;
    check(output.status.code() == Some(1), || {
        let script = String::from_utf8_lossy(&output.stderr);
        format!("{}: {messages}{script}", output.status)
    })?;
    check(messages.contains("read-only"), || messages.clone())?;
    check(!messages.contains("os error"), || messages.clone())?;
    check(!messages.contains("accounts do not balance"), || {
        messages.clone()
    })
}

pub(crate) fn a_killed_agent_leaves_complete_files() -> Result<(), Failed> {
    let (_place, facts) = place_for_nobody()?;
    let folder = facts.display().to_string();
    let arguments = [&AS_NOBODY[..], &["--facts", &folder]].concat();
    let mut agent = Agent::start(&arguments)?;
    agent.page_when("ticktax_recorded_seconds_total")?;
    agent.kill()?;
    let day = facts.join("accounts/day=2026-01-01");
    fs::create_dir_all(&day)?;
    let leftover = day.join(".part-1.parquet.1-0.part");
    fs::write(&leftover, "half of it")?;
    for path in [&day, &leftover] {
        chown(path, Some(NOBODY), Some(NOBODY))?;
    }
    // The killed agent's lock is gone. The next agent must remove the unfinished file that the
    // killed agent left behind.
    let mut next = Agent::start(&arguments)?;
    next.page_when("ticktax_recorded_seconds_total")?;
    let left = fs::read_dir(&day)?.count();
    check(left == 0, || format!("{left} files are left"))?;
    next.stops_with_balanced_accounts()?;
    check(!rows(&facts.join("accounts"))?.is_empty(), || {
        "no rows".to_owned()
    })
}
