//! A process that waits for the end of a run, and then puts back what that left.
//!
//! The run is its parent, and holds one end of a pipe; the kernel closes it however the run ends, by SIGKILL too.
//! Whoever waits at the other end sends no signal to anybody, and changes nothing as long as the journal is locked.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use ticktax_model::knob::UndoStatement;

use crate::error::KnobError;
use crate::session::undo;
use crate::system::System;

/// How often the journal is tried, 5 s in all: a run that ends closes the pipe a moment before its journal. Whoever
/// has it after that is another run, which has put everything back as it began.
const TRIES: u32 = 250;
const MOMENT: Duration = Duration::from_millis(20);

/// Waits until `parent` has ended, then puts back what it left.
///
/// # Errors
/// Another run changes settings meanwhile ([`KnobError::Busy`]), or the journal cannot be used.
pub fn stand_by(
    mut parent: impl Read,
    system: &System,
    journal: &Path,
) -> Result<UndoStatement, KnobError> {
    let mut byte = [0];
    // Nothing is ever written; an error is an end, too.
    while matches!(parent.read(&mut byte), Ok(1..)) {}
    for _ in 0..TRIES {
        match undo(system, journal) {
            Err(KnobError::Busy { .. }) => sleep(MOMENT),
            done => return done,
        }
    }
    undo(system, journal)
}

/// The watchdog of a run. Dropping it waits for it: it has nothing to do where the run has put everything back, and
/// has closed its journal.
#[derive(Debug)]
pub struct Watchdog {
    child: Child,
    /// What tells it that this process lives.
    alive: Option<ChildStdin>,
}

impl Watchdog {
    /// Starts `command`, which calls [`stand_by`] with its standard input after it has written a byte to its
    /// standard output: it is in a session of its own by then, and no signal of a terminal reaches it.
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
        let told = child.stdout.take().map(|mut it| it.read_exact(&mut ready));
        let this = Self { child, alive };
        match told {
            Some(Ok(())) => Ok(this),
            Some(Err(error)) => Err(refused(&error)),
            None => Err(refused(&io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.alive.take());
        // Whatever it was, it is over.
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
    fn what_a_run_left_is_put_back_once_it_has_ended() {
        let machine = Machine::new();
        machine.put("proc/sys/vm/swappiness", "60\n");
        let journal = machine.system().path("journal");
        let system = machine.system();
        let begun = Session::begin(&system, &journal, "a test");
        let mut session = begun.unwrap().0;
        let knob = crate::registry::find("vm.swappiness").unwrap();
        let set = session.set(knob, &Target::Machine, "10", Consent::Withheld);
        set.unwrap();
        // As SIGKILL would end it: nothing runs any more, and the kernel closes the file.
        let copy = machine.system().path("copy");
        std::fs::copy(&journal, &copy).unwrap();
        std::mem::forget(session);
        let statement = stand_by(std::io::empty(), &system, &copy).unwrap();
        assert_eq!(statement.settings.len(), 1);
        assert_eq!(machine.text("proc/sys/vm/swappiness"), "60\n");
    }

    #[test]
    fn one_that_does_not_answer_is_none() {
        let answer = Watchdog::start(Command::new("true"));
        assert!(matches!(answer, Err(KnobError::Watchdog { .. })));
        let answer = Watchdog::start(Command::new("/nonexistent"));
        assert!(matches!(answer, Err(KnobError::Watchdog { .. })));
    }

    #[test]
    fn it_ends_when_nobody_needs_it_any_more() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo; cat"]);
        drop(Watchdog::start(command).unwrap());
    }
}
