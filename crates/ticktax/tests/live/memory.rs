//! Tests audits, the recorder and the agent in a cgroup with little memory, while thousands of
//! processes sleep and others start all the time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use libtest_mimic::Failed;
use ticktax_model::statement::Statement;

use super::fixture::{RecordingDir, check};

/// Memory limit of the group, in bytes.
const LIMIT: u64 = 96 << 20;
/// Number of sleeping processes.
const SLEEPERS: usize = 2_000;

/// A cgroup with a memory limit, above which the kernel kills its processes. It is removed when
/// this is dropped.
struct MemoryGroup {
    folder: PathBuf,
}

impl MemoryGroup {
    fn new() -> Result<Self, Failed> {
        let (root, limit) = hierarchy().ok_or("no memory cgroups")?;
        let folder = root.join(format!("ticktax-test-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let group = Self { folder };
        fs::write(group.folder.join(limit), LIMIT.to_string())?;
        Ok(group)
    }

    /// Returns a command that runs `program` in the group.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        let script = r#"echo $$ > "$0" && exec "$@""#;
        command.args(["-c", script]);
        command.arg(self.folder.join("cgroup.procs")).arg(program);
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Returns the directory in which memory groups are created, and the name of the file for a group's
/// limit. Returns `None` if this machine has no memory groups.
fn hierarchy() -> Option<(PathBuf, &'static str)> {
    let first = Path::new("/sys/fs/cgroup/memory");
    if first.join("memory.limit_in_bytes").exists() {
        return Some((first.to_owned(), "memory.limit_in_bytes"));
    }
    let second = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_to_string(second.join("cgroup.subtree_control")).ok()?;
    controllers
        .contains("memory")
        .then(|| (second.to_owned(), "memory.max"))
}

/// Returns why the tests cannot run here, or `None` if they can.
pub(crate) fn why_not() -> Option<&'static str> {
    hierarchy().is_none().then_some("needs memory cgroups")
}

/// Processes that sleep until this is dropped.
struct Sleepers(Vec<Child>);

impl Sleepers {
    fn new() -> Result<Self, Failed> {
        let mut sleepers = Self(Vec::with_capacity(SLEEPERS));
        for _ in 0..SLEEPERS {
            sleepers.0.push(Command::new("sleep").arg("300").spawn()?);
        }
        Ok(sleepers)
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for sleeper in &mut self.0 {
            let _ = sleeper.kill();
        }
        for sleeper in &mut self.0 {
            let _ = sleeper.wait();
        }
    }
}

/// Runs `job` while processes start and exit as fast as one thread can start them.
fn while_processes_start<T>(job: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = Command::new("true").status();
            }
        });
        let done = job();
        stop.store(true, Ordering::Relaxed);
        done
    })
}

pub(crate) fn little_memory_is_enough_among_many_processes() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let group = MemoryGroup::new()?;
    let sleepers = Sleepers::new()?;
    let (incidents, facts) = (dir.file("incidents"), dir.file("facts"));
    let (incidents, facts) = (incidents.to_string_lossy(), facts.to_string_lossy());
    let ticktax = env!("CARGO_BIN_EXE_ticktax");
    let runs: [&[&str]; 3] = [
        &["audit", "--for", "5s", "--format", "json"],
        &[
            "record",
            "--trigger",
            "wait>1ms",
            "--for",
            "5s",
            "--dir",
            &incidents,
        ],
        &[
            "agent", "--listen", "none", "--every", "1s", "--for", "5s", "--facts", &facts,
        ],
    ];
    for arguments in runs {
        let run = || {
            let mut command = group.command(ticktax);
            command.args(arguments).stdin(Stdio::null()).output()
        };
        let output = while_processes_start(run)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        check(output.status.success(), || {
            format!("{arguments:?}: {}, {errors}", output.status)
        })?;
        if arguments[0] == "audit" {
            let statement: Statement = serde_json::from_slice(&output.stdout)?;
            check(statement.balances(), || format!("{:?}", statement.balance))?;
        }
    }
    drop(sleepers);
    Ok(())
}
