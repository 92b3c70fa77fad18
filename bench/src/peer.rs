//! Finds, starts and stops third-party tools.

use std::env;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktax_model::Nanos;
use ticktax_probes::clock::now;

/// A third-party tool, installed or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    /// Name of the Debian and Ubuntu package that contains the tool.
    pub(crate) package: &'static str,
}

impl Tool {
    /// Returns the tool's path. If the tool is missing, prints how to install it and returns
    /// `None`.
    pub(crate) fn find(self) -> Option<PathBuf> {
        let found = in_path(self.program);
        if found.is_none() {
            println!(
                "\n{} is not installed, its row is left out; `apt install {}` brings it.",
                self.program, self.package
            );
        }
        found
    }
}

/// Finds a program in the directories listed in `PATH`.
pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Creates a command for a program that expects tracefs at `/sys/kernel/tracing`. If tracefs is not
/// mounted there, the command mounts it in a separate mount namespace, which leaves the machine
/// unchanged.
pub(crate) fn with_tracefs(program: &Path) -> Command {
    if Path::new("/sys/kernel/tracing/events/sched").is_dir() {
        return Command::new(program);
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg("mount -t tracefs nodev /sys/kernel/tracing && exec \"$0\" \"$@\"");
    command.arg(program);
    command
}

/// A running third-party tool. Dropping it kills the tool's process, but not any processes that the
/// tool has started.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    name: String,
    /// Threads that read the tool's standard output and standard error. Otherwise, a full pipe
    /// would block the tool.
    readers: Vec<JoinHandle<String>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        let name = command.get_program().display().to_string();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{name} does not start: {error}"))?;
        let out = child.stdout.take().map(reader);
        let err = child.stderr.take().map(reader);
        Ok(Self {
            child,
            name,
            readers: out.into_iter().chain(err).collect(),
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns an error with the tool's output if the tool has exited.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        if let Ok(None) = self.child.try_wait() {
            return Ok(());
        }
        let said = self.finish(Duration::from_secs(1))?;
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        Err(format!(
            "{} ended: {}",
            self.name,
            last.unwrap_or("it said nothing")
        ))
    }

    /// Sends SIGINT to the tool, as Ctrl-C does, and waits until the tool exits. Returns its
    /// complete output.
    pub(crate) fn interrupt(mut self) -> Result<String, String> {
        self.signal(Signal::SIGINT);
        self.finish(Duration::from_secs(30))
    }

    /// Waits until the tool exits and returns its complete output, standard output first. Returns
    /// an error if the tool is still running after `at_most`.
    pub(crate) fn finish(&mut self, at_most: Duration) -> Result<String, String> {
        let end = now() + Nanos(i64::try_from(at_most.as_nanos()).unwrap_or(i64::MAX));
        loop {
            let ended = self.child.try_wait();
            if ended.is_ok_and(|status| status.is_some()) {
                break;
            }
            if now() > end {
                return Err(format!("{} does not end within {at_most:?}", self.name));
            }
            thread::sleep(Duration::from_millis(5));
        }
        let readers = self.readers.drain(..);
        Ok(readers
            .map(|reader| reader.join().unwrap_or_default())
            .collect())
    }

    fn signal(&mut self, signal: Signal) {
        // The PID still belongs to the tool: only this type reaps the process, and an exited
        // process keeps its PID until it is reaped.
        let running = self.child.try_wait().is_ok_and(|status| status.is_none());
        if let Ok(pid) = i32::try_from(self.child.id())
            && running
        {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

fn reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Returns the length of a file in bytes, or 0 if the file does not exist.
pub(crate) fn length(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}
