//! Sweeps that are killed, interrupted, and got in each other's way.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{complaint, let_children_hear_ctrl_c, text};

const SCENARIO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../scenarios/game-server.toml"
);

/// Some 400 points of some ms each.
fn sweep(results: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktax"));
    command
        .args(["sweep", SCENARIO, "--vary", "hz=100..1000/50", "--vary"])
        .args([
            "task.game.work=1ms..4ms/1ms",
            "--vary",
            "tick=periodic,nohz-idle",
        ])
        .args(["--repeat", "3", "--results"])
        .arg(results)
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A sweep that has finished some points, and not all.
fn under_way(results: &Path) -> Child {
    let mut child = sweep(results, &["--jobs", "2"]).spawn().unwrap();
    let journal = results.with_extension("parquet.journal");
    loop {
        let lines = fs::read(&journal).map_or(0, |bytes| bytes.split(|&it| it == b'\n').count());
        if lines > 20 {
            return child;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        sleep(Duration::from_millis(5));
    }
}

/// Runs it to its end; how many points it found.
fn resume(results: &Path) -> usize {
    let output = sweep(results, &[]).output().unwrap();
    let text = text(&output.stdout);
    assert!(output.status.success(), "{text}");
    let run = text.lines().find(|line| line.starts_with("Run")).unwrap();
    run.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn uninterrupted(results: &Path) -> Vec<u8> {
    let output: Output = sweep(results, &["--jobs", "1"]).output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    fs::read(results).unwrap()
}

#[test]
fn a_sweep_that_was_killed_goes_on_and_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("x.parquet");
    for _ in 0..2 {
        let mut child = under_way(&results);
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(
            status.signal(),
            Some(9),
            "it had ended before it was killed"
        );
        assert!(!results.exists());
    }
    let found = resume(&results);
    // The first line is no point.
    assert!(found >= 19, "{found}");
    let whole = uninterrupted(&folder.path().join("whole.parquet"));
    assert!(fs::read(&results).unwrap() == whole);
    // Neither a journal nor a part of a file is left.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_sweep_that_is_interrupted_says_how_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("x.parquet");
    let_children_hear_ctrl_c();
    let child = under_way(&results);
    let pid = Pid::from_raw(child.id().try_into().unwrap());

    let second = sweep(&results, &[]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let told = text(&second.stderr);
    assert!(told.contains("another sweep is writing"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");

    kill(pid, Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(
        told.contains("the same command goes on from there"),
        "{told}"
    );
    assert!(output.stdout.is_empty());
    let kept: usize = told.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert_eq!(resume(&results), kept);
    let whole = uninterrupted(&folder.path().join("whole.parquet"));
    assert!(fs::read(&results).unwrap() == whole);
}

#[test]
fn what_makes_no_sense_is_refused_in_a_line_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("x.parquet");
    let ticktax = |arguments: &[&str], results: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ticktax"));
        command
            .arg("sweep")
            .args(arguments)
            .arg("--results")
            .arg(results);
        let output = command.output().unwrap();
        let told = complaint(&output);
        (output.status.code().unwrap(), told)
    };
    for (arguments, code, why) in [
        (
            &["none.toml"][..],
            1,
            "cannot read the scenario none.toml: no such file",
        ),
        (
            &[SCENARIO, "--vary", "colour=1"],
            2,
            "axis colour: unknown setting",
        ),
        (
            &[SCENARIO, "--vary", "hz=9x"],
            2,
            "axis hz: `9x` is not an integer",
        ),
        (
            &[SCENARIO, "--vary", "hz=9..1/1"],
            2,
            "the range `9..1/1` is empty",
        ),
        (
            &[SCENARIO, "--vary", "seed=1..1000000000/1"],
            2,
            "1000000000 points are too many",
        ),
        (
            &[SCENARIO, "--vary", "seed=1,2", "--repeat", "2"],
            2,
            "sets the same value as",
        ),
        (
            &[SCENARIO, "--best", "beauty"],
            2,
            "no numeric column `beauty`",
        ),
    ] {
        let (status, told) = ticktax(arguments, &results);
        assert_eq!(status, code, "{told}");
        assert!(told.contains(why), "{told}");
    }
    let (status, told) = ticktax(&[SCENARIO], &folder.path().join("none/x.parquet"));
    assert_eq!(status, 1);
    assert!(told.contains("no such file or folder"), "{told}");
    let (_, told) = ticktax(&[SCENARIO], Path::new("/dev/null"));
    assert!(told.contains("it is a device or pipe"), "{told}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn points_that_cannot_be_are_told_and_the_code_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("x.parquet");
    for _ in 0..2 {
        let output = Command::new(env!("CARGO_BIN_EXE_ticktax"))
            .args([
                "sweep",
                SCENARIO,
                "--vary",
                "policy=fair,eevdf",
                "--vary",
                "slice=1ms,3ms",
            ])
            .arg("--results")
            .arg(&results)
            .output()
            .unwrap();
        let told = text(&output.stdout);
        assert_eq!(output.status.code(), Some(4), "{told}");
        assert!(told.contains("2 of 4 points could not be run"), "{told}");
        assert!(
            told.contains("only the policy eevdf has a configurable"),
            "{told}"
        );
    }
}
