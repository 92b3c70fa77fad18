//! Other tools, as long as they are needed.

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

/// A tool that may be installed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    /// Which package of Debian and Ubuntu has it.
    pub(crate) package: &'static str,
}

impl Tool {
    /// Where it is; `None` after saying that it is missing, and what would help.
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

/// Where a program of this name is that may be called by it.
pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// A command that needs tracefs where it is usually mounted. Where it is not, the command gets a
/// mount namespace of its own, so that nothing is left behind on the machine.
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

/// A peer at work. Dropping it ends it, and nothing but it.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    name: String,
    /// Standard output and standard error, read as they come: a full pipe would hold it up.
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

    /// An error with what it said once it has ended.
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

    /// Asks it to end as Ctrl-C does; returns all that it said.
    pub(crate) fn interrupt(mut self) -> Result<String, String> {
        self.signal(Signal::SIGINT);
        self.finish(Duration::from_secs(30))
    }

    /// Waits for its end; returns all that it said, on standard output first.
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
        // A process that has ended keeps its number until it is waited for, which only we do.
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

/// The length of a file in bytes; 0 where there is none.
pub(crate) fn length(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}
