//! Audits disturbances for the tests.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::Failed;
use nix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use ticktax_inject::{Disturbance, Measured, Plan, Truth};
use ticktax_model::Nanos;

use super::checks::WHOLE_PROCESS;
pub(crate) use super::checks::{Recorded, check, statement};

/// Argument that makes this binary inject a disturbance, in its role as the audited command.
const AS_INJECTOR: &str = "--as-injector";

fn own_cpu_time() -> Nanos {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap();
    Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

pub(crate) fn may_trace() -> bool {
    nix::unistd::geteuid().is_root() && Path::new("/sys/kernel/btf/vmlinux").exists()
}

/// Returns why real-time threads are not allowed here, or `None` if they are. With
/// `CONFIG_RT_GROUP_SCHED`, real-time threads are allowed only in cgroups that have been given time
/// for them.
pub(crate) fn no_real_time() -> Option<&'static str> {
    let tried = Command::new("chrt").args(["--rr", "1", "true"]).output();
    let may = tried.is_ok_and(|output| output.status.success());
    (!may).then_some("needs a cgroup that may run real-time threads")
}

/// If this process was started as an injector, makes the disturbance in the given plan and writes
/// its `Truth`. Otherwise returns `None`.
pub(crate) fn as_injector() -> Option<ExitCode> {
    let arguments: Vec<OsString> = env::args_os().collect();
    let [_, flag, plan, truth] = &arguments[..] else {
        return None;
    };
    if flag != AS_INJECTOR {
        return None;
    }
    let plan: Plan = serde_json::from_slice(&fs::read(plan).unwrap()).unwrap();
    Some(match ticktax_inject::run(&plan) {
        Ok(mut done) => {
            done.measured.push(Measured {
                time: own_cpu_time(),
                method: WHOLE_PROCESS.to_owned(),
            });
            fs::write(truth, serde_json::to_vec(&done).unwrap()).unwrap();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

/// A temporary directory for recordings.
pub(crate) struct RecordingDir(TempDir);

impl RecordingDir {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

pub(crate) fn ticktax(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktax"));
    command.args(arguments);
    command
}

/// Returns the command that makes the disturbance in `plan`, and the path of the file that will
/// contain its `Truth`.
///
/// If the disturbance is a spinning thread, it runs as a real-time thread, so that a busy machine
/// does not delay it.
pub(crate) fn injector(
    plan: &Plan,
    dir: &RecordingDir,
) -> Result<(Vec<OsString>, PathBuf), Failed> {
    let (plan_file, truth_file) = (dir.file("plan"), dir.file("truth"));
    fs::write(&plan_file, serde_json::to_vec(plan)?)?;
    let spins = matches!(
        plan.disturbance,
        Disturbance::Dodge { .. } | Disturbance::Membarrier | Disturbance::Munmap { .. }
    );
    let mut command: Vec<OsString> = Vec::new();
    if spins {
        // Use round-robin scheduling, so that a spinning thread can share a CPU with the thread
        // that ends it.
        command.extend(["chrt", "--rr", "1"].map(OsString::from));
    }
    command.extend([
        env::current_exe()?.into(),
        AS_INJECTOR.into(),
        plan_file.into(),
        truth_file.clone().into(),
    ]);
    Ok((command, truth_file))
}

/// Audits the disturbance in `plan`. Returns its `Truth` and the recording.
pub(crate) fn audit_of(plan: &Plan) -> Result<(Truth, Recorded), Failed> {
    let dir = RecordingDir::new();
    let recording = dir.file("recording.parquet");
    let truth = audit_to(plan, &dir, &recording)?;
    Ok((truth, Recorded::read(&recording)?))
}

/// Audits the disturbance in `plan` and saves the recording. Returns its `Truth`.
pub(crate) fn audit_to(plan: &Plan, dir: &RecordingDir, recording: &Path) -> Result<Truth, Failed> {
    let (command, truth_file) = injector(plan, dir)?;
    let output = ticktax(&["audit", "--probe", "none", "--format", "json", "--save"])
        .arg(recording)
        .arg("--")
        .args(command)
        .output()?;
    let statement = statement(&output)?;
    check(statement.balance.balances(), || {
        format!("{:?}", statement.balance)
    })?;
    Ok(serde_json::from_slice(&fs::read(&truth_file)?)?)
}

/// Checks that `found` differs from `truth` by at most 5 %, or by at most `slack`.
pub(crate) fn close(what: &str, found: f64, truth: f64, slack: f64) -> Result<(), Failed> {
    let allowed = (0.05 * truth).max(slack);
    check((found - truth).abs() <= allowed, || {
        format!("{what}: {found} found, {truth} in truth (± {allowed})")
    })
}
