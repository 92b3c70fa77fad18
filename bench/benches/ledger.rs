//! Measures how many rows per second the ledger processes on one thread: `cargo bench -p
//! ticktax-bench --bench ledger`.
//!
//! The recording is synthetic and always the same. Its CPUs tick, take interrupts with softirqs,
//! and switch between threads. If there is a spin probe, it records a gap on each CPU at every
//! interrupt, and just as many gaps during which the kernel did nothing. Timing starts with the
//! first row and ends when the statement is complete, so it excludes generating the rows.
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark times itself, and records nothing"
)]
#![allow(
    clippy::print_stdout,
    reason = "a benchmark's result goes to the terminal"
)]

use std::time::Instant;

use ticktax_analysis::Auditor;
use ticktax_fixture::{SplitMix64, books, process, replay, row, watched_header};
use ticktax_model::recording::{Header, Row};
use ticktax_model::{Kind, Owner, Source, SourceId, SourceTable};
use ticktax_report::{TextStyle, glance};

const SPANS: usize = 5_000_000;
const CPUS: u32 = 8;
const RUNS: usize = 5;
/// Rate at which a terminal refreshes the state of an audit, in Hz.
const LOOKS_HZ: f64 = 2.0;
const LOOKS: u32 = 200;

fn main() {
    for (name, with_probe) in [("spans", false), ("spans and gaps", true)] {
        let (sources, header, rows) = recording(with_probe);
        let mut rates: Vec<f64> = (0..RUNS).map(|_| rate(&sources, &header, &rows)).collect();
        rates.sort_by(f64::total_cmp);
        let (min, median, max) = (rates[0], rates[RUNS / 2], rates[RUNS - 1]);
        println!(
            "{name}: {median:.1} M rows/s (median of {RUNS}, {min:.1} to {max:.1}), {} rows, \
             {} sources",
            rows.len(),
            sources.len()
        );
        let look = look(&sources, &rows);
        println!(
            "{name}: {:.0} µs for a look at the live view, {:.3} % of a CPU at {LOOKS_HZ} a second",
            look * 1e6,
            look * LOOKS_HZ * 100.0
        );
    }
}

/// Returns the time in seconds that it takes to compute the two lines a terminal shows during an
/// audit, without drawing them.
fn look(sources: &SourceTable, rows: &[Row]) -> f64 {
    let mut auditor = Auditor::books();
    replay(sources, rows, &mut auditor);
    let begin = Instant::now();
    for _ in 0..LOOKS {
        let lines = glance(&auditor.glance(sources), &TextStyle::default());
        assert_eq!(lines.lines().count(), 2, "{lines}");
    }
    begin.elapsed().as_secs_f64() / f64::from(LOOKS)
}

/// Returns the throughput in millions of rows per second, from the first row to the complete
/// statement.
fn rate(sources: &SourceTable, header: &Header, rows: &[Row]) -> f64 {
    let begin = Instant::now();
    let mut auditor = Auditor::books();
    replay(sources, rows, &mut auditor);
    let statement = auditor.finish(header, sources, 1);
    let passed = begin.elapsed();
    assert!(
        statement.balance.balances(),
        "{:?}",
        statement.balance.imbalances
    );
    rows.len() as f64 / passed.as_secs_f64() / 1e6
}

struct Cast {
    timer: SourceId,
    tick: SourceId,
    device: SourceId,
    receive: SourceId,
    threads: Vec<SourceId>,
    probe: SourceId,
    gap: SourceId,
}

impl Cast {
    fn new(sources: &mut SourceTable) -> Self {
        let mut kernel =
            |kind, name: &str, detail: &str| sources.intern(Source::kernel(kind, name, detail));
        let timer = kernel(Kind::Irq, "local_timer", "");
        let tick = kernel(Kind::Irq, "local_timer", "tick_nohz_handler");
        let device = kernel(Kind::Irq, "virtio0-req.0", "");
        let receive = kernel(Kind::Softirq, "NET_RX", "");
        let gap = kernel(Kind::Gap, "spin", "");
        let mut threads = vec![kernel(Kind::Idle, "idle", "")];
        threads.extend((0..50).map(|n| kernel(Kind::Task, &format!("kworker/{n}:0"), "work")));
        let program = |n| process(Owner::Program, &format!("job{n}"), n);
        threads.extend((0..200).map(|n| sources.intern(program(n))));
        let probe = sources.intern(process(Owner::Probe, "spin/0", 9_999));
        Self {
            timer,
            tick,
            device,
            receive,
            threads,
            probe,
            gap,
        }
    }
}

/// State of one CPU whose rows are being generated.
struct Machinery {
    cpu: u32,
    now: i64,
    /// Time at which the current thread started, and its self time so far.
    base: (i64, i64),
}

impl Machinery {
    fn row(&self, start: i64, self_time: i64, source: SourceId) -> Row {
        row(self.cpu, start, self.now - start, self_time, source)
    }

    fn spend(&mut self, time: i64) {
        self.now += time;
        self.base.1 += time;
    }

    fn switch(&mut self, from: SourceId, rows: &mut Vec<Row>) {
        rows.push(self.row(self.base.0, self.base.1, from));
        self.base = (self.now, 0);
    }

    /// Generates an interrupt that either calls a function or is followed by a softirq.
    fn interrupt(&mut self, cast: &Cast, dice: &mut SplitMix64, rows: &mut Vec<Row>) {
        let start = self.now;
        if dice.between(0, 2) == 0 {
            self.now += dice.between(100, 1_000);
            let inner = self.now;
            self.now += dice.between(500, 20_000);
            rows.push(self.row(inner, self.now - inner, cast.tick));
            let rest = inner - start;
            rows.push(self.row(start, rest, cast.timer));
        } else {
            self.now += dice.between(500, 5_000);
            rows.push(self.row(start, self.now - start, cast.device));
            let softirq = self.now;
            self.now += dice.between(500, 50_000);
            rows.push(self.row(softirq, self.now - softirq, cast.receive));
        }
    }

    /// Generates the rows for a short interval on this CPU.
    fn step(&mut self, cast: &Cast, dice: &mut SplitMix64, rows: &mut Vec<Row>, with_probe: bool) {
        self.spend(dice.between(1_000, 200_000));
        let begin = self.now;
        if !with_probe {
            self.interrupt(cast, dice, rows);
            self.spend(dice.between(1_000, 100_000));
            let threads = i64::try_from(cast.threads.len()).unwrap_or(1);
            let which = usize::try_from(dice.between(0, threads)).unwrap_or(0);
            self.switch(cast.threads[which], rows);
            return;
        }
        self.spend(dice.between(200, 2_000));
        self.interrupt(cast, dice, rows);
        self.spend(dice.between(200, 2_000));
        rows.push(self.row(begin, self.now - begin, cast.gap));
        self.spend(dice.between(1_000, 100_000));
        let begin = self.now;
        self.spend(dice.between(1_500, 4_000));
        rows.push(self.row(begin, self.now - begin, cast.gap));
    }
}

fn recording(with_probe: bool) -> (SourceTable, Header, Vec<Row>) {
    let mut sources = SourceTable::default();
    let cast = Cast::new(&mut sources);
    let mut dice = SplitMix64::new(1);
    let begin = 1_000_000_000;
    let cpu = |cpu| Machinery {
        cpu,
        now: begin,
        base: (begin, 0),
    };
    let mut cpus: Vec<Machinery> = (0..CPUS).map(cpu).collect();
    let mut rows = Vec::with_capacity(SPANS + 1_000);
    while rows.len() < SPANS {
        // Imitate a tracer that drains one CPU's buffer after another, a few hundred rows at a
        // time.
        for cpu in &mut cpus {
            (0..100).for_each(|_| cpu.step(&cast, &mut dice, &mut rows, with_probe));
        }
    }
    let mut header = watched_header();
    for cpu in &mut cpus {
        cpu.spend(1);
        cpu.switch(
            if with_probe {
                cast.probe
            } else {
                cast.threads[0]
            },
            &mut rows,
        );
        header.cpus.push(books(cpu.cpu, begin, cpu.now));
    }
    (sources, header, rows)
}
