//! Runs a shell command before each run, for example to empty a cache.

use std::io;
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;

use super::arms::label;
use super::{MOMENT, TryError};

/// Environment variable that names the arm of the next run.
const ARM: &str = "TICKTAX_ARM";

/// Runs `command` in a shell until it exits. Stops it if `asked` returns a signal, and returns the
/// signal.
///
/// # Errors
/// Returns an error if the shell cannot be started or the command fails.
pub(super) fn run(
    command: &str,
    arm: usize,
    shows_output: bool,
    asked: &dyn Fn() -> Option<i32>,
) -> Result<Option<i32>, TryError> {
    let refused = |error: io::Error| TryError::Start {
        command: command.to_owned(),
        why: error.kind().to_string(),
    };
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).env(ARM, label(arm));
    // A separate process group makes it possible to stop the command with its children.
    shell.stdin(Stdio::null()).process_group(0);
    if !shows_output {
        shell.stdout(Stdio::null()).stderr(Stdio::null());
    }
    let mut child = shell.spawn().map_err(refused)?;
    loop {
        match child.try_wait().map_err(refused)? {
            Some(status) if status.success() => return Ok(None),
            Some(status) => return Err(failed(command, status)),
            None => {}
        }
        if let Some(signal) = asked() {
            let group = i32::try_from(child.id()).map(Pid::from_raw);
            if let (Ok(group), Ok(signal)) = (group, Signal::try_from(signal)) {
                // The group exists until its leader is reaped below.
                let _ = killpg(group, signal);
            }
            child.wait().map_err(refused)?;
            return Ok(Some(signal));
        }
        std::thread::sleep(MOMENT / 10);
    }
}

fn failed(command: &str, status: ExitStatus) -> TryError {
    TryError::Before {
        command: command.to_owned(),
        ended: status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn a_command_can_succeed_fail_and_be_stopped() {
        let never = || None;
        assert_eq!(
            run("test \"$TICKTAX_ARM\" = B", 1, false, &never).unwrap(),
            None
        );
        let error = run("exit 3", 0, false, &never).unwrap_err().to_string();
        assert!(
            error.contains("`--before exit 3` failed (exit status: 3)"),
            "{error}"
        );
        // The shell's child must be stopped too, or the test would take a minute.
        let stopped = run("sleep 60; true", 0, false, &|| Some(15)).unwrap();
        assert_eq!(stopped, Some(15));
    }
}
