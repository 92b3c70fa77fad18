//! What one traced event costs the program that it happens to.
//!
//! Two threads on one CPU wake each other; the CPU time of both from one context switch to the
//! next, with an observer less without, is the observer's price of an event. CPU time rather than
//! time on the wall, because other programs are not in it. What an observer does on another CPU
//! (reading its buffers) is not in it either: `load` tells that of ticktax.

mod clock_cost;
mod floor;
mod observer;

use std::path::Path;

use crate::peer::Tool;
use crate::program_time::Statistics;
use crate::table::{Series, Table};
use crate::tracing::{FLIGHT, SPANS, SUMS};
use crate::{Bench, Outcome, machine};
use observer::{Observer, observe};

/// The most that an event should cost a traced thread, in times of the floor.
const TARGET: f64 = 1.25;

/// Hooks that a switch of the two threads passes, on which every tracer here or only that of wake-ups has a program.
const SWITCH: &[&str] = &["sched_switch"];
const SWITCH_AND_WAKEUP: &[&str] = &["sched_switch", "sched_waking"];

/// The rows of the floors, and of what others are compared with.
const FLOOR_OF_SWITCH: usize = 0;
const FLOOR_OF_BOTH: usize = 1;
const BY_SUMS: usize = 2;
const BY_SPANS: usize = 3;

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
    /// The row that it is compared with.
    beside: usize,
    /// Whether that is the floor which it should be near.
    has_target: bool,
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
    let contender = |observer, name, beside| Contender {
        observer,
        name,
        beside,
        has_target: false,
        cost: Series::default(),
        inside: Series::default(),
        missed: Series::default(),
    };
    let near_floor = |output, name, floor| Contender {
        has_target: true,
        ..contender(Observer::Ticktax(output), name, floor)
    };
    let mut all = vec![
        contender(
            Observer::Floor(SWITCH),
            "floor: only the clock is read, at a switch",
            FLOOR_OF_SWITCH,
        ),
        contender(
            Observer::Floor(SWITCH_AND_WAKEUP),
            "floor: the same, and at a wake-up",
            FLOOR_OF_BOTH,
        ),
        near_floor(SUMS, "ticktax, every hook, sums", FLOOR_OF_SWITCH),
        near_floor(SPANS, "ticktax, every hook, spans", FLOOR_OF_BOTH),
        near_floor(
            FLIGHT,
            "ticktax, every hook, flight recorder",
            FLOOR_OF_BOTH,
        ),
        // What is left without the bookkeeping: getting into the program and out of it.
        contender(
            Observer::Waiting,
            "ticktax, attached but not recording",
            FLOOR_OF_SWITCH,
        ),
    ];
    if let Some(path) = BPFTRACE.find() {
        all.push(contender(
            Observer::Bpftrace(path),
            "bpftrace, count by name",
            BY_SUMS,
        ));
    }
    if let Some(path) = PERF.find() {
        let record = Observer::PerfRecord(path.clone());
        all.push(contender(
            record,
            "perf record -e sched:sched_switch",
            BY_SPANS,
        ));
        let trace = Observer::PerfTrace(path);
        all.push(contender(
            trace,
            "perf trace -e sched:sched_switch",
            BY_SPANS,
        ));
    }
    all
}

/// The time inside the BPF program. In a turn of its own, because the kernel's statistics cost
/// something themselves.
fn inside(bench: &Bench, contender: &Contender, folder: &Path) -> Result<Option<f64>, String> {
    if !matches!(
        contender.observer,
        Observer::Floor(_) | Observer::Ticktax(_) | Observer::Waiting | Observer::Bpftrace(_)
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
        "beside",
        "target",
    ]);
    for contender in contenders {
        let median = contender.cost.median();
        let ratio = median / contenders[contender.beside].cost.median();
        let met = if ratio <= TARGET { "met" } else { "not met" };
        let beside = match contender.beside {
            FLOOR_OF_SWITCH | FLOOR_OF_BOTH => "the floor",
            _ => "ticktax",
        };
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
            format!("{ratio:.2} × {beside}"),
            if contender.has_target {
                format!("≤ {TARGET} × the floor: {met}")
            } else {
                "-".to_owned()
            },
        ]);
    }
    table.print();
}
