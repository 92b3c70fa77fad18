//! Measures how much an audit costs the audited program.
//!
//! A process computes alternately with and without an audit. During each computation, two threads
//! in another process produce a few thousand events per second, either on another CPU or on the
//! computing process's own.
//!
//! The computing process measures its own progress: how many blocks it computes per second of CPU
//! time charged to it. That CPU time includes the tracer's work in the process's context and in
//! interrupts on its CPU. The table also shows a figure from the statement: how long the program
//! waited while ticktax's threads ran.

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

/// The hidden subcommand that turns this program into the computing process.
pub(crate) const VERB: &str = "observer-victim";

/// Interval between batches of context switches.
const PACE: Nanos = Nanos::from_millis(10);
/// Round trips per batch. Each one has two context switches, and each switch causes two events: the
/// switch itself and a wake-up.
const TRIPS: u64 = 17;
/// Time for an audit to start up before the program begins to compute.
const SETTLE: Duration = Duration::from_millis(1_500);
/// Duration of each computation, with or without an audit.
const LENGTH: Nanos = Nanos::from_secs(2);
/// Target: an audit costs at most this percentage of the program's time.
const TARGET: f64 = 0.1;

/// A load that causes events on a CPU, and the results for it.
struct EventLoad {
    name: &'static str,
    cpu: Option<Cpu>,
    /// Slowdown of the program's computation during an audit, in percent. Each run with an audit is
    /// compared with the mean of the runs before and after it, which have none.
    lost: Series,
    /// Difference between the two runs without an audit, in percent, which shows how much the
    /// machine's speed varies.
    nothing: Series,
    /// Percentage of the audited time that the program spent waiting behind ticktax, according to
    /// the audit's statement.
    stated: Series,
    events: Series,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## observer");
    let tool = Tool::find()?;
    let load = |name, cpu| EventLoad {
        name,
        cpu,
        lost: Series::new(),
        nothing: Series::new(),
        stated: Series::new(),
        events: Series::new(),
    };
    let mut loads = [
        load("none but the machine's own", None),
        load("switches on another CPU", Some(bench.other)),
        load("switches on the program's CPU", Some(bench.measured)),
    ];
    for _ in 0..bench.choose(15, 2) {
        for load in &mut loads {
            bench.go_on()?;
            turn(bench, &tool, load)?;
        }
    }
    print(&loads);
    Ok(())
}

/// Computes once without an audit, once with an audit, and once more without one.
fn turn(bench: &Bench, tool: &Tool, load: &mut EventLoad) -> Outcome {
    let length = Nanos(3 * LENGTH.0 + 4 * 1_500_000_000);
    let cpu = bench.measured;
    let mut victim = Victim::start(cpu)?;
    thread::scope(|scope| {
        let maker = load
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
        load.lost.push(100.0 * (1.0 - with / without));
        load.nothing.push(100.0 * (1.0 - after / before));
        load.stated.push(stated(&statement)?);
        let watched = statement.cpus.iter().map(|books| books.elapsed).max();
        let watched = watched.unwrap_or_default().as_secs_f64();
        load.events.push(statement.cost.events as f64 / watched);
        Ok(())
    })
}

/// The computing process. Dropping it ends the process.
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

    /// Has the process run its computation once. Returns how many blocks it computed per second of
    /// CPU time.
    fn compute(&mut self) -> Result<f64, Box<dyn Error>> {
        writeln!(self.ask, "go")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim().parse()?)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // The process exits when its input is closed. Kill it in case it does not.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Main function of the computing process. Computes once per line of input.
pub(crate) fn compute_when_asked(cpu: Cpu) -> Outcome {
    machine::pin(cpu)?;
    for line in io::stdin().lines() {
        line?;
        println!("{}", computed());
    }
    Ok(())
}

/// Computes for a while. Returns how many blocks it computed per second of this thread's CPU time.
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

/// Returns the percentage of the audited time that the program spent waiting while ticktax's
/// threads ran.
fn stated(statement: &Statement) -> Result<f64, String> {
    let victim = statement.victim.as_ref();
    let threads = victim.and_then(|victim| victim.threads.as_ref());
    let threads = threads.ok_or("the statement has no threads of the program")?;
    let behind = threads.behind.iter();
    let behind = behind.filter(|one| [TOOL, PROBE].contains(&&*one.name));
    let time: Nanos = behind.map(|one| one.time).sum();
    let watched = statement.cpus.iter().map(|books| books.elapsed).max();
    Ok(100.0 * time.share_of(watched.unwrap_or_default()))
}

/// Describes whether the target is met. The verdict is undecided if the runs without an audit vary
/// by more than the target.
fn verdict(load: &EventLoad) -> String {
    let nothing = load.nothing.quantile(0.75) - load.nothing.quantile(0.25);
    let said = if nothing > TARGET {
        "not told apart"
    } else if load.lost.median() <= TARGET {
        "met"
    } else {
        "not met"
    };
    format!("≤ {TARGET}: {said}")
}

fn print(loads: &[EventLoad]) {
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
    for load in loads {
        let lost = load.lost.median();
        table.row([
            load.name.to_owned(),
            load.lost.n().to_string(),
            format!("{:.0}", load.events.median()),
            format!("{lost:.3}"),
            load.lost.quartiles(3),
            format!("{:.3}", load.nothing.median()),
            load.nothing.quartiles(3),
            format!("{:.4}", load.stated.median()),
            verdict(load),
        ]);
    }
    table.print();
    println!(
        "\nlost: of what the computation gets done in a second of its CPU time; without an audit: the \
         same between two turns that nobody watches. Where the quartiles of these lie further apart than \
         the target, a row cannot tell whether it is met."
    );
}
