//! What the tests of the command have in common.

#![allow(dead_code, reason = "each program of tests needs a part of this")]

pub(crate) mod incidents;
pub(crate) mod traffic;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGINT;
use signal_hook::flag::register_conditional_default;

/// A loop that a daemon and a disk disturb, and whose wakeups are late. Its frames wander through the
/// tick: where they keep to a phase of it, all depends on which.
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

/// Runs the command to its end.
pub(crate) fn ticktax(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ticktax"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Checks that arguments after `verb` exit with 2, print nothing, and say what would be right.
pub(crate) fn refused_as_usage(verb: &[&str], cases: &[(&[&str], &str)]) {
    for (arguments, hint) in cases {
        let output = ticktax(&[verb, arguments].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        let is_clear = said.contains(hint) && !said.contains("os error");
        assert!(is_clear, "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

/// Saves the recording of a scenario as `recording`.
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

/// What a stream said.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The one line that a failure is allowed.
pub(crate) fn complaint(output: &Output) -> String {
    let text = text(&output.stderr);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains("os error"), "{text}");
    text
}

/// Lets children hear Ctrl-C also where these tests run in a shell's background: that ignores it,
/// which children inherit. A handler is not inherited; this one does what is done without one.
pub(crate) fn let_children_hear_ctrl_c() {
    register_conditional_default(SIGINT, Arc::new(AtomicBool::new(true))).unwrap();
}
