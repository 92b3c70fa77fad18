//! Tests for sweeps that are killed, interrupted, or started twice.

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

/// Returns a command that sweeps about 400 arms. An arm takes a few ms.
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

/// Starts a sweep, and waits until some of its arms are finished.
fn running_sweep(results: &Path) -> Child {
    let mut child = sweep(results, &["--jobs", "2"]).spawn().unwrap();
    let journal = results.with_extension("parquet.journal");
    loop {
        let lines =
            fs::read(&journal).map_or(0, |bytes| bytes.split(|&byte| byte == b'\n').count());
        if lines > 20 {
            return child;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        sleep(Duration::from_millis(5));
    }
}

/// Runs the sweep until it ends. Returns how many arms earlier runs had already finished.
fn resume(results: &Path) -> usize {
    let output = sweep(results, &[]).output().unwrap();
    let text = text(&output.stdout);
    assert!(output.status.success(), "{text}");
    // The report ends the sentence with "317 were already finished".
    let words: Vec<&str> = text.split_whitespace().collect();
    let end = words.iter().position(|word| *word == "already").unwrap();
    words[end - 2].parse().unwrap()
}

fn uninterrupted(results: &Path) -> Vec<u8> {
    let output: Output = sweep(results, &["--jobs", "1"]).output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    fs::read(results).unwrap()
}

#[test]
fn a_killed_sweep_resumes_and_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("x.parquet");
    for _ in 0..2 {
        let mut child = running_sweep(&results);
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
    // The journal had more than 20 lines. The first one is a header, and the last one may be
    // incomplete.
    assert!(found >= 19, "{found}");
    let expected = uninterrupted(&folder.path().join("whole.parquet"));
    assert!(fs::read(&results).unwrap() == expected);
    // Both the journal and the partial file must be gone.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn an_interrupted_sweep_explains_how_to_resume() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("x.parquet");
    let_children_hear_ctrl_c();
    let child = running_sweep(&results);
    let pid = Pid::from_raw(child.id().try_into().unwrap());

    let second = sweep(&results, &[]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let errors = text(&second.stderr);
    assert!(errors.contains("another sweep is writing"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");

    kill(pid, Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{errors}");
    assert!(
        errors.contains("the same command again to resume"),
        "{errors}"
    );
    assert!(output.stdout.is_empty());
    let kept: usize = errors.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert_eq!(resume(&results), kept);
    let expected = uninterrupted(&folder.path().join("whole.parquet"));
    assert!(fs::read(&results).unwrap() == expected);
}

#[test]
fn invalid_sweeps_are_refused_in_one_line_and_leave_no_files() {
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
        let errors = complaint(&output);
        (output.status.code().unwrap(), errors)
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
            "colour: unknown setting",
        ),
        (
            &[SCENARIO, "--vary", "hz=9x"],
            2,
            "hz: `9x` is not an integer",
        ),
        (
            &[SCENARIO, "--vary", "hz=9..1/1"],
            2,
            "the range `9..1/1` ends before it starts",
        ),
        (
            &[SCENARIO, "--vary", "seed=1..1000000000/1"],
            2,
            "seed: the range `1..1000000000/1` has more than 1000000 values",
        ),
        (
            &[SCENARIO, "--vary", "seed=1,2", "--repeat", "2"],
            2,
            "seed: it is already varied",
        ),
        (
            &[SCENARIO, "--best", "beauty"],
            2,
            "no numeric column `beauty`",
        ),
    ] {
        let (status, errors) = ticktax(arguments, &results);
        assert_eq!(status, code, "{errors}");
        assert!(errors.contains(why), "{errors}");
    }
    let (status, errors) = ticktax(&[SCENARIO], &folder.path().join("none/x.parquet"));
    assert_eq!(status, 1);
    assert!(errors.contains("no such file or directory"), "{errors}");
    let (_, errors) = ticktax(&[SCENARIO], Path::new("/dev/null"));
    assert!(errors.contains("it is a device or pipe"), "{errors}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn invalid_points_are_reported_and_set_the_exit_code() {
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
        let page = text(&output.stdout);
        assert_eq!(output.status.code(), Some(4), "{page}");
        assert!(page.contains("2 of 4 combinations failed"), "{page}");
        assert!(
            page.contains("slice=1ms: a slice can only be set for the policy"),
            "{page}"
        );
    }
}
