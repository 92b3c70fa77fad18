//! What an audit costs the program that it is asked about: a process that computes, with and without an
//! audit of it in turns, while two threads of another make some thousands of events a second, on another
//! CPU or on its own.
//!
//! The process knows by itself what it got done: blocks of one computation in the CPU time that it was
//! charged, which has in it whatever the tracer does in its context and in its CPU's interrupts. Beside
//! it is what the statement says: its waits behind the tool's threads.

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use ticktax_host::own_thread_cpu_time;
use ticktax_model::statement::Statement;
use ticktax_model::victim::{PROBE, TOOL};
use ticktax_model::{Cpu, Nanos};

use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome, machine, ping_pong};

/// The hidden verb of this program as the process that computes.
pub(crate) const VERB: &str = "observer-victim";

/// From one batch of switches to the next.
const PACE: Nanos = Nanos::from_millis(10);
/// Round trips a batch, of two switches each; a switch is two events: it, and the wake-up before it.
const TRIPS: u64 = 17;
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
        place("switches on another CPU", Some(bench.other)),
        place("switches on the program's CPU", Some(bench.measured)),
    ];
    for _ in 0..bench.choose(15, 2) {
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
    let mut victim = Victim::start(cpu)?;
    thread::scope(|scope| {
        let maker = place
            .cpu
            .map(|cpu| scope.spawn(move || ping_pong::run_paced(cpu, TRIPS, PACE, length)));
        let before = victim.compute()?;
        let own = victim.process.id().to_string();
        let audit = tool.audit(4, &["--probe", "none", "--keep", "spans", "--pid", &own])?;
        bench.pause(SETTLE)?;
        let with = victim.compute()?;
        let statement = audit.statement(bench)?;
        let after = victim.compute()?;
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

/// The process that computes, ended when this is dropped.
struct Victim {
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Victim {
    fn start(cpu: Cpu) -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(env::current_exe()?)
            .args([VERB, &cpu.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (ask, answers) = (process.stdin.take(), process.stdout.take());
        let (Some(ask), Some(answers)) = (ask, answers) else {
            return Err("the process that computes has no pipes".into());
        };
        let answers = BufReader::new(answers);
        Ok(Self {
            process,
            ask,
            answers,
        })
    }

    /// Blocks done in a second of its CPU time, in one turn.
    fn compute(&mut self) -> Result<f64, Box<dyn Error>> {
        writeln!(self.ask, "go")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim().parse()?)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It ends by itself once nobody asks any more; either way nothing is left of it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The process that computes: a turn for each line that it reads.
pub(crate) fn compute_when_asked(cpu: Cpu) -> Outcome {
    machine::pin(cpu)?;
    for line in io::stdin().lines() {
        line?;
        println!("{}", computed());
    }
    Ok(())
}

/// Blocks of a computation done in a second of this thread's CPU time.
fn computed() -> f64 {
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
            return blocks as f64 / used.as_secs_f64();
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

/// Whether the target is met, where two turns that nobody watches differ by less than it.
fn verdict(place: &Place) -> String {
    let nothing = place.nothing.quantile(0.75) - place.nothing.quantile(0.25);
    let said = if nothing > TARGET {
        "not told apart"
    } else if place.lost.median() <= TARGET {
        "met"
    } else {
        "not met"
    };
    format!("≤ {TARGET}: {said}")
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
            verdict(place),
        ]);
    }
    table.print();
    println!(
        "\nlost: of what the computation gets done in a second of its CPU time; without an audit: the \
         same between two turns that nobody watches. Where the quartiles of these lie further apart than \
         the target, a row cannot tell whether it is met."
    );
}
