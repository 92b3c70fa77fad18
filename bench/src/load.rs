//! Measures how much CPU time and memory `ticktax audit` uses at several event rates, and how many
//! events it loses. Runs `ticktax audit` as users do, while pairs of threads on every CPU switch
//! contexts in batches.

use std::fmt;
use std::thread;

use ticktax_model::statement::Statement;
use ticktax_model::{Cpu, Nanos};

use crate::ping_pong;
use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome};

/// Events per second on all CPUs together. An idle machine produces a few thousand.
const RATES: [Rate; 4] = [
    Rate::new(10_000, Nanos::from_millis(10)),
    Rate::new(100_000, Nanos::from_millis(1)),
    Rate::new(500_000, Nanos::from_millis(1)),
    // No machine reaches this rate, so the threads switch as fast as they can.
    Rate::new(10_000_000, Nanos::from_millis(1)),
];

/// Requested rates of at least this many events per second count as unlimited.
const FASTEST: u32 = 10_000_000;

/// Modes of an audit: name and options.
const MODES: [(&str, &[&str]); 2] = [
    ("spans", &["--keep", "spans"]),
    ("sums", &["--keep", "sums"]),
];

/// A requested number of events per second, and the interval between the batches that cause them.
#[derive(Clone, Copy)]
struct Rate {
    events: u32,
    pace: Nanos,
}

impl Rate {
    const fn new(events: u32, pace: Nanos) -> Self {
        Self { events, pace }
    }

    fn is_fastest(self) -> bool {
        self.events >= FASTEST
    }

    /// Returns how many round trips a batch has on each of `cpus` CPUs. A round trip causes two
    /// events.
    fn trips(self, cpus: usize) -> u64 {
        let batch = i64::from(self.events) * self.pace.0 / 1_000_000_000;
        (batch.unsigned_abs() / 2 / cpus as u64).max(1)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_fastest() {
            return f.write_str("as fast as it goes");
        }
        write!(f, "{} k/s", self.events / 1_000)
    }
}

/// Results for one mode at one event rate.
#[derive(Default)]
struct Results {
    /// Actual number of events per second.
    rate: Series,
    /// The tool's CPU time, in percent of one CPU.
    cpu: Series,
    /// The tool's peak memory, in MiB.
    memory: Series,
    /// Number of events lost, over all runs.
    lost: u64,
    events: u64,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## load");
    let tool = Tool::find()?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("load.parquet");
    let saving = file.display().to_string();
    let saved = ["--keep", "spans", "--save", &saving];
    let modes = MODES.into_iter().chain([("spans, saved", &saved[..])]);
    let modes: Vec<(&str, &[&str])> = modes.collect();
    let mut results: Vec<Results> = Vec::new();
    results.resize_with(RATES.len() * modes.len(), Results::default);
    for _ in 0..bench.choose(3, 1) {
        let mut place = results.iter_mut();
        for wanted in RATES {
            for (_, arguments) in &modes {
                bench.go_on()?;
                let statement = audit(bench, &tool, wanted, arguments)?;
                if let Some(results) = place.next() {
                    results.push(&statement);
                }
            }
        }
    }
    let mut table = Table::new([
        "asked for, kept",
        "n",
        "events/s, median",
        "least to most",
        "CPU, % of one",
        "least to most",
        "peak memory",
        "lost of all",
        "target",
    ]);
    let mut rows = results.iter();
    for wanted in RATES {
        for (mode, _) in &modes {
            if let Some(results) = rows.next() {
                results.add_to(&mut table, wanted, mode);
            }
        }
    }
    table.print();
    println!(
        "\nCPU: the tool's collector, without what its BPF programs cost others (event-cost)."
    );
    Ok(())
}

impl Results {
    fn push(&mut self, statement: &Statement) {
        let cpus = statement.cpus.iter().map(|books| books.elapsed);
        let length = cpus.max().unwrap_or_default().as_secs_f64();
        let cost = &statement.cost;
        self.rate.push(cost.events as f64 / length);
        self.cpu.push(100.0 * cost.cpu.as_secs_f64() / length);
        self.memory
            .push(cost.memory_bytes as f64 / f64::from(1 << 20));
        self.lost += statement.coverage.events_lost();
        self.events += cost.events;
    }

    fn add_to(&self, table: &mut Table, wanted: Rate, mode: &str) {
        let reached = self.rate.median() >= 0.95 * f64::from(wanted.events);
        table.row([
            format!("{wanted}, {mode}"),
            self.rate.n().to_string(),
            format!("{:.0}", self.rate.median()),
            self.rate.range(0),
            format!("{:.1}", self.cpu.median()),
            self.cpu.range(1),
            format!("{:.0} MiB", self.memory.median()),
            format!("{} of {}", self.lost, self.events),
            match (self.lost, reached) {
                _ if wanted.is_fastest() => "-".to_owned(),
                (0, true) => "0 lost: met".to_owned(),
                (0, false) => "0 lost, but the rate was not reached".to_owned(),
                _ => "0 lost: not met".to_owned(),
            },
        ]);
    }
}

/// Runs an audit while threads produce events.
fn audit(
    bench: &Bench,
    tool: &Tool,
    wanted: Rate,
    arguments: &[&str],
) -> Result<Statement, String> {
    let seconds = bench.choose(5, 3);
    let cpus: Vec<Cpu> = ticktax_probes::online_cpus()
        .map_err(|error| error.to_string())?
        .iter()
        .collect();
    let trips = wanted.trips(cpus.len());
    // Keep causing events until after the audit has ended.
    let length = Nanos::from_secs(i64::from(seconds) + 2);
    thread::scope(|scope| {
        let makers: Vec<_> = cpus
            .iter()
            .map(|cpu| scope.spawn(move || ping_pong::run_paced(*cpu, trips, wanted.pace, length)))
            .collect();
        let all = [&["--probe", "none"], arguments].concat();
        let statement = tool.audit(seconds, &all)?.statement(bench);
        for maker in makers {
            let made = maker.join();
            made.map_err(|_| "the generator panicked")?
                .map_err(|error| format!("the generator: {error}"))?;
        }
        statement
    })
}
