//! Measures how soon an audit starts, and how many events it loses, on a machine without a CPU to
//! spare.
//!
//! Each load takes all CPUs. A generator with a real-time priority keeps producing events, so that
//! the event rate does not depend on the load. The watched program computes at an ordinary
//! priority. For comparison, perf and bpftrace start under the same loads.

pub(crate) mod load;
mod peers;

use std::path::Path;
use std::time::Duration;

use ticktax_model::Nanos;
use ticktax_model::statement::Statement;
use ticktax_model::victim::TOOL;
use ticktax_probes::clock::now;
use ticktax_trace::ThreadPriority;

use crate::peer::Running;
use crate::recording::Recording;
use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome};
use load::{Load, Loaded};

/// Target: at most this many seconds pass between `exec` and the first recorded event.
const STARTS: f64 = 1.0;

/// Targets: the watched program waits behind ticktax for at most [`WAIT`] at a time, and for at
/// most [`SHARE`] percent of its time in total.
const WAIT: Nanos = Nanos::from_micros(100);
const SHARE: f64 = 0.1;

/// Time to wait for a tool's first event before giving up on the tool.
const PATIENCE: Duration = Duration::from_secs(15);

/// Time for a load to occupy the CPUs.
const SETTLE: Duration = Duration::from_millis(500);

/// Results under one load.
struct Results {
    load: Load,
    /// Seconds from `exec` to the first recorded event.
    start: Series,
    /// Seconds from `fork` to the first recorded event. ticktax cannot shorten the time between
    /// `fork` and `exec`.
    from_fork: Series,
    events: Series,
    lost: u64,
    all: u64,
    /// The audit's CPU time, in total and at a real-time priority, in percent of one CPU.
    cpu: Series,
    raised: Series,
    memory: Series,
    /// Time that the watched program waited behind ticktax, as a percentage of the program's time,
    /// and the longest of these waits.
    behind: Series,
    longest: Nanos,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## starved");
    let tool = Tool::find()?;
    let folder = tempfile::tempdir()?;
    let mut results: Vec<Results> = Load::ALL.map(Results::new).into();
    for _ in 0..bench.choose(5, 1) {
        for results in &mut results {
            bench.go_on()?;
            let _loaded = Loaded::start(results.load, Duration::from_secs(20), &[])?;
            bench.pause(SETTLE)?;
            let (from_exec, from_fork) = start(&tool, folder.path())?;
            results.start.push(from_exec);
            results.from_fork.push(from_fork);
        }
    }
    for _ in 0..bench.choose(2, 1) {
        for results in &mut results {
            bench.go_on()?;
            let seconds = bench.choose(50, 8);
            let statement = audit(bench, &tool, results.load, seconds)?;
            results.push(&statement)?;
        }
    }
    print_starts(&results);
    print_losses(&results);
    peers::run(bench, folder.path())
}

/// Gives this thread a real-time priority while it starts a tool, so that the loads do not delay
/// the start. The processes it starts have an ordinary priority.
///
/// The thread must not keep this priority while it waits for processes. The kernel then removes
/// their entries from `/proc`, and can loop forever if it preempted another thread that is doing
/// the same.
struct Punctual(ThreadPriority);

impl Punctual {
    fn start() -> Result<Self, &'static str> {
        let own = ThreadPriority::current().ok_or("run it at an ordinary priority")?;
        own.raise(30)?;
        Ok(Self(own))
    }
}

impl Drop for Punctual {
    fn drop(&mut self) {
        self.0.restore();
    }
}

/// Starts a short audit. Returns the seconds until its first recorded event, from `exec` and from
/// `fork`.
fn start(tool: &Tool, folder: &Path) -> Result<(f64, f64), String> {
    let file = folder.join("start.parquet");
    let punctual = Punctual::start()?;
    let forked = now();
    let mut audit = Running::start(
        tool.command("audit")
            .args(["--for", "100ms", "--format", "json", "--save"])
            .arg(&file),
    )?;
    // The standard library returns once the child has exec'd the new program.
    let executed = now();
    drop(punctual);
    audit.finish(PATIENCE)?;
    let header = Recording::read(&file)?.header;
    let first = header.cpus.iter().map(|cpu| cpu.begin).min();
    let first = first.ok_or("the recording is empty")?;
    let since = |begin| (first - begin).as_secs_f64();
    Ok((since(executed), since(forked)))
}

/// Audits a computing program while events are produced.
fn audit(bench: &Bench, tool: &Tool, load: Load, seconds: u32) -> Result<Statement, String> {
    let length = Duration::from_secs(u64::from(seconds) + 8);
    // Start the generator and the program before the load: under the load, they would take seconds
    // to start.
    let _events = load::events(length)?;
    let victim = load::watched(length)?;
    bench.pause(SETTLE).map_err(|error| error.to_string())?;
    let _loaded = Loaded::start(load, length, &[victim.pid()])?;
    bench.pause(SETTLE).map_err(|error| error.to_string())?;
    let pid = victim.pid().to_string();
    let audit = tool.audit(seconds, &["--keep", "spans", "--pid", &pid])?;
    audit.statement(bench)
}

impl Results {
    fn new(load: Load) -> Self {
        Self {
            load,
            start: Series::new(),
            from_fork: Series::new(),
            events: Series::new(),
            lost: 0,
            all: 0,
            cpu: Series::new(),
            raised: Series::new(),
            memory: Series::new(),
            behind: Series::new(),
            longest: Nanos::ZERO,
        }
    }

    fn push(&mut self, statement: &Statement) -> Result<(), String> {
        let cpus = statement.cpus.iter().map(|books| books.elapsed);
        let length = cpus.max().unwrap_or_default();
        let cost = &statement.cost;
        self.events.push(cost.events as f64 / length.as_secs_f64());
        self.lost += statement.coverage.events_lost();
        self.all += cost.events;
        self.cpu.push(100.0 * cost.cpu.share_of(length));
        self.raised.push(100.0 * cost.raised.share_of(length));
        self.memory
            .push(cost.memory_bytes as f64 / f64::from(1 << 20));
        let victim = statement.victim.as_ref();
        let threads = victim.and_then(|victim| victim.threads.as_ref());
        let threads = threads.ok_or("the statement has no threads of the program")?;
        let behind = threads.behind.iter().filter(|one| one.name == TOOL);
        let (mut time, mut longest) = (Nanos::ZERO, Nanos::ZERO);
        for one in behind {
            (time, longest) = (time + one.time, longest.max(one.max));
        }
        self.behind.push(100.0 * time.share_of(length));
        self.longest = self.longest.max(longest);
        Ok(())
    }
}

fn print_starts(results: &[Results]) {
    let mut table = Table::new([
        "load",
        "n",
        "start, s, median",
        "least to most",
        "target",
        "from fork, s, median",
        "least to most",
    ]);
    for results in results {
        let start = &results.start;
        let met = start.quantile(1.0) <= STARTS;
        table.row([
            results.load.to_string(),
            start.n().to_string(),
            format!("{:.2}", start.median()),
            start.range(2),
            format!("≤ {STARTS} s: {}", if met { "met" } else { "not met" }),
            format!("{:.2}", results.from_fork.median()),
            results.from_fork.range(2),
        ]);
    }
    table.print();
}

fn print_losses(results: &[Results]) {
    let mut table = Table::new([
        "load",
        "n",
        "events/s",
        "lost of all",
        "CPU, % of one",
        "of it real-time",
        "peak memory",
        "program waited behind it, %",
        "longest",
        "target",
    ]);
    for results in results {
        let lost = if results.lost == 0 { "met" } else { "not met" };
        let waits = results.behind.quantile(1.0) <= SHARE && results.longest <= WAIT;
        let waits = if waits { "met" } else { "not met" };
        table.row([
            results.load.to_string(),
            results.events.n().to_string(),
            format!("{:.0}", results.events.median()),
            format!("{} of {}", results.lost, results.all),
            format!("{:.1}", results.cpu.median()),
            format!("{:.1}", results.raised.median()),
            format!("{:.0} MiB", results.memory.median()),
            format!("{:.3}", results.behind.median()),
            results.longest.to_string(),
            format!("0 lost: {lost}; waits ≤ {SHARE} % and {WAIT}: {waits}"),
        ]);
    }
    table.print();
}
