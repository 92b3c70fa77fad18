//! Measures how much CPU time and memory the agent uses at several event rates. Runs `ticktax
//! agent` as users do, and reads the metrics that the agent publishes about itself. During each
//! run, pairs of threads on every CPU switch contexts in batches.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Duration;

use ticktax_model::{Cpu, Nanos};

use crate::ping_pong;
use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome};

/// Events per second that the load causes on all CPUs together, each with the interval between
/// batches. At 0, only the machine's own events occur.
const RATES: [(u64, Nanos); 3] = [
    (0, Nanos::from_millis(10)),
    (10_000, Nanos::from_millis(10)),
    (500_000, Nanos::from_millis(1)),
];

/// Target: the agent uses at most this much CPU time, in percent of one CPU.
const TARGET: f64 = 0.1;

/// Target: the agent's memory peaks at no more than this, in MiB.
const MEMORY: f64 = 64.0;

/// Maximum age of the metrics the agent serves.
const WINDOW: Duration = Duration::from_secs(11);

/// The data that the agent keeps: sums alone, or sums and the ring buffer of a flight recorder.
/// This benchmark does not read the ring buffer.
const KEPT: [(&str, Option<&str>); 2] = [("sums", None), ("sums and a ring", Some("wait>10s"))];

struct Results {
    rate: u64,
    pace: Nanos,
    kept: &'static str,
    trigger: Option<&'static str>,
    events: Series,
    cpu: Series,
    memory: Series,
    folded: f64,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## agent");
    let tool = Tool::find()?;
    let turns = KEPT.iter().flat_map(|kept| RATES.map(|rate| (*kept, rate)));
    let results = turns.map(|((kept, trigger), (rate, pace))| Results {
        rate,
        pace,
        kept,
        trigger,
        events: Series::new(),
        cpu: Series::new(),
        memory: Series::new(),
        folded: 0.0,
    });
    let mut results: Vec<Results> = results.collect();
    for _ in 0..bench.choose(3, 1) {
        for results in &mut results {
            bench.go_on()?;
            turn(bench, &tool, results)?;
        }
    }
    let mut table = Table::new([
        "kept",
        "events asked for",
        "n",
        "events/s seen",
        "CPU, % of one",
        "least to most",
        "peak memory",
        "target",
    ]);
    for result in &results {
        let (cpu, memory) = (result.cpu.median(), result.memory.median());
        let met = cpu <= TARGET && memory <= MEMORY && result.folded <= 0.0;
        table.row([
            result.kept.to_owned(),
            match result.rate {
                0 => "the machine's own".to_owned(),
                rate => format!("{} k/s", rate / 1_000),
            },
            result.cpu.n().to_string(),
            format!("{:.0}", result.events.median()),
            format!("{cpu:.3}"),
            result.cpu.range(3),
            format!("{memory:.0} MiB"),
            format!(
                "≤ {TARGET} %, ≤ {MEMORY:.0} MiB: {}",
                if met { "met" } else { "not met" }
            ),
        ]);
    }
    table.print();
    println!(
        "\nCPU: all threads of the agent, after it has started, a scrape included; without what its BPF \
         programs cost others (event-cost)."
    );
    Ok(())
}

/// Runs one agent. Reads its metrics as soon as they are available, and again several windows
/// later.
fn turn(bench: &Bench, tool: &Tool, results: &mut Results) -> Outcome {
    let (rate, pace) = (results.rate, results.pace);
    // The agent switches to a different user, who must be able to enter this directory.
    let folder = tempfile::Builder::new()
        .prefix("ticktax-bench")
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in("/tmp")?;
    let incidents = folder.path().join("incidents").display().to_string();
    // Find a free port for the agent by binding to one and releasing it.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let windows = bench.choose(4, 2);
    let cpus: Vec<Cpu> = ticktax_probes::online_cpus()?.iter().collect();
    let length = Nanos::from_secs(11 * (i64::from(windows) + 2));
    let batch = rate * pace.0.unsigned_abs() / 1_000_000_000;
    let trips = batch / 2 / cpus.len() as u64;
    thread::scope(|scope| {
        let makers: Vec<_> = cpus
            .iter()
            .filter(|_| trips > 0)
            .map(|cpu| scope.spawn(move || ping_pong::run_paced(*cpu, trips, pace, length)))
            .collect();
        let mut arguments = vec!["--listen", &address];
        if let Some(trigger) = results.trigger {
            arguments.extend(["--trigger", trigger, "--incidents", &incidents]);
        }
        let agent = tool.agent(&arguments)?;
        bench.pause(WINDOW + Duration::from_secs(1))?;
        let first = page(&address)?;
        bench.pause(WINDOW * windows)?;
        let last = page(&address)?;
        agent.interrupt()?;
        for maker in makers {
            maker.join().map_err(|_| "the generator panicked")??;
        }
        results.push(&first, &last)
    })
}

impl Results {
    fn push(&mut self, first: &str, last: &str) -> Outcome {
        let ends = |name: &str| Ok::<_, String>((value(first, name)?, value(last, name)?));
        let (begin, end) = ends("ticktax_updated_timestamp_seconds")?;
        let passed = end - begin;
        if passed <= 0.0 {
            return Err("the agent counts nothing".into());
        }
        let (before, after) = ends("ticktax_own_cpu_seconds_total")?;
        self.cpu.push(100.0 * (after - before) / passed);
        let (before, after) = ends("ticktax_own_events_total")?;
        self.events.push((after - before) / passed);
        let (_, memory) = ends("ticktax_own_memory_bytes")?;
        self.memory.push(memory / f64::from(1 << 20));
        self.folded += ends("ticktax_folded_intervals_total")?.1;
        Ok(())
    }
}

/// Fetches the metrics as a scraper would.
fn page(address: &str) -> Result<String, std::io::Error> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// Returns the value of a metric that has no labels.
fn value(page: &str, name: &str) -> Result<f64, String> {
    let mut lines = page.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.and_then(|value| value.parse().ok());
    value.ok_or_else(|| format!("the agent serves no {name}"))
}
