//! The watchdog: a process that waits until a session's process exits, and then restores the
//! settings that the session left changed.
//!
//! The watchdog is a child of the session's process and reads from a pipe that the parent keeps
//! open. When the parent exits for any reason, even SIGKILL, the kernel closes the pipe. The
//! watchdog sends no signals, and changes nothing while another process holds the lock on the
//! journal.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use ticktax_model::knob::UndoStatement;

use crate::error::KnobError;
use crate::session::undo;
use crate::system::System;

/// Number of attempts to lock the journal. At [`MOMENT`] apart, they take 5 s in total. One attempt
/// isn't enough, because when a process exits, the kernel closes its pipe shortly before its
/// journal. If the journal stays locked for longer than 5 s, a new session has started and has
/// already restored the settings.
const TRIES: u32 = 250;
const MOMENT: Duration = Duration::from_millis(20);

/// Waits until the pipe `parent` closes, and then restores the settings that the parent left
/// changed.
///
/// # Errors
/// Returns [`KnobError::Busy`] if another session is changing settings, or a different error if the
/// journal cannot be used.
pub fn stand_by(
    mut parent: impl Read,
    system: &System,
    journal: &Path,
) -> Result<UndoStatement, KnobError> {
    let mut byte = [0];
    // The parent never writes. An error and the end of the pipe both mean that it has exited.
    while matches!(parent.read(&mut byte), Ok(1..)) {}
    for _ in 0..TRIES {
        match undo(system, journal) {
            Err(KnobError::Busy { .. }) => sleep(MOMENT),
            done => return done,
        }
    }
    undo(system, journal)
}

/// A running watchdog. Dropping this closes the pipe and waits until the watchdog has exited.
/// Restore all settings and close the journal first, so that the watchdog has nothing left to do.
#[derive(Debug)]
pub struct Watchdog {
    child: Child,
    /// The pipe to the watchdog. It stays open until this is dropped or the process exits.
    alive: Option<ChildStdin>,
}

impl Watchdog {
    /// Starts a watchdog. `command` must start a new session (setsid), so that signals from a
    /// terminal do not reach it. It must then write a byte to standard output, and call
    /// [`stand_by`] with its standard input.
    ///
    /// # Errors
    /// Returns an error if the watchdog does not start.
    pub fn start(mut command: Command) -> Result<Self, KnobError> {
        let refused = |error: &io::Error| KnobError::Watchdog {
            why: error.kind().to_string(),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| refused(&error))?;
        let alive = child.stdin.take();
        let mut ready = [0];
        let answered = child
            .stdout
            .take()
            .map(|mut output| output.read_exact(&mut ready));
        let this = Self { child, alive };
        match answered {
            Some(Ok(())) => Ok(this),
            Some(Err(error)) => Err(refused(&error)),
            None => Err(refused(&io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Returns the PID of the watchdog.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.alive.take());
        // The watchdog's exit status doesn't matter.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{Watchdog, stand_by};
    use crate::error::KnobError;
    use crate::fixture::Machine;
    use crate::session::{Consent, Session};
    use crate::target::Target;

    #[test]
    fn settings_that_a_killed_run_left_are_restored() {
        let machine = Machine::new();
        machine.put("proc/sys/vm/swappiness", "60\n");
        let journal = machine.system().path("journal");
        let system = machine.system();
        let begun = Session::begin(&system, &journal, "a test");
        let mut session = begun.unwrap().0;
        let knob = crate::registry::find("vm.swappiness").unwrap();
        let set = session.set(knob, &Target::Machine, "10", Consent::Withheld);
        set.unwrap();
        // After SIGKILL, a session does nothing more, and the kernel closes its files, which
        // releases its lock. The session that is forgotten here keeps its lock, so use a copy of
        // the journal.
        let copy = machine.system().path("copy");
        std::fs::copy(&journal, &copy).unwrap();
        std::mem::forget(session);
        let statement = stand_by(std::io::empty(), &system, &copy).unwrap();
        assert_eq!(statement.settings.len(), 1);
        assert_eq!(machine.text("proc/sys/vm/swappiness"), "60\n");
    }

    #[test]
    fn a_command_that_does_not_answer_is_refused() {
        let answer = Watchdog::start(Command::new("true"));
        assert!(matches!(answer, Err(KnobError::Watchdog { .. })));
        let answer = Watchdog::start(Command::new("/nonexistent"));
        assert!(matches!(answer, Err(KnobError::Watchdog { .. })));
    }

    #[test]
    fn the_watchdog_ends_when_dropped() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo; cat"]);
        drop(Watchdog::start(command).unwrap());
    }
}
