//! What an audit costs the program that it is asked about: a thread that computes, with and without an
//! audit of it in turns, while pairs of threads switch ten thousand times a second, on another CPU or
//! on its own.
//!
//! The thread knows by itself what it got done: blocks of one computation in the CPU time that it was
//! charged, which has in it whatever the tracer does in its context and in its CPU's interrupts. Beside
//! it is what the statement says: its waits behind the tool's threads.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use ticktax_host::own_thread_cpu_time;
use ticktax_model::statement::Statement;
use ticktax_model::victim::{PROBE, TOOL};
use ticktax_model::{Cpu, Nanos};

use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome, machine, ping_pong};

/// Events a second: a switch is one.
const RATE: u32 = 10_000;
/// From one batch of switches to the next.
const PACE: Nanos = Nanos::from_millis(10);
/// Round trips a batch, of two switches each.
const TRIPS: u64 = 50;
/// For this long an audit gets ready, and is read after the computation.
const SETTLE: Duration = Duration::from_millis(1_500);
/// How long the computation goes on.
const LENGTH: Nanos = Nanos::from_secs(2);
/// The share of its time, in percent, that an audit may cost the program.
const TARGET: f64 = 0.1;

/// Where the events come about.
struct Place {
    name: &'static str,
    cpu: Option<Cpu>,
    /// What the audit took of the computation, in percent: each turn beside the one without.
    lost: Series,
    /// The same between two turns without one: what the machine does by itself.
    nothing: Series,
    /// What the statement says, in percent.
    told: Series,
    events: Series,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## observer");
    let tool = Tool::find()?;
    let place = |name, cpu| Place {
        name,
        cpu,
        lost: Series::new(),
        nothing: Series::new(),
        told: Series::new(),
        events: Series::new(),
    };
    let mut places = [
        place("none but the machine's own", None),
        place("10 k/s on another CPU", Some(bench.other)),
        place("10 k/s on the program's CPU", Some(bench.measured)),
    ];
    for _ in 0..bench.choose(7, 2) {
        for place in &mut places {
            bench.go_on()?;
            turn(bench, &tool, place)?;
        }
    }
    print(&places);
    Ok(())
}

/// Without an audit, with one, and without again.
fn turn(bench: &Bench, tool: &Tool, place: &mut Place) -> Outcome {
    let length = Nanos(3 * LENGTH.0 + 4 * 1_500_000_000);
    let cpu = bench.measured;
    thread::scope(|scope| {
        let maker = place
            .cpu
            .map(|cpu| scope.spawn(move || ping_pong::run_paced(cpu, TRIPS, PACE, length)));
        let compute = || {
            let worker = thread::Builder::new().name("bench-victim".to_owned());
            let computed = worker
                .spawn(move || computed(cpu))
                .map(thread::JoinHandle::join);
            computed
                .map_err(|error| error.to_string())?
                .map_err(|_| "the computation panicked")?
        };
        let before = compute()?;
        let own = std::process::id().to_string();
        let audit = tool.audit(4, &["--probe", "none", "--keep", "spans", "--pid", &own])?;
        bench.pause(SETTLE)?;
        let with = compute()?;
        let statement = audit.statement(bench)?;
        let after = compute()?;
        if let Some(made) = maker.map(thread::ScopedJoinHandle::join) {
            made.map_err(|_| "the generator panicked")??;
        }
        let without = f64::midpoint(before, after);
        place.lost.push(100.0 * (1.0 - with / without));
        place.nothing.push(100.0 * (1.0 - after / before));
        place.told.push(told(&statement)?);
        let watched = statement.cpus.iter().map(|books| books.elapsed).max();
        let watched = watched.unwrap_or_default().as_secs_f64();
        place.events.push(statement.cost.events as f64 / watched);
        Ok(())
    })
}

/// Blocks of a computation done in a second of CPU time on `cpu`.
fn computed(cpu: Cpu) -> Result<f64, String> {
    machine::pin(cpu).map_err(|error| error.to_string())?;
    let begin = own_thread_cpu_time();
    let (mut blocks, mut value) = (0_u64, 1_u64);
    loop {
        for _ in 0..20_000 {
            value = black_box(
                value
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            );
        }
        blocks += 1;
        let used = own_thread_cpu_time() - begin;
        if used >= LENGTH {
            return Ok(blocks as f64 / used.as_secs_f64());
        }
    }
}

/// The share of the watched time for which the program waited behind the tool, in percent.
fn told(statement: &Statement) -> Result<f64, String> {
    let victim = statement.victim.as_ref();
    let threads = victim.and_then(|victim| victim.threads.as_ref());
    let threads = threads.ok_or("the statement has no threads of the program")?;
    let behind = threads.behind.iter();
    let behind = behind.filter(|one| [TOOL, PROBE].contains(&&*one.name));
    let time: Nanos = behind.map(|one| one.time).sum();
    let watched = statement.cpus.iter().map(|books| books.elapsed).max();
    Ok(100.0 * time.share_of(watched.unwrap_or_default()))
}

fn print(places: &[Place]) {
    let mut table = Table::new([
        "events",
        "n",
        "events/s seen",
        "lost to the audit, %",
        "quartiles",
        "without an audit, %",
        "quartiles",
        "by the statement, %",
        "target",
    ]);
    for place in places {
        let lost = place.lost.median();
        table.row([
            place.name.to_owned(),
            place.lost.n().to_string(),
            format!("{:.0}", place.events.median()),
            format!("{lost:.3}"),
            place.lost.quartiles(3),
            format!("{:.3}", place.nothing.median()),
            place.nothing.quartiles(3),
            format!("{:.4}", place.told.median()),
            if lost <= TARGET {
                format!("≤ {TARGET}: met")
            } else {
                format!("≤ {TARGET}: not met")
            },
        ]);
    }
    table.print();
    println!(
        "\nlost: of what the computation gets done in a second of its CPU time, at {RATE} switches a \
         second; without an audit: the same between two turns that nobody watches."
    );
}
