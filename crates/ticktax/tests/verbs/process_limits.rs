//! Tests for ticktax under resource limits (`ulimit`). It must fail with a one-line error and exit
//! code 1, and must never be killed by a signal.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::{GAME, complaint, simulate, text};

/// Runs ticktax in a shell that first sets a limit. `limit` contains the arguments for `ulimit`.
fn limited(limit: &str, arguments: &[&str]) -> Output {
    Command::new("sh")
        .arg("-c")
        .arg(format!("ulimit {limit} && exec \"$@\""))
        .args(["sh", env!("CARGO_BIN_EXE_ticktax")])
        .args(arguments)
        .env_remove("RUST_BACKTRACE")
        .output()
        .unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn recording(folder: &Path) -> std::path::PathBuf {
    let scenario = folder.join("game.toml");
    let recording = folder.join("game.parquet");
    std::fs::write(&scenario, GAME.replace("30s", "3s")).unwrap();
    simulate(&scenario, &recording);
    recording
}

#[test]
fn a_file_beyond_the_size_limit_ends_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let recording = recording(folder.path());
    let rows = folder.path().join("trace.pftrace");
    // With `-f 8`, the limit is 4 or 8 KiB, because a block has 512 or 1,024 bytes, depending on
    // the shell.
    let arguments = ["report", path(&recording), "--perfetto", path(&rows)];
    let output = limited("-f 8", &arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let complaint = complaint(&output);
    assert!(complaint.contains("size limit"), "{complaint}");
    let left = std::fs::read_dir(folder.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn an_audited_command_inherits_the_original_limits_and_signals() {
    let shown = "ulimit -Sn; grep SigIgn /proc/self/status";
    let audit = ["audit", "--probe", "none", "--", "sh", "-c", shown];
    let output = limited("-S -n 64", &audit);
    assert!(output.status.success(), "{output:?}");
    let printed = text(&output.stdout);
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some("64"));
    let ignored = lines.next().unwrap().strip_prefix("SigIgn:").unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    let file_size = 1 << (signal_hook::consts::SIGXFSZ - 1);
    assert_eq!(ignored & file_size, 0, "{ignored:x}");
}

#[test]
fn a_small_address_space_ends_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let recording = recording(folder.path());
    let mut refused = 0;
    for mebibytes in [50, 64, 80, 100, 125, 200, 500, 2000] {
        let limit = format!("-v {}", mebibytes << 10);
        // If the limit is too low even for the program to load, the system's dynamic loader reports
        // the error.
        if !limited(&limit, &["completions", "bash"]).status.success() {
            continue;
        }
        for arguments in [
            &["audit", "--for", "50ms"][..],
            &["pace", "--for", "50ms"],
            &["report", path(&recording)],
            &["beats", path(&recording)],
        ] {
            let output = limited(&limit, arguments);
            if output.status.success() {
                continue;
            }
            refused += 1;
            assert_eq!(output.status.code(), Some(1), "{mebibytes} {output:?}");
            let complaint = complaint(&output);
            assert!(complaint.contains("ulimit -v"), "{complaint}");
        }
    }
    assert!(refused > 0, "no limit was too small");
}

#[test]
fn a_small_stack_ends_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let recording = recording(folder.path());
    let report = ["report", path(&recording)];
    for kibibytes in [512, 1023] {
        let output = limited(&format!("-s {kibibytes}"), &report);
        assert_eq!(output.status.code(), Some(1), "{kibibytes} {output:?}");
        let complaint = complaint(&output);
        assert!(complaint.contains("raise `ulimit -s`"), "{complaint}");
    }
    let output = limited("-s 1024", &report);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn undo_works_in_a_small_address_space() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("none.journal");
    let undo = ["undo", "--journal", path(&journal)];
    let unlimited = limited("-v unlimited", &undo);
    let output = limited("-v 81920", &undo);
    assert_eq!(output.status, unlimited.status, "{output:?}");
}
