//! `docs/tutorial.md`, as a reader follows it: every block is run, and what it prints must name the
//! culprit.
//!
//! It traces the kernel and needs two CPUs; where it may not, it is reported as ignored, by name.

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
    let there = |tool: &&str| Command::new(tool).arg("--version").output().is_ok();
    let can = traced && cpus > 1 && tools.iter().all(there);
    let trial = Trial::test(
        "root::the_tutorial_names_the_culprit_and_proves_it",
        tutorial,
    );
    let trials = vec![trial.with_ignored_flag(!can)];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn tutorial() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let at = folder.path();
    // What it starts ends with its shell.
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
    for (file, words) in [
        ("lag.txt", &["WHO MADE IT WAIT", "backupd"][..]),
        ("beats.txt", &["backupd"]),
        ("time.txt", &["backupd"]),
        ("proof.txt", &["waited, per second", "calm.parquet"]),
    ] {
        let text = fs::read_to_string(at.join(file))?;
        for word in words {
            if !text.contains(word) {
                return Err(format!("{word} is not in {file}:\n{text}").into());
            }
        }
    }
    Ok(())
}

/// The commands of the page, in its order.
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
