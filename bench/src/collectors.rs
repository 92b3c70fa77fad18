//! Compares programs that monitor a machine continuously: ticktax's agent with and without its
//! flight recorder, other metrics collectors, and perf as a flight recorder. Measures how much CPU
//! time and memory each one uses, and by how much it slows down context switches.

mod collector;

use std::error::Error;
use std::thread;
use std::time::Duration;

use ticktax_model::{Cpu, Nanos};

use crate::ping_pong::{self, Taken};
use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome, machine};
use collector::{At, Collector};

/// Rate at which the load causes events.
#[derive(Clone, Copy)]
struct Rate {
    /// Events per second on all CPUs together.
    hz: u64,
    /// Interval between batches of events.
    pace: Nanos,
}

const RATES: [Rate; 2] = [
    Rate {
        hz: 10_000,
        pace: Nanos::from_millis(10),
    },
    Rate {
        hz: 500_000,
        pace: Nanos::from_millis(1),
    },
];

/// Interval at which a collector's metrics are scraped. The agent updates its sums at the same
/// interval.
const SCRAPES: Duration = Duration::from_secs(10);

/// One collector's results at one rate, over all rounds.
struct Row {
    collector: usize,
    rate: u64,
    /// The collector's own CPU time, in percent of one CPU.
    cpu: Series,
    /// Peak memory, in MiB.
    memory: Series,
    /// CPU time that the collector adds to a context switch, in ns.
    switch: Series,
    /// CPU time that the collector adds to a context switch, as a percentage of the time a switch
    /// takes without a collector.
    share: Series,
}

/// Results of one run with a collector.
struct Turn {
    cpu: f64,
    memory: f64,
    switch: f64,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## collectors");
    let tool = Tool::find()?;
    let collectors = Collector::all();
    let mut base = RATES.map(|_| Series::new());
    let mut rows: Vec<Row> = RATES
        .iter()
        .flat_map(|rate| (0..collectors.len()).map(move |collector| Row::new(collector, rate.hz)))
        .collect();
    for _ in 0..bench.choose(5, 1) {
        for (&rate, base) in RATES.iter().zip(&mut base) {
            let mut before = load(bench, rate, &mut |_| Ok(()))?.per_switch();
            for row in rows.iter_mut().filter(|row| row.rate == rate.hz) {
                let collector = &collectors[row.collector];
                let turn = turn(bench, &tool, collector, rate);
                bench.go_on()?;
                // Compare this run with the mean of the runs before and after it, which have no
                // collector. This cancels out gradual changes in the machine's speed.
                let after = load(bench, rate, &mut |_| Ok(()))?.per_switch();
                base.push(after);
                match turn {
                    Ok(turn) => row.push(&turn, f64::midpoint(before, after)),
                    Err(why) => println!("\n{}: {why}; this turn is left out.", collector.name()),
                }
                before = after;
            }
        }
    }
    print(&collectors, &rows, &base);
    Ok(())
}

impl Row {
    fn new(collector: usize, rate: u64) -> Self {
        Self {
            collector,
            rate,
            cpu: Series::new(),
            memory: Series::new(),
            switch: Series::new(),
            share: Series::new(),
        }
    }

    fn push(&mut self, turn: &Turn, nobody: f64) {
        self.cpu.push(turn.cpu);
        self.memory.push(turn.memory);
        self.switch.push(turn.switch - nobody);
        self.share.push(100.0 * (turn.switch - nobody) / nobody);
    }
}

/// Runs a collector, and scrapes its metrics during the load.
fn turn(
    bench: &Bench,
    tool: &Tool,
    collector: &Collector,
    rate: Rate,
) -> Result<Turn, Box<dyn Error>> {
    let folder = collector::folder()?;
    let running = collector.start(bench, tool, folder.path())?;
    // Count CPU time only from the first scrape: starting up is not part of monitoring.
    let (mut begin, mut end): (Option<At>, Option<At>) = (None, None);
    let taken = load(bench, rate, &mut |over| {
        if over {
            end = Some(running.at()?);
            return Ok(());
        }
        if begin.is_none() {
            begin = Some(running.at()?);
        }
        running.scrape()
    })?;
    let memory = running.peak_memory()?;
    running.end()?;
    let (begin, end) = begin.zip(end).ok_or("nothing was measured")?;
    Ok(Turn {
        cpu: 100.0 * (end.cpu - begin.cpu).as_secs_f64() / (end.time - begin.time).as_secs_f64(),
        memory,
        switch: taken.per_switch(),
    })
}

/// Runs a pair of threads on every CPU that switch contexts in batches. Calls `step` with
/// `false` at the start and then every [`SCRAPES`], and once with `true` at the end.
fn load(
    bench: &Bench,
    rate: Rate,
    step: &mut dyn FnMut(bool) -> Outcome,
) -> Result<Taken, Box<dyn Error>> {
    let cpus: Vec<Cpu> = ticktax_probes::online_cpus()?.iter().collect();
    machine::pin_to_all(&cpus)?;
    let scrapes = bench.choose(2, 1);
    let length = Nanos::from_secs(10 * i64::from(scrapes) + 1);
    let batch = rate.hz * rate.pace.0.unsigned_abs() / 1_000_000_000;
    let trips = (batch / 2 / cpus.len() as u64).max(1);
    thread::scope(|scope| {
        let makers: Vec<_> = cpus
            .iter()
            .map(|cpu| scope.spawn(move || ping_pong::run_paced(*cpu, trips, rate.pace, length)))
            .collect();
        let watched = (|| {
            for _ in 0..scrapes {
                step(false)?;
                bench.pause(SCRAPES)?;
            }
            step(true)
        })();
        let mut sum = Taken::default();
        for maker in makers {
            let taken = maker.join().map_err(|_| "the generator panicked")??;
            sum.cpu_time += taken.cpu_time;
            sum.switches += taken.switches;
        }
        watched.map(|()| sum)
    })
}

fn print(collectors: &[Collector], rows: &[Row], base: &[Series]) {
    for (rate, base) in RATES.iter().zip(base) {
        println!(
            "\nAt {} k/s a switch that nobody watches takes {:.0} ns (n {}, quartiles {}).",
            rate.hz / 1_000,
            base.median(),
            base.n(),
            base.quartiles(0)
        );
    }
    let mut table = Table::new([
        "collector",
        "events asked for",
        "n",
        "CPU, % of one",
        "least to most",
        "times ticktax's",
        "peak memory",
        "a switch longer by, ns",
        "quartiles",
        "of a switch, %",
        "times ticktax's",
    ]);
    for row in rows {
        let collector = &collectors[row.collector];
        if row.cpu.n() == 0 {
            continue;
        }
        let beside = rows.iter().find(|other| {
            other.rate == row.rate && collectors[other.collector].is_beside(collector)
        });
        let times = |of: fn(&Row) -> &Series, digits: usize| {
            let ratio = beside.map(|beside| of(row).median() / of(beside).median());
            match ratio.filter(|ratio| ratio.is_finite() && *ratio > 0.0) {
                Some(ratio) => format!("{ratio:.digits$}"),
                None => "-".to_owned(),
            }
        };
        table.row([
            collector.name().to_owned(),
            format!("{} k/s", row.rate / 1_000),
            row.cpu.n().to_string(),
            format!("{:.3}", row.cpu.median()),
            row.cpu.range(3),
            times(|row| &row.cpu, 1),
            format!("{:.0} MiB", row.memory.median()),
            format!("{:.0}", row.switch.median()),
            row.switch.quartiles(0),
            format!("{:.1}", row.share.median()),
            times(|row| &row.switch, 2),
        ]);
    }
    table.print();
    println!(
        "\nCPU: its own threads, while it watches, scraped every {} s where it is scraped. A switch: CPU time of the two \
         threads, between turns without a collector; what interrupts took of them in between is in it. times ticktax's: \
         the agent's, and of perf the agent's with a recorder.",
        SCRAPES.as_secs()
    );
}
