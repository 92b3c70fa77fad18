//! Helpers shared by the command's tests.

#![allow(dead_code, reason = "each test binary uses a part of this")]

pub(crate) mod incidents;
pub(crate) mod traffic;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGINT;
use signal_hook::flag::register_conditional_default;

/// A scenario with a loop disturbed by a daemon, a disk and late wake-ups. The loop's period is not
/// a multiple of the tick period, so the result does not depend on the loop's phase relative to the
/// tick.
pub(crate) const GAME: &str = r#"
length = "30s"
seed = 7
[machine]
cpus = 1
hz = 250
policy = "fair"
timers = "high-resolution"
tick = "nohz-idle"
costs = { tick = "6us", timer = "4us" }
[[task]]
name = "game"
cpu = 0
program = [{ late = "60us ± 20us" }, { pace = { period = "25.3ms" } }, "frame", { work = "3ms ± 200us" }]
[[task]]
name = "daemon"
cpu = 0
program = [{ arrive = "exp 30ms" }, { work = "exp 2ms" }]
[[task]]
name = "poller"
cpu = 0
program = [{ sleep = "11ms" }, { work = "100us" }]
[[interrupt]]
name = "disk"
interval = "exp 5ms"
cost = "12us"
softirq = "20us"
"#;

pub(crate) fn ticktax(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ticktax"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs `verb` with each list of arguments. Checks that it exits with code 2, prints nothing to
/// standard output, and prints the hint that goes with the arguments.
pub(crate) fn refused_as_usage(verb: &[&str], cases: &[(&[&str], &str)]) {
    for (arguments, hint) in cases {
        let output = ticktax(&[verb, arguments].concat());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        let is_clear = errors.contains(hint) && !errors.contains("os error");
        assert!(is_clear, "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

pub(crate) fn simulate(scenario: &Path, recording: &Path) {
    let (scenario, recording) = (scenario.to_str().unwrap(), recording.to_str().unwrap());
    let output = ticktax(&[
        "sim",
        "--load",
        scenario,
        "--resample",
        "1",
        "--save",
        recording,
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns a command's error message. Panics if it is not a single line.
pub(crate) fn complaint(output: &Output) -> String {
    let text = text(&output.stderr);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains("os error"), "{text}");
    text
}

/// Makes child processes receive Ctrl-C even if a shell runs the tests in the background. Such a
/// shell makes the tests ignore SIGINT, which child processes would inherit. They do not inherit a
/// handler, so this installs one that performs the default action.
pub(crate) fn let_children_hear_ctrl_c() {
    register_conditional_default(SIGINT, Arc::new(AtomicBool::new(true))).unwrap();
}
