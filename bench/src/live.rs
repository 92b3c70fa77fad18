//! Code shared by the examples that measure this machine: the ticktax command, a paced loop, and
//! CPU hogs.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, io, thread};

use ticktax_host::own_thread_cpu_time;
use ticktax_model::Nanos;
use ticktax_probes::clock::now;

/// Returns the path of the release build of `ticktax`, which is one directory above the examples.
///
/// # Errors
/// Returns an error if the file does not exist.
pub fn tool() -> Result<PathBuf, String> {
    let own = env::current_exe().map_err(|error| error.to_string())?;
    let beside = own.parent().and_then(Path::parent);
    let tool = beside.map(|folder| folder.join("ticktax"));
    tool.filter(|tool| tool.is_file())
        .ok_or_else(|| "build it first: cargo build --release -p ticktax".to_owned())
}

/// Runs a command and returns its standard output.
///
/// # Errors
/// Returns an error if the command cannot be run or if it fails. If it fails, the message contains
/// what the command wrote to standard error.
pub fn printed(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// A loop that works and then sleeps until the next frame is due.
#[derive(Clone, Copy, Debug)]
pub struct PacedLoop {
    /// Frames per second.
    pub rate: u32,
    /// CPU time per frame, in µs.
    pub work: u32,
    /// Whether frames are due on a fixed grid. If not, each frame is due one period after the
    /// previous one started, so delays accumulate.
    pub grid: bool,
}

impl PacedLoop {
    /// Formats the loop as command-line arguments. [`Self::parse`] is the inverse.
    pub fn arguments(self) -> [String; 3] {
        [self.rate, self.work, u32::from(self.grid)].map(|number| number.to_string())
    }

    /// Parses the arguments that [`Self::arguments`] returns. Returns `None` if they are incomplete
    /// or invalid.
    pub fn parse(words: &[String]) -> Option<Self> {
        let number = |place: usize| words.get(place)?.parse().ok();
        Some(Self {
            rate: number(0)?,
            work: number(1)?,
            grid: number(2)? == 1,
        })
    }

    /// Formats the loop as a label for tables.
    pub fn words(self) -> String {
        let rule = if self.grid { "grid" } else { "remaining" };
        format!("{}/s, {} ms, {rule}", self.rate, f64::from(self.work) / 1e3)
    }

    /// Runs the loop for `length`.
    pub fn run(self, length: Nanos) {
        let period = Nanos(1_000_000_000 / i64::from(self.rate.max(1)));
        let end = now() + length;
        let mut due = now();
        while due < end {
            let began = own_thread_cpu_time();
            while own_thread_cpu_time() - began < Nanos(i64::from(self.work) * 1_000) {}
            let from = if self.grid {
                due
            } else {
                due.max(now() - period)
            };
            due = from + period;
            let left = due - now();
            thread::sleep(Duration::from_nanos(u64::try_from(left.0).unwrap_or(0)));
            due = if self.grid {
                due.max(now() - period)
            } else {
                now()
            };
        }
    }
}

/// Starts `stress-ng` with `count` CPU hogs that run for `seconds`. The command `by_way_of` starts
/// it, such as `setsid --wait` to put the hogs in a separate session.
///
/// # Errors
/// Returns an error if the command cannot be started.
pub fn computing(by_way_of: &[&str], count: u32, seconds: u32) -> io::Result<Child> {
    let mut words = by_way_of.iter().chain(&["stress-ng"]);
    let mut command = Command::new(words.next().unwrap_or(&"stress-ng"));
    command.args(words).args(["--quiet", "--cpu"]);
    let child = command
        .args([
            count.to_string(),
            "--timeout".to_owned(),
            seconds.to_string(),
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    thread::sleep(Duration::from_secs(1));
    Ok(child)
}
