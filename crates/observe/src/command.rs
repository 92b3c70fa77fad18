//! The command that a session starts and watches.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktax_host::open_files::with_limit_from_start;
use ticktax_model::recording::CommandReport;

use crate::error::ObserveError;

/// Maximum number of checks whether a command has exited after it received a signal.
const CHECKS: u32 = 40;
const MOMENT: Duration = Duration::from_millis(25);

/// A command that the session started.
#[derive(Debug)]
pub(crate) struct Audited {
    argv: Vec<String>,
    child: Child,
    end: End,
}

#[derive(Clone, Copy, Debug)]
enum End {
    NotYet,
    Known(ExitStatus),
    /// Unknown, because another part of this process has already collected the exit status.
    Unknown,
}

impl Audited {
    pub(crate) fn start(argv: &[OsString]) -> Result<Self, ObserveError> {
        let refused = |command: String, kind| ObserveError::Command { command, kind };
        let Some((program, arguments)) = argv.split_first() else {
            return Err(refused(String::new(), io::ErrorKind::NotFound));
        };
        let child = with_limit_from_start(|| Command::new(program).args(arguments).spawn())
            .map_err(|error| refused(program.to_string_lossy().into_owned(), error.kind()))?;
        let argv = argv
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        Ok(Self {
            argv,
            child,
            end: End::NotYet,
        })
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(-1)
    }

    /// Returns the program's name without its directory.
    pub(crate) fn name(&self) -> String {
        let program = self.argv.first().map_or("", String::as_str);
        program.rsplit('/').next().unwrap_or(program).to_owned()
    }

    pub(crate) fn ended(&mut self) -> bool {
        if matches!(self.end, End::NotYet) {
            self.end = match self.child.try_wait() {
                Ok(None) => End::NotYet,
                Ok(Some(status)) => End::Known(status),
                Err(_) => End::Unknown,
            };
        }
        !matches!(self.end, End::NotYet)
    }

    /// Forwards the signal that ended the session to the command. First gives the command time to
    /// exit without it, because a Ctrl-C at the terminal also reaches the command. If the command
    /// survives the signal, it is left running.
    pub(crate) fn interrupt(&mut self, signal: i32) {
        if self.ends_in_time() {
            return;
        }
        if let (Ok(signal), Ok(pid)) = (Signal::try_from(signal), i32::try_from(self.child.id())) {
            // Only this process waits for the child, so the child's process ID cannot have been
            // reused. The call fails if the child has already exited.
            let _ = kill(Pid::from_raw(pid), signal);
            self.ends_in_time();
        }
    }

    fn ends_in_time(&mut self) -> bool {
        (0..CHECKS).any(|attempt| {
            if attempt > 0 {
                thread::sleep(MOMENT);
            }
            self.ended()
        })
    }

    /// Returns the command's arguments, process ID and exit status.
    pub(crate) fn report(&mut self) -> CommandReport {
        self.ended();
        let code = |status: ExitStatus| {
            status
                .code()
                .or_else(|| status.signal().map(|signal| 128 + signal))
        };
        CommandReport {
            argv: self.argv.clone(),
            pid: self.pid(),
            exit: match self.end {
                End::Known(status) => code(status),
                End::NotYet | End::Unknown => None,
            },
        }
    }
}
