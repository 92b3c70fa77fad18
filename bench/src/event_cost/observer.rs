//! Starts and stops each observer, and counts the context switches that it saw.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use ticktax_trace::Output;

use super::floor::Floor;
use crate::Bench;
use crate::peer::{Running, with_tracefs};
use crate::ping_pong::{self, Taken};
use crate::program_time::Statistics;
use crate::table::Series;
use crate::tool::Tool;
use crate::tracing::{INTERVAL, SUMS, Tracing};

/// The shortest useful bpftrace program, which counts context switches by name. ticktax always
/// keeps at least these counts.
const COUNT: &str = "tracepoint:sched:sched_switch { @[args->prev_comm] = count(); }";

/// Part of the name that the kernel gives to every BPF program attached to context switches.
const HOOK: &str = "sched_switch";

/// Time for a third-party tool to attach its programs.
const SETTLE: Duration = Duration::from_millis(1_500);

/// A program that observes the two threads, or `Nobody`.
#[derive(Clone, Debug)]
pub(super) enum Observer {
    Nobody,
    /// Programs that just read the clock, attached to the given hooks.
    Floor(&'static [&'static str]),
    Ticktax(Output),
    /// `ticktax record` with the given trigger, in a separate process. The recorder does not
    /// account for its own threads.
    Record(Tool, &'static str),
    /// A tracer that is attached but not started. Its BPF programs run but return immediately.
    Waiting,
    Bpftrace(PathBuf),
    PerfRecord(PathBuf),
    PerfTrace(PathBuf),
}

/// Results of one run of the two threads with one observer.
pub(super) struct Turn {
    /// CPU time per context switch in ns, as the median over all bursts.
    pub(super) per_switch: f64,
    /// Percentage of context switches that the observer missed.
    pub(super) missed: f64,
    /// Nanoseconds per run of the observer's BPF program. `None` if the kernel's statistics were
    /// off.
    pub(super) inside: Option<f64>,
}

/// Starts the observer, runs the threads, stops the observer, and counts the context switches it
/// saw.
pub(super) fn observe(
    bench: &Bench,
    observer: &Observer,
    folder: &Path,
    statistics: Option<&Statistics>,
) -> Result<Turn, String> {
    let play = |meanwhile: &mut dyn FnMut()| play(bench, statistics, meanwhile);
    match observer {
        Observer::Nobody => play(&mut || {}).map(|played| played.turn(None)),
        Observer::Floor(hooks) => {
            let _floor = Floor::attach(hooks)?;
            play(&mut || {}).map(|played| played.turn(None))
        }
        Observer::Ticktax(output) => {
            let mut tracing = Tracing::load(*output)?;
            tracing.start();
            let played = play(&mut || tracing.drain())?;
            let lost: u64 = tracing.close().lost.iter().map(|loss| loss.events).sum();
            let seen = played.switches.saturating_sub(lost);
            Ok(played.turn(Some(seen)))
        }
        Observer::Record(tool, trigger) => {
            let mut command = tool.command("record");
            command.args(["--trigger", trigger, "--dir"]);
            let mut running = Running::start(command.arg(folder.join("incidents")))?;
            settle(bench)?;
            running.check()?;
            let played = play(&mut || {})?;
            running.interrupt()?;
            Ok(played.turn(None))
        }
        Observer::Waiting => {
            let _waiting = Tracing::load(SUMS)?;
            play(&mut || {}).map(|played| played.turn(None))
        }
        Observer::Bpftrace(path) => {
            let mut command = with_tracefs(path);
            let running = Running::start(command.args(["-e", COUNT]))?;
            settle(bench)?;
            let played = play(&mut || {})?;
            let seen = counted_by_bpftrace(&running.interrupt()?);
            played.checked(seen)
        }
        Observer::PerfRecord(path) => {
            let file = folder.join("perf.data");
            let mut command = with_tracefs(path);
            // Make the buffers large enough for a complete burst. If events were lost, tracing
            // would look cheaper than it is.
            command.args([
                "record",
                "-q",
                "-a",
                "-m",
                "16M",
                "-e",
                "sched:sched_switch",
            ]);
            let running = Running::start(command.arg("-o").arg(&file))?;
            settle(bench)?;
            let played = play(&mut || {})?;
            running.interrupt()?;
            played.checked(counted_by_perf(path, &file)?)
        }
        Observer::PerfTrace(path) => {
            let file = folder.join("perf.txt");
            let mut command = with_tracefs(path);
            command.args(["trace", "-a", "-m", "16M", "-e", "sched:sched_switch"]);
            let running = Running::start(command.arg("-o").arg(&file))?;
            settle(bench)?;
            let played = play(&mut || {})?;
            running.interrupt()?;
            let lines = fs::read(&file).map_err(|error| format!("no output: {error}"))?;
            let lines = String::from_utf8_lossy(&lines);
            let ours = format!("prev_comm: \"{}", ping_pong::NAME);
            played.checked(lines.lines().filter(|line| line.contains(&ours)).count() as u64)
        }
    }
}

fn settle(bench: &Bench) -> Result<(), String> {
    bench.pause(SETTLE).map_err(|error| error.to_string())
}

/// Results that the two threads measured themselves.
struct Played {
    bursts: Series,
    switches: u64,
    inside: Option<f64>,
}

impl Played {
    fn turn(&self, seen: Option<u64>) -> Turn {
        let seen = seen.map_or(1.0, |seen| seen as f64 / self.switches.max(1) as f64);
        Turn {
            per_switch: self.bursts.median(),
            missed: 100.0 * (1.0 - seen.min(1.0)),
            inside: self.inside,
        }
    }

    /// Like [`Played::turn`], but returns an error if the observer missed more than half of the
    /// context switches, which means that it started too late.
    fn checked(&self, seen: u64) -> Result<Turn, String> {
        if seen < self.switches / 2 {
            return Err(format!("it saw {seen} of {} switches", self.switches));
        }
        Ok(self.turn(Some(seen)))
    }
}

/// Runs the threads in short bursts, so that a single disturbance cannot affect the median.
fn play(
    bench: &Bench,
    statistics: Option<&Statistics>,
    meanwhile: &mut dyn FnMut(),
) -> Result<Played, String> {
    let (bursts, trips) = bench.choose((9, 20_000), (5, 10_000));
    let cpu = bench.measured;
    let before = statistics.map(|statistics| statistics.spent_by(HOOK));
    let taken: Vec<Taken> = thread::scope(|scope| {
        let player = scope.spawn(move || {
            let bursts = (0..bursts).map(|_| ping_pong::run(cpu, trips));
            bursts.collect::<Result<_, _>>()
        });
        while !player.is_finished() {
            meanwhile();
            thread::sleep(INTERVAL);
        }
        let result = player.join();
        result.unwrap_or_else(|_| Err(std::io::Error::other("the ping-pong panicked")))
    })
    .map_err(|error| format!("no ping-pong: {error}"))?;
    let inside = statistics.zip(before);
    Ok(Played {
        bursts: taken.iter().map(|taken| taken.per_switch()).collect(),
        switches: taken.iter().map(|taken| taken.switches).sum(),
        inside: inside
            .and_then(|(statistics, before)| statistics.spent_by(HOOK).per_run_since(before)),
    })
}

/// Adds up the counts for the benchmark's threads in bpftrace's output, whose lines have the form
/// `@[NAME]: COUNT`.
fn counted_by_bpftrace(said: &str) -> u64 {
    let ours = format!("@[{}", ping_pong::NAME);
    let lines = said.lines().filter(|line| line.starts_with(&ours));
    let counts = lines.filter_map(|line| line.rsplit_once(": ")?.1.trim().parse::<u64>().ok());
    counts.sum()
}

/// Returns the number of samples in a perf file. A few of them come from other threads.
fn counted_by_perf(perf: &Path, file: &Path) -> Result<u64, String> {
    let mut command = Command::new(perf);
    command.args(["report", "--stats", "-i"]).arg(file);
    let said = Running::start(&mut command)?.finish(Duration::from_mins(1))?;
    let line = said.lines().find(|line| line.contains("SAMPLE events:"));
    let count = line.and_then(|line| {
        let words = line.split_once("SAMPLE events:")?.1;
        words.split_whitespace().next()?.parse().ok()
    });
    count.ok_or_else(|| "perf report tells no number of samples".to_owned())
}

#[cfg(test)]
mod tests {
    use super::counted_by_bpftrace;

    #[test]
    fn only_our_threads_are_counted() {
        let said =
            "Attaching 1 probe...\n\n@[kworker/0:1]: 7\n@[bench-ping]: 20\n@[bench-pong]: 3\n";
        assert_eq!(counted_by_bpftrace(said), 23);
        assert_eq!(counted_by_bpftrace(""), 0);
    }
}
