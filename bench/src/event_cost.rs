//! What one traced event costs the program that it happens to.
//!
//! Two threads on one CPU wake each other; the CPU time of both from one context switch to the
//! next, with an observer less without, is the observer's price of an event. CPU time rather than
//! time on the wall, because other programs are not in it. What an observer does on another CPU
//! (reading its buffers) is not in it either: `load` tells that of ticktax.

mod clock_cost;
mod observer;

use std::path::Path;

use crate::peer::Tool;
use crate::program_time::Statistics;
use crate::table::{Series, Table};
use crate::tracing::{FLIGHT, SPANS, SUMS};
use crate::{Bench, Outcome, machine};
use observer::{Observer, observe};

const BPFTRACE: Tool = Tool {
    program: "bpftrace",
    package: "bpftrace",
};
const PERF: Tool = Tool {
    program: "perf",
    package: "linux-perf",
};

/// An observer's results.
struct Contender {
    observer: Observer,
    name: &'static str,
    /// The row that it is compared with, and the most that an event should cost.
    beside: usize,
    target: Option<f64>,
    cost: Series,
    /// Time inside the BPF program, by the kernel's statistics.
    inside: Series,
    /// Of the switches, in percent.
    missed: Series,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## event-cost");
    machine::pin(bench.other)?;
    let mut contenders = contenders();
    let folder = tempfile::tempdir()?;
    let mut base = Series::default();
    for _ in 0..bench.choose(15, 3) {
        let mut nothing = observe(bench, &Observer::Nobody, folder.path(), None)?.per_switch;
        for contender in &mut contenders {
            bench.go_on()?;
            let found = match observe(bench, &contender.observer, folder.path(), None) {
                Ok(found) => found,
                Err(why) => {
                    bench.go_on()?;
                    println!("\n{}: {why}; this round is left out.", contender.name);
                    nothing = observe(bench, &Observer::Nobody, folder.path(), None)?.per_switch;
                    continue;
                }
            };
            // Between one turn without and the next, so that a drift of the machine cancels.
            let after = observe(bench, &Observer::Nobody, folder.path(), None)?.per_switch;
            contender
                .cost
                .push(found.per_switch - f64::midpoint(nothing, after));
            contender.missed.push(found.missed);
            base.push(nothing);
            nothing = after;
            match inside(bench, contender, folder.path()) {
                Ok(Some(inside)) => contender.inside.push(inside),
                Ok(None) => {}
                Err(why) => println!("\n{}, inside: {why}; left out.", contender.name),
            }
        }
    }
    print(&contenders, &base);
    if let Some(bpftrace) = BPFTRACE.find() {
        clock_cost::run(bench, &bpftrace)?;
    }
    Ok(())
}

fn contenders() -> Vec<Contender> {
    let contender = |observer, name, beside, target| Contender {
        observer,
        name,
        beside,
        target,
        cost: Series::default(),
        inside: Series::default(),
        missed: Series::default(),
    };
    let mut all = vec![
        contender(
            Observer::Ticktax(SUMS),
            "ticktax, every hook, sums",
            0,
            Some(60.0),
        ),
        contender(
            Observer::Ticktax(SPANS),
            "ticktax, every hook, spans",
            1,
            Some(120.0),
        ),
        contender(
            Observer::Ticktax(FLIGHT),
            "ticktax, every hook, flight recorder",
            0,
            None,
        ),
        // What is left without the bookkeeping: getting into the program and out of it.
        contender(
            Observer::Waiting,
            "ticktax, attached but not recording",
            0,
            None,
        ),
    ];
    if let Some(path) = BPFTRACE.find() {
        all.push(contender(
            Observer::Bpftrace(path),
            "bpftrace, count by name",
            0,
            None,
        ));
    }
    if let Some(path) = PERF.find() {
        let record = Observer::PerfRecord(path.clone());
        all.push(contender(
            record,
            "perf record -e sched:sched_switch",
            1,
            None,
        ));
        let trace = Observer::PerfTrace(path);
        all.push(contender(
            trace,
            "perf trace -e sched:sched_switch",
            1,
            None,
        ));
    }
    all
}

/// The time inside the BPF program. In a turn of its own, because the kernel's statistics cost
/// something themselves.
fn inside(bench: &Bench, contender: &Contender, folder: &Path) -> Result<Option<f64>, String> {
    if !matches!(
        contender.observer,
        Observer::Ticktax(_) | Observer::Waiting | Observer::Bpftrace(_)
    ) {
        return Ok(None);
    }
    let statistics = Statistics::start()?;
    observe(bench, &contender.observer, folder, Some(&statistics)).map(|turn| turn.inside)
}

fn print(contenders: &[Contender], base: &Series) {
    println!(
        "\nWithout an observer, a switch takes {:.0} ns of CPU time (n {}, quartiles {}).",
        base.median(),
        base.n(),
        base.quartiles(0)
    );
    let mut table = Table::new([
        "observer",
        "n",
        "ns an event, median",
        "quartiles",
        "least to most",
        "in the BPF program",
        "switches not seen",
        "times ticktax's",
        "target",
    ]);
    for contender in contenders {
        let median = contender.cost.median();
        let ratio = median / contenders[contender.beside].cost.median();
        let met = |target: f64| if median <= target { "met" } else { "not met" };
        table.row([
            contender.name.to_owned(),
            contender.cost.n().to_string(),
            format!("{median:.0}"),
            contender.cost.quartiles(0),
            contender.cost.range(0),
            match contender.inside.n() {
                0 => "-".to_owned(),
                _ => format!("{:.0}", contender.inside.median()),
            },
            format!("{:.2} %", contender.missed.median()),
            format!("{ratio:.1}"),
            contender
                .target
                .map_or("-".to_owned(), |max| format!("≤ {max:.0}: {}", met(max))),
        ]);
    }
    table.print();
}
