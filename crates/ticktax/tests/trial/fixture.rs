//! Helpers for trials: a journal for each test, a harmless setting on this machine, and trials that
//! keep running.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::text;

/// A setting that no program on this machine depends on.
pub(crate) const QUIET: &str = "vm.stat_interval";
pub(crate) const QUIET_FILE: &str = "/proc/sys/vm/stat_interval";
/// Values that the tests set. They use the first one that differs from the current value.
const OTHERS: [&str; 2] = ["61", "62"];

/// Number of times to check for something. All checks together take 20 s.
const LOOKS: u32 = 400;
const MOMENT: Duration = Duration::from_millis(50);

pub(crate) fn check(holds: bool, why: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(why().into()) }
}

/// A directory that contains one test's journal.
pub(crate) struct JournalDir(TempDir);

impl JournalDir {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.0.path().join("journal")
    }

    /// Returns a `ticktax try` command that uses this test's journal.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ticktax"));
        command.arg("try").arg("--journal").arg(self.journal());
        command.args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn statement(&self, arguments: &[&str]) -> Result<Value, Failed> {
        let output = self
            .command(&["--format", "json"])
            .args(arguments)
            .output()?;
        check(output.status.success(), || {
            format!("{}: {}", output.status, text(&output.stderr))
        })?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Checks that no setting is left to restore.
    pub(crate) fn require_clear(&self) -> Result<(), Failed> {
        let length = fs::metadata(self.journal()).map_or(0, |facts| facts.len());
        check(length == 0, || {
            format!("{length} bytes are left in the journal")
        })
    }
}

/// Returns the verdict on a metric in the second arm, and the size of the effect.
pub(crate) fn verdict(statement: &Value, metric: &str) -> (String, f64) {
    let metrics = statement["metrics"].as_array().unwrap();
    let metric = metrics.iter().position(|known| known["id"] == metric);
    let effects = statement["effects"].as_array().unwrap();
    let found = effects
        .iter()
        .find(|effect| effect["metric"] == metric.unwrap());
    let found = found.unwrap();
    let verdict = found["verdict"]["id"].as_str().unwrap().to_owned();
    (
        verdict,
        found["effect"]["value"].as_f64().unwrap_or(f64::NAN),
    )
}

/// The harmless setting on this machine. It is restored when this is dropped, even after a panic.
pub(crate) struct Quiet(pub(crate) String);

impl Quiet {
    pub(crate) fn new() -> Self {
        Self(Self::now())
    }

    pub(crate) fn now() -> String {
        fs::read_to_string(QUIET_FILE).unwrap().trim().to_owned()
    }

    pub(crate) fn other(&self) -> &'static str {
        OTHERS.into_iter().find(|value| *value != self.0).unwrap()
    }

    pub(crate) fn assignment(&self) -> String {
        format!("{QUIET}=now,{}", self.other())
    }

    pub(crate) fn wait_for(value: &str) -> Result<(), Failed> {
        for _ in 0..LOOKS {
            if Self::now() == value {
                return Ok(());
            }
            sleep(MOMENT);
        }
        Err(format!("it is {}, and not {value}", Self::now()).into())
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if Self::now() != self.0 {
            fs::write(QUIET_FILE, &self.0).unwrap();
        }
    }
}

/// A running trial, which is killed when this is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap());
        kill(pid, signal).unwrap();
    }

    pub(crate) fn output(mut self) -> Output {
        let (stdout, stderr) = (self.0.stdout.take(), self.0.stderr.take());
        let read = |stream: Option<&mut dyn std::io::Read>| {
            let mut bytes = Vec::new();
            if let Some(stream) = stream {
                stream.read_to_end(&mut bytes).unwrap();
            }
            bytes
        };
        let (mut stdout, mut stderr) = (stdout, stderr);
        let stdout = read(
            stdout
                .as_mut()
                .map(|stream| stream as &mut dyn std::io::Read),
        );
        let stderr = read(
            stderr
                .as_mut()
                .map(|stream| stream as &mut dyn std::io::Read),
        );
        Output {
            status: self.0.wait().unwrap(),
            stdout,
            stderr,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
