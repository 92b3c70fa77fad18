//! Follows `docs/tutorial.md` as a reader would: runs every block, and checks that the output names
//! the culprit.
//!
//! The test needs two CPUs and the right to trace the kernel. If either is missing, the test is
//! reported as ignored.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

const PAGE: &str = include_str!("../../../docs/tutorial.md");

fn main() -> ExitCode {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let traced = nix::unistd::geteuid().is_root() && Path::new("/sys/kernel/btf/vmlinux").exists();
    let tools = ["chrt", "taskset", "pgrep"];
    let is_installed = |tool: &&str| Command::new(tool).arg("--version").output().is_ok();
    let can = traced && cpus > 1 && tools.iter().all(is_installed);
    let trial = Trial::test(
        "root::the_tutorial_names_the_culprit_and_proves_it",
        tutorial,
    );
    // The tutorial measures how long a server waits, so any other load changes the result.
    let left_out = ticktax_fixture::left_out("live");
    let ignored = !can || left_out.is_some();
    let trial = trial.with_kind(left_out.unwrap_or_default());
    let trials = vec![trial.with_ignored_flag(ignored)];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn tutorial() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let at = folder.path();
    // All programs started by the script end together with its shell.
    let script = format!(
        "trap 'kill $(jobs -p) 2>/dev/null' EXIT\nset -e\n{}",
        blocks()
    );
    fs::write(at.join("tutorial.sh"), script)?;
    let binary = Path::new(env!("CARGO_BIN_EXE_ticktax")).parent();
    let binary = binary.ok_or("no folder")?.to_path_buf();
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(std::iter::once(binary).chain(env::split_paths(&path)))?;
    let output = Command::new("bash")
        .arg("tutorial.sh")
        .current_dir(at)
        .env("PATH", path)
        .output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{}: {complaint}", output.status).into());
    }
    let read = |file: &str| fs::read_to_string(at.join(file));
    for (file, words) in [
        ("lag.txt", &["WAITED BEHIND", "backupd"][..]),
        ("beats.txt", &["backupd"]),
        ("time.txt", &["backupd"]),
        ("proof.txt", &["waited, per second", "calm.parquet"]),
    ] {
        let text = read(file)?;
        for word in words {
            if !text.contains(word) {
                return Err(format!("{word} is not in {file}:\n{text}").into());
            }
        }
    }
    // By now, the culprit no longer runs on the server's CPU.
    let calm = read("calm.txt")?;
    let blamed = calm.lines().find(|line| line.starts_with("  backupd"));
    if let Some(line) = blamed {
        return Err(format!("still blamed after it was moved: {line}\n{calm}").into());
    }
    // If other programs keep every CPU busy, the server also waits for those, and they are listed
    // first.
    if others_run()? {
        return Ok(());
    }
    let lag = read("lag.txt")?;
    if !lag.contains("$ taskset -acp ") {
        return Err(format!("the page does not print step 4's command:\n{lag}").into());
    }
    let proof = read("proof.txt")?;
    match interval(&proof) {
        Some((_, high)) if high < 0.0 => Ok(()),
        other => Err(format!("it waited no less, {other:?}:\n{proof}").into()),
    }
}

/// Parses the 95 % interval of the change in waiting time per second, in percentage points.
fn interval(proof: &str) -> Option<(f64, f64)> {
    let mut lines = proof.lines();
    let line = lines.find(|line| line.contains("waited, per second"))?;
    let (before, after) = line.split_once(" to ")?;
    let low = before.split_whitespace().last()?.parse().ok()?;
    let high = after.split_whitespace().next()?.parse().ok()?;
    Some((low, high))
}

/// Returns whether about as many threads as there are CPUs, or more, recently needed a CPU.
fn others_run() -> Result<bool, Failed> {
    let load = fs::read_to_string("/proc/loadavg")?;
    let load: f64 = load.split_whitespace().next().unwrap_or_default().parse()?;
    let cpus = std::thread::available_parallelism()?.get();
    Ok(load > 0.75 * cpus as f64)
}

fn blocks() -> String {
    let mut lines = PAGE.lines();
    let mut commands = String::new();
    while lines.by_ref().any(|line| line == "```sh") {
        for line in lines.by_ref().take_while(|line| *line != "```") {
            commands.push_str(line);
            commands.push('\n');
        }
    }
    commands
}
