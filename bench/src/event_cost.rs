//! Measures how much a traced event costs the program in which it occurs.
//!
//! Two threads on one CPU wake each other. The cost is the difference in their CPU time per context
//! switch between runs with and without an observer. Unlike elapsed time, CPU time excludes other
//! programs. It also excludes an observer's work on other CPUs, such as reading its buffers. The
//! `load` benchmark measures that work for ticktax.

mod clock_cost;
mod floor;
pub(crate) mod guest;
mod observer;

use std::path::Path;

use ticktax_trace::Output;

use crate::peer::Tool as Peer;
use crate::program_time::Statistics;
use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::tracing::{FLIGHT, SUMS};
use crate::{Bench, Outcome, machine};
use observer::{Observer, observe};

/// Target: an event costs at most this multiple of the floor, which is the cost of just reading the
/// clock.
const TARGET: f64 = 1.25;

/// Tracepoints that fire when the kernel switches between the two threads. Every tracer here
/// attaches a program to `sched_switch`, but only some also trace wake-ups (`sched_waking`).
const SWITCH: &[&str] = &["sched_switch"];
const SWITCH_AND_WAKEUP: &[&str] = &["sched_switch", "sched_waking"];

/// Indices of the contenders that serve as baselines: the two floors, which just read the clock,
/// and two modes of ticktax.
const FLOOR_OF_SWITCH: usize = 0;
const FLOOR_OF_BOTH: usize = 1;
const BY_SUMS: usize = 2;
const BY_SPANS: usize = 3;
/// Buffers large enough for a complete burst, which is 20,000 round trips with a switch and a
/// wake-up in each direction. If events were lost, tracing would look cheaper than it is.
const WHOLE_BURSTS: Output = Output::Spans { per_cpu: 1 << 17 };

/// Triggers that never fire here, so the only cost is that of examining each wait. The first one
/// compares the wait with a fixed time. The second one maintains a histogram of all waits.
const RECORDS: [(&str, &str); 2] = [
    ("wait>10s", "ticktax record --trigger 'wait>10s'"),
    ("wait>p99.9999", "ticktax record --trigger 'wait>p99.9999'"),
];

const BPFTRACE: Peer = Peer {
    program: "bpftrace",
    package: "bpftrace",
};
const PERF: Peer = Peer {
    program: "perf",
    package: "linux-perf",
};

/// An observer (a program that traces the two threads) and its results.
struct Contender {
    observer: Observer,
    name: &'static str,
    /// Index of this contender's baseline.
    beside: usize,
    /// Whether this contender must meet [`TARGET`]. Its baseline is then a floor.
    has_target: bool,
    cost: Series,
    /// Time per run of the observer's BPF program, according to the kernel's statistics.
    inside: Series,
    /// Percentage of context switches that the observer missed.
    missed: Series,
}

/// Unit in which costs are printed.
struct Unit {
    name: &'static str,
    /// Nanoseconds per unit.
    ns: f64,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## event-cost");
    let (contenders, base) = measure(bench, bench.choose(15, 3))?;
    print(
        &contenders,
        &base,
        &Unit {
            name: "ns",
            ns: 1.0,
        },
    );
    if let Some(bpftrace) = BPFTRACE.find() {
        clock_cost::run(bench, &bpftrace)?;
    }
    Ok(())
}

/// Measures what each observer costs per event, and how long a context switch takes without one.
fn measure(
    bench: &Bench,
    rounds: u32,
) -> Result<(Vec<Contender>, Series), Box<dyn std::error::Error>> {
    machine::pin(bench.other)?;
    let mut contenders = contenders();
    let folder = tempfile::tempdir()?;
    let mut base = Series::default();
    for _ in 0..rounds {
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
            // Compare this run with the mean of the runs before and after it, which have no
            // observer. This cancels out gradual changes in the machine's speed.
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
    Ok((contenders, base))
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
        near_floor(WHOLE_BURSTS, "ticktax, every hook, spans", FLOOR_OF_BOTH),
        near_floor(
            FLIGHT,
            "ticktax, every hook, flight recorder",
            FLOOR_OF_BOTH,
        ),
        // This observer accounts for nothing, so it costs only the entry to and exit from its BPF
        // program.
        contender(
            Observer::Waiting,
            "ticktax, attached but not recording",
            FLOOR_OF_SWITCH,
        ),
    ];
    // A lab guest contains this program but not ticktax, so these rows are missing there.
    if let Ok(tool) = Tool::find() {
        all.extend(RECORDS.map(|(trigger, name)| {
            let record = Observer::Record(tool.clone(), trigger);
            contender(record, name, FLOOR_OF_BOTH)
        }));
    }
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

/// Measures the time per run of the observer's BPF program, if it has one. This takes a separate
/// run, because collecting the kernel's statistics also takes time.
fn inside(bench: &Bench, contender: &Contender, folder: &Path) -> Result<Option<f64>, String> {
    if !matches!(
        contender.observer,
        Observer::Floor(_)
            | Observer::Ticktax(_)
            | Observer::Record(..)
            | Observer::Waiting
            | Observer::Bpftrace(_)
    ) {
        return Ok(None);
    }
    let statistics = Statistics::start()?;
    observe(bench, &contender.observer, folder, Some(&statistics)).map(|turn| turn.inside)
}

/// Returns the ratio of a contender's cost to the cost of its baseline. Returns `None` if the
/// baseline's cost might be zero.
fn ratio(contender: &Series, beside: &Series) -> Option<f64> {
    let is_positive = beside.quantile(0.25) > 0.0;
    is_positive.then(|| contender.median() / beside.median())
}

fn print(contenders: &[Contender], base: &Series, unit: &Unit) {
    println!(
        "\nWithout an observer, a switch takes {:.0} {} of CPU time (n {}, quartiles {}).",
        base.median() / unit.ns,
        unit.name,
        base.n(),
        base.scaled(unit.ns).quartiles(0)
    );
    let mut table = Table::new([
        "observer",
        "n",
        &format!("{} an event, median", unit.name),
        "quartiles",
        "least to most",
        "in the BPF program",
        "switches not seen",
        "beside",
        "target",
    ]);
    for contender in contenders {
        let cost = contender.cost.scaled(unit.ns);
        let ratio = ratio(&contender.cost, &contenders[contender.beside].cost);
        let verdict = match ratio {
            None => "not told apart",
            Some(ratio) if ratio <= TARGET => "met",
            Some(_) => "not met",
        };
        let beside = match contender.beside {
            FLOOR_OF_SWITCH | FLOOR_OF_BOTH => "the floor",
            _ => "ticktax",
        };
        table.row([
            contender.name.to_owned(),
            cost.n().to_string(),
            format!("{:.0}", cost.median()),
            cost.quartiles(0),
            cost.range(0),
            match contender.inside.n() {
                0 => "-".to_owned(),
                _ => format!("{:.0}", contender.inside.median() / unit.ns),
            },
            format!("{:.2} %", contender.missed.median()),
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2} × {beside}")),
            if contender.has_target {
                format!("≤ {TARGET} × the floor: {verdict}")
            } else {
                "-".to_owned()
            },
        ]);
    }
    table.print();
}

#[cfg(test)]
mod tests {
    use super::ratio;
    use crate::table::Series;

    #[test]
    fn a_floor_that_could_be_zero_gives_no_ratio() {
        let series = |values: [f64; 3]| values.into_iter().collect::<Series>();
        let cost = series([150.0, 160.0, 170.0]);
        assert_eq!(ratio(&cost, &series([70.0, 80.0, 90.0])), Some(2.0));
        assert_eq!(ratio(&cost, &series([-90.0, 80.0, 90.0])), None);
    }
}
