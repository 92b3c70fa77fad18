//! A process that waits for the end of a run, and then restores what the run left.
//!
//! The run is its parent and holds one end of a pipe. The kernel closes the pipe however the run
//! ends, even by SIGKILL. The watchdog sends no signals, and changes nothing while the journal is
//! locked.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use ticktax_model::knob::UndoStatement;

use crate::error::KnobError;
use crate::session::undo;
use crate::system::System;

/// Number of attempts to open the journal, 5 s in total: an ending run closes the pipe shortly
/// before its journal. A longer lock belongs to another run, which restored everything when it
/// started.
const TRIES: u32 = 250;
const MOMENT: Duration = Duration::from_millis(20);

/// Waits until `parent` has ended, then restores what it left.
///
/// # Errors
/// Another run is changing settings ([`KnobError::Busy`]), or the journal cannot be used.
pub fn stand_by(
    mut parent: impl Read,
    system: &System,
    journal: &Path,
) -> Result<UndoStatement, KnobError> {
    let mut byte = [0];
    // The parent never writes. An error also means that it has ended.
    while matches!(parent.read(&mut byte), Ok(1..)) {}
    for _ in 0..TRIES {
        match undo(system, journal) {
            Err(KnobError::Busy { .. }) => sleep(MOMENT),
            done => return done,
        }
    }
    undo(system, journal)
}

/// The watchdog of a run. Dropping it waits for its end. It has nothing to do if the run has
/// restored everything and closed its journal.
#[derive(Debug)]
pub struct Watchdog {
    child: Child,
    /// Open pipe that shows the watchdog that this process is alive.
    alive: Option<ChildStdin>,
}

impl Watchdog {
    /// Starts `command`, which must write a byte to its standard output and then call [`stand_by`]
    /// with its standard input. By then it must run in its own session, so that no signal from a
    /// terminal reaches it.
    ///
    /// # Errors
    /// It does not start.
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

    /// Process id of the watchdog.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.alive.take());
        // Its exit status does not matter.
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
        // Simulates SIGKILL: nothing else runs, and the kernel closes the file.
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
