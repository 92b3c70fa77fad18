//! Starts a command that does not run until all its settings have been applied.
//!
//! To do so, this starts another ticktax with the arguments in [`Starter`]. The new process writes
//! a byte to its standard input, which is a socket, and waits for a byte in return. Then it execs
//! the command. If the socket is closed instead, the process exits.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktax_host::{ChildrenUsage, Proc};
use ticktax_model::Nanos;
use ticktax_observe::ObserveError;
use ticktax_probes::clock::now;

use super::TryError;

/// How to start the process that first waits and then becomes the command.
#[derive(Clone, Debug)]
pub struct Starter {
    /// Path of the ticktax executable.
    pub program: PathBuf,
    /// Arguments before `--` and the command.
    pub arguments: Vec<OsString>,
    /// Whether to show the command's output instead of discarding it.
    pub show_output: bool,
}

/// When a command exited, and how.
pub(super) struct CommandEnd {
    /// When the thread waiting for the command noticed that it had exited.
    pub(super) at: Nanos,
    /// The command's exit status, or `None` if it is unknown.
    pub(super) status: Option<ExitStatus>,
}

/// A command that is waiting to be released, or that is already running.
pub(super) struct HeldCommand {
    pid: i32,
    socket: UnixStream,
    end: Receiver<CommandEnd>,
    /// CPU time that the process used before it exec'd the command.
    before: Nanos,
    /// Resources used by those of ticktax's children that exited before the command was started.
    children_before: ChildrenUsage,
}

impl HeldCommand {
    /// Starts the process that will later become `command`.
    pub(super) fn start(starter: &Starter, command: &[OsString]) -> Result<Self, TryError> {
        let refused = |error: &io::Error| TryError::Start {
            command: shown(command),
            why: error.kind().to_string(),
        };
        let (mut socket, theirs) = UnixStream::pair().map_err(|error| refused(&error))?;
        let mut starting = Command::new(&starter.program);
        starting.args(&starter.arguments).arg("--").args(command);
        starting.stdin(OwnedFd::from(theirs));
        if !starter.show_output {
            starting.stdout(Stdio::null()).stderr(Stdio::null());
        }
        let children_before = ChildrenUsage::now();
        let mut child = starting.spawn().map_err(|error| refused(&error))?;
        // `starting` holds the child's end of the socket. Close it in this process.
        drop(starting);
        let pid = i32::try_from(child.id()).unwrap_or(-1);
        let (tell, end) = channel();
        let wait = move || {
            let status = child.wait().ok();
            let at = now();
            // This fails only if the receiver is gone, so ignore the error.
            let _ = tell.send(CommandEnd { at, status });
        };
        let waiting = std::thread::Builder::new().spawn(wait);
        waiting.map_err(|error| refused(&error))?;
        let ready = socket.read_exact(&mut [0]);
        ready.map_err(|error| refused(&error))?;
        Ok(Self {
            pid,
            socket,
            end,
            before: Nanos::ZERO,
            children_before,
        })
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Releases the command. Returns when it was released.
    pub(super) fn release(&mut self) -> Nanos {
        let used = Proc::default().usage(&[self.pid]);
        self.before = used.map_or(Nanos::ZERO, |used| {
            used.on_cpu.unwrap_or(used.user + used.system)
        });
        let begin = now();
        // Ignore errors: if the process has exited, the thread that waits for it will notice.
        let _ = self.socket.write_all(&[1]);
        begin
    }

    /// Waits at most `time` for the command to exit. Returns `None` if it is still running.
    pub(super) fn wait(&self, time: Duration) -> Option<CommandEnd> {
        match self.end.recv_timeout(time) {
            Ok(end) => Some(end),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Self::abandoned()),
        }
    }

    /// Returns a [`CommandEnd`] with an unknown exit status, for a command that ticktax no longer
    /// waits for.
    pub(super) fn abandoned() -> CommandEnd {
        CommandEnd {
            at: now(),
            status: None,
        }
    }

    /// Returns the resources used by the command and by those of its children that it waited for.
    /// They include what ticktax used between the command's fork and its exec. This is known only
    /// once the command has exited.
    pub(super) fn usage(&self) -> ChildrenUsage {
        ChildrenUsage::now().since(&self.children_before)
    }

    /// Returns the CPU time in `usage`, without the time before the exec.
    pub(super) fn cpu_time(&self, usage: &ChildrenUsage) -> Nanos {
        (usage.user + usage.system - self.before).max(Nanos::ZERO)
    }

    /// Gives the command a second to exit, because a Ctrl-C at the terminal reaches it too. If it
    /// is still running after that, sends it `signal`. A command that ignores the signal keeps
    /// running.
    pub(super) fn interrupt(&self, signal: i32) {
        const PATIENCE: Duration = Duration::from_secs(1);
        if self.wait(PATIENCE).is_some() {
            return;
        }
        if let Ok(signal) = Signal::try_from(signal) {
            // The process has not been reaped yet, so no other process can have its PID.
            let _ = kill(Pid::from_raw(self.pid), signal);
            self.wait(PATIENCE);
        }
    }
}

/// Formats the command line for display.
pub(super) fn shown(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// Checks that a program exists and is executable. `name` is either a path, or the name of a file
/// in one of the directories in `search`, which has the format of `PATH`.
///
/// # Errors
/// Returns the error that a shell would report for the program.
pub(super) fn require_program(name: &OsStr, search: Option<&OsStr>) -> Result<(), ObserveError> {
    let refused = |kind| ObserveError::Command {
        command: name.to_string_lossy().into_owned(),
        kind,
    };
    let is_path = name.as_encoded_bytes().contains(&b'/');
    let places: Vec<PathBuf> = if is_path {
        vec![PathBuf::from(name)]
    } else {
        let folders = search.map(std::env::split_paths).into_iter().flatten();
        folders.map(|folder| folder.join(name)).collect()
    };
    let mut found = io::ErrorKind::NotFound;
    for place in places {
        match look(&place) {
            Ok(()) => return Ok(()),
            Err(io::ErrorKind::NotFound) => {}
            Err(kind) => found = kind,
        }
    }
    Err(refused(found))
}

/// Checks that `path` is a file whose mode includes execute permission.
fn look(path: &Path) -> Result<(), io::ErrorKind> {
    const MAY_RUN: u32 = 0o111;
    match fs::metadata(path) {
        Ok(facts) if facts.is_file() && facts.permissions().mode() & MAY_RUN != 0 => Ok(()),
        Ok(_) => Err(io::ErrorKind::PermissionDenied),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(io::ErrorKind::NotFound),
        Err(error) => Err(error.kind()),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::io::ErrorKind;

    use ticktax_observe::ObserveError;

    use super::require_program;

    fn kind(name: &str, search: &str) -> Option<ErrorKind> {
        match require_program(OsStr::new(name), Some(OsStr::new(search))) {
            Ok(()) => None,
            Err(ObserveError::Command { kind, .. }) => Some(kind),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes.txt");
        std::fs::write(&file, "").unwrap();
        let folder = folder.path().to_str().unwrap();
        assert_eq!(kind("sh", "/nonexistent:/bin"), None);
        assert_eq!(kind("/bin/sh", ""), None);
        assert_eq!(kind("sh", "/nonexistent"), Some(ErrorKind::NotFound));
        assert_eq!(kind("/bin/sh/x", ""), Some(ErrorKind::NotFound));
        let found = kind("notes.txt", &format!("{folder}:/bin"));
        assert_eq!(found, Some(ErrorKind::PermissionDenied));
        assert_eq!(kind(folder, ""), Some(ErrorKind::PermissionDenied));
        assert_eq!(kind("", "/bin"), Some(ErrorKind::PermissionDenied));
    }
}
