//! Tests for audits of the whole machine, and for their behaviour when something fails.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktax_model::Nanos;
use ticktax_model::recording::Level;
use ticktax_model::statement::{Class, Statement};

use super::attached;
use super::checks::{Tolerance, counters, gaps};
use super::common::let_children_hear_ctrl_c;
use super::fixture::{Recorded, RecordingDir, check, statement, ticktax};

const NOBODY: u32 = 65_534;

fn time_of(statement: &Statement, class: Class) -> Nanos {
    statement
        .cpus
        .iter()
        .map(|books| books.time_of(class))
        .sum()
}

pub(crate) fn accounts_balance_and_gaps_are_explained() -> Result<(), Failed> {
    // Request the probe, because an audit has none by default.
    let arguments = [
        "audit", "--for", "3s", "--format", "json", "--probe", "spin",
    ];
    let output = ticktax(&arguments).output()?;
    let statement = statement(&output)?;
    check(statement.level == Level::Kernel, || {
        format!("{:?}", statement.coverage)
    })?;
    check(statement.balance.balances(), || {
        format!("{:?}", statement.balance)
    })?;
    check(statement.balance.elapsed >= Nanos::from_secs(3), || {
        "too short".to_owned()
    })?;
    gaps::are_explained(&statement)?;
    let clock = statement.clock.as_ref().ok_or("no clock")?;
    // The uncertainty must be less than the shortest gap that counts, which is 1 µs. On a guest
    // that shares its CPUs, it is several times as long as a clock reading, which takes 30 to 70
    // ns.
    check(clock.uncertainty < Nanos::from_micros(1), || {
        format!("{clock:?}")
    })
}

/// Minimum tolerance for events between the readings of the kernel's counters and the start or end
/// of the accounts.
const BETWEEN: Tolerance = Tolerance {
    events: 40.0,
    ..Tolerance::LIVE
};

pub(crate) fn spans_match_the_kernels_counts() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let file = dir.file("x.parquet");
    let output = ticktax(&[
        "audit", "--for", "3s", "--probe", "sleep", "--format", "json", "--save",
    ])
    .arg(&file)
    .output()?;
    statement(&output)?;
    counters::spans_match_counts(&Recorded::read(&file)?, BETWEEN)
}

pub(crate) fn sums_balance_too() -> Result<(), Failed> {
    let output = ticktax(&[
        "audit", "--for", "2500ms", "--keep", "sums", "--probe", "none", "--format", "json",
    ])
    .output()?;
    let statement = statement(&output)?;
    check(statement.balance.balances(), || {
        format!("{:?}", statement.balance)
    })?;
    check(statement.coverage.events_lost() == 0, || {
        format!("{:?}", statement.coverage)
    })?;
    check(time_of(&statement, Class::Irq) > Nanos::ZERO, || {
        "no interrupts".to_owned()
    })
}

pub(crate) fn a_killed_audit_leaves_no_program_behind() -> Result<(), Failed> {
    let mut child = ticktax(&["audit", "--for", "60s"])
        .stdout(Stdio::null())
        .spawn()?;
    let programs = attached::wait_for_all(child.id());
    child.kill()?;
    child.wait()?;
    attached::wait_for_none(&programs?)
}

pub(crate) fn a_first_interrupt_still_prints() -> Result<(), Failed> {
    let_children_hear_ctrl_c();
    let child = ticktax(&["audit", "--for", "60s", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    attached::wait_for_all(child.id())?;
    kill(pid, Signal::SIGINT)?;
    let statement = statement(&child.wait_with_output()?)?;
    check(statement.balance.balances(), || {
        format!("{:?}", statement.balance)
    })?;
    check(statement.balance.elapsed < Nanos::from_secs(100), || {
        "it ran on".to_owned()
    })
}

/// Audits onto a full disk, which is a small file system in a mount namespace that ends with the
/// process.
pub(crate) fn a_full_disk_still_prints_the_statement() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let folder = dir.file("disk");
    std::fs::create_dir(&folder)?;
    let script = "mount -t tmpfs -o size=16k none \"$1\" && \
                  \"$2\" audit --for 1s --format json --save \"$1/x.parquet\"; code=$?; \
                  ls -A \"$1\" >&2; exit $code";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(&folder)
        .arg(env!("CARGO_BIN_EXE_ticktax"))
        .output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    check(output.status.code() == Some(1), || {
        format!("{}: {complaint}", output.status)
    })?;
    check(complaint.contains("full"), || complaint.to_string())?;
    check(!complaint.contains("os error"), || complaint.to_string())?;
    // At its end, the script prints a line for each file on the disk. There must not be any file,
    // so the error message must be the only line.
    check(complaint.lines().count() == 1, || {
        format!("left behind: {complaint}")
    })?;
    let statement: Statement = serde_json::from_slice(&output.stdout)?;
    check(statement.balance.balances(), || {
        format!("{:?}", statement.balance)
    })
}

pub(crate) fn without_root_the_level_is_proc() -> Result<(), Failed> {
    let dir = folder_for_nobody()?;
    for probe in ["spin", "sleep", "none"] {
        let output = as_nobody(dir.path())
            .args(["audit", "--for", "1s", "--format", "json", "--probe", probe])
            .output()?;
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        let statement = statement(&output)?;
        check(statement.level == Level::Proc, || {
            format!("{:?}", statement.level)
        })?;
        check(statement.balance.balances(), || {
            format!("{:?}", statement.balance)
        })?;
        check(complaint.lines().count() == 1, || complaint.clone())?;
        check(complaint.contains("root"), || complaint.clone())?;
        check(!complaint.contains("os error"), || complaint.clone())?;
    }
    Ok(())
}

pub(crate) fn without_root_other_users_loops_are_not_watched() -> Result<(), Failed> {
    let dir = folder_for_nobody()?;
    let pid = std::process::id().to_string();
    let output = as_nobody(dir.path())
        .args(["pace", "--for", "1s", "--pid", &pid])
        .output()?;
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    check(output.status.code() == Some(1), || complaint.clone())?;
    check(complaint.lines().count() == 1, || complaint.clone())?;
    check(complaint.contains("CAP_BPF"), || complaint.clone())?;
    check(output.stdout.is_empty(), || complaint.clone())
}

/// Runs ticktax in a shell that first sets a limit. `limit` contains the arguments for `ulimit`.
fn limited(limit: &str, arguments: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit {limit} && exec \"$0\" {arguments}");
    let own = env!("CARGO_BIN_EXE_ticktax");
    command.arg("-c").arg(script).arg(own);
    command
}

pub(crate) fn a_tracer_without_files_is_explained() -> Result<(), Failed> {
    let audit = "audit --for 100ms --probe none --format json";
    // The hard limit is high enough, so ticktax must raise the soft limit itself.
    let raised = limited("-S -n 32", audit).output()?;
    let level = statement(&raised)?.level;
    check(level == Level::Kernel, || format!("{level:?}"))?;
    for limit in ["20", "32", "60", "100"] {
        let output = limited(&format!("-n {limit}"), audit).output()?;
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        check(complaint.lines().count() == 1, || complaint.clone())?;
        let words = format!("limit of {limit} open files");
        check(complaint.contains(&words), || complaint.clone())?;
    }
    Ok(())
}

/// Creates a directory with a copy of the ticktax binary that every user can run.
pub(super) fn folder_for_nobody() -> Result<tempfile::TempDir, Failed> {
    let dir = tempfile::Builder::new()
        .prefix("ticktax-test")
        .tempdir_in("/tmp")?;
    let copy = dir.path().join("ticktax");
    std::fs::copy(env!("CARGO_BIN_EXE_ticktax"), &copy)?;
    for path in [dir.path(), &copy] {
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, all)?;
    }
    Ok(dir)
}

/// Returns a command that runs the ticktax binary in `place` as an ordinary user.
pub(super) fn as_nobody(dir: &Path) -> Command {
    let mut command = Command::new(dir.join("ticktax"));
    command.current_dir("/").uid(NOBODY).gid(NOBODY);
    command
}
