//! Tests of failures in the lab. Each one must print a one-line error and leave nothing behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktax_lab::Arch;

use crate::common::let_children_hear_ctrl_c;
use crate::fixture::{
    CLOUD, LIMIT, complaint, eventually, lab_run, lab_run_within, qemus_in, running_in, ticktax,
};

const NOBODY: u32 = 65_534;

fn one_line(complaint: &str, words: &str) {
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains(words), "{complaint}");
}

pub(crate) fn a_missing_qemu_is_a_one_line_error() {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let copy = place.path().join("ticktax");
    fs::copy(env!("CARGO_BIN_EXE_ticktax"), &copy).unwrap();
    let mut command = Command::new(&copy);
    if ticktax_host::is_root() {
        // Do not run as root, because root's QEMU is not looked up in the inherited PATH.
        command.uid(NOBODY).gid(NOBODY);
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(place.path(), all).unwrap();
    }
    let output = command
        .env("PATH", "/nonexistent")
        .env("XDG_CACHE_HOME", place.path())
        .args(["lab", "run", "--kernel", "/proc/self/exe", "--", "pace"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    one_line(&complaint(&output), "apt-get install qemu-system-x86");
}

pub(crate) fn root_starts_no_qemu_from_the_inherited_path() {
    let place = tempfile::tempdir().unwrap();
    let started = place.path().join("started");
    let script = format!("#!/bin/sh\necho > '{}'\n", started.display());
    for arch in Arch::ALL {
        let planted = place.path().join(arch.qemu());
        fs::write(&planted, &script).unwrap();
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // The installed QEMU rejects this file, which is not a kernel, and the lab fails.
    let mut command = lab_run("/proc/self/exe");
    let output = command
        .env("PATH", place.path())
        .args(["--", "pace"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(!started.exists(), "{}", complaint(&output));
}

pub(crate) fn a_missing_kernel_is_named() {
    let cache = tempfile::tempdir().unwrap();
    for (kernel, words) in [
        ("hz77", "ticktax lab build --hz 77"),
        ("./no/such/kernel", "no kernel ./no/such/kernel"),
    ] {
        let mut command = lab_run(kernel);
        let output = command
            .env("XDG_CACHE_HOME", cache.path())
            .args(["--", "pace"])
            .output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1));
        one_line(&complaint(&output), words);
    }
    let listed = ticktax()
        .env("XDG_CACHE_HOME", cache.path())
        .args(["lab", "list"])
        .output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    assert!(
        listed.starts_with("The lab's cache has no kernel"),
        "{listed}"
    );
}

pub(crate) fn verbs_that_no_guest_can_run_are_refused() {
    for (verb, words) in [
        (&["dance"][..], "unrecognized subcommand"),
        (&["schema"], "`audit` and `pace`"),
        (&["audit", "--save", "x"], "before `--`"),
        (&["audit", "--pid", "1"], "no other programs"),
        (&["pace", "--pid", "1"], "no other programs"),
        (&["pace", "--comm", "init"], "no other programs"),
    ] {
        let output = lab_run("hz250").arg("--").args(verb).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{verb:?}");
        one_line(&complaint(&output), words);
    }
    for (arguments, code, words) in [
        (&["--case", "nothing"][..], 1, "frame-rate-vs-hz, idle"),
        (
            &["--case", "silent-rtc"],
            1,
            "choose frame-rate-vs-hz and idle",
        ),
        (&["--case", "idle-cost-vs-hz", "--tcg"], 2, "--icount"),
        (
            &[
                "--smp",
                "2",
                "--vary",
                "kernel=/proc/self/exe",
                "--",
                "pace",
            ],
            2,
            "use --tcg",
        ),
        (
            &["--case", "frame-rate-vs-hz", "--vary", "cmdline=nohz=off"],
            2,
            "sets its own boot parameters",
        ),
        (
            &["--vary", "tick=periodic", "--", "pace"],
            2,
            "hz, kernel, cmdline",
        ),
        (
            &["--vary", "cmdline=,nohz=off", "--", "pace"],
            2,
            "no kernel to boot",
        ),
    ] {
        let mut command = ticktax();
        let output = command.args(["lab", "compare"]).args(arguments).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        one_line(&complaint(&output), words);
    }
}

pub(crate) fn hidden_verbs_only_run_in_guests() {
    let replay = "lab-replay frame-rate-vs-hz --for 1s --save x";
    for (verb, words) in [
        ("lab-guest", "only runs as PID 1"),
        (replay, "only runs in lab guests"),
    ] {
        let output = ticktax().args(verb.split(' ')).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        one_line(&complaint(&output), words);
    }
}

pub(crate) fn a_kernel_panic_is_a_one_line_error() {
    let mut command = lab_run(CLOUD);
    // Without an init process, a guest looks for a disk. It does not find one, so its kernel
    // panics.
    let output = command
        .args(["--cmdline", "rdinit=/nonexistent", "--", "pace"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    one_line(&complaint(&output), "panicked: ");
}

pub(crate) fn a_hanging_guest_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = lab_run_within("2s", CLOUD);
    let output = command
        .env("TMPDIR", folder.path())
        .args(["--", "pace", "--for", "1h"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    one_line(&complaint(&output), "stopped the guest after 2 s");
    assert_eq!(running_in(folder.path()), [""; 0]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

pub(crate) fn the_first_failing_guest_stops_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = ticktax();
    command.args(["lab", "compare", "--jobs", "2", "--vary"]);
    command.arg(format!("kernel={CLOUD}"));
    // The first guest would run until the time limit. The second one fails because it has no init
    // process, and its failure must end the first one.
    command.args(["--vary", "cmdline=,rdinit=/nonexistent", "--limit", LIMIT]);
    let output = command
        .env("TMPDIR", folder.path())
        .args(["--", "pace", "--for", "10h"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    one_line(&complaint(&output), "panicked: ");
    assert_eq!(running_in(folder.path()), [""; 0]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Starts `lab run`, and waits until its guest is running.
fn running(folder: &Path) -> Child {
    let mut command = lab_run(CLOUD);
    let child = command
        .env("TMPDIR", folder)
        .args(["--", "pace", "--for", "1h"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(
        eventually(|| !running_in(folder).is_empty()),
        "QEMU did not start"
    );
    child
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

pub(crate) fn ctrl_c_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let_children_hear_ctrl_c();
    let child = running(folder.path());
    kill(pid(&child), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    one_line(&complaint(&output), "nothing is left running");
    assert_eq!(running_in(folder.path()), [""; 0]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

pub(crate) fn a_killed_qemu_is_a_one_line_error() {
    let folder = tempfile::tempdir().unwrap();
    let child = running(folder.path());
    for (qemu, _) in qemus_in(folder.path()) {
        kill(qemu, Signal::SIGKILL).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    one_line(&complaint(&output), "without a result");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

pub(crate) fn a_killed_lab_leaves_no_qemu_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = running(folder.path());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        eventually(|| running_in(folder.path()).is_empty()),
        "QEMU goes on"
    );
}
