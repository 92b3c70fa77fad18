//! Measures ticktax's cost and resolution, and compares them with similar tools in the same run.
//!
//! `cargo run --release -p ticktax-bench -- NAME` runs one benchmark, and `all` runs all of them.
//! Each benchmark prints a Markdown table. Rounds are interleaved (A B C A B C …), so that a
//! slowdown of the machine affects all contenders equally. If a third-party tool is not installed,
//! its row is missing.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark's result goes to the terminal"
)]

mod accounting;
mod agent;
mod attach;
mod bystanders;
mod collectors;
mod coverage;
mod event_cost;
mod ledger;
mod load;
mod machine;
mod net;
mod observer;
mod pace;
mod packets;
mod peer;
mod ping_pong;
mod program_time;
mod recorder;
mod recording;
mod sleep;
mod spin;
mod starved;
mod system_calls;
mod tool;
mod tracing;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::event_cost::guest::InstructionsArguments;
use clap::{Parser, Subcommand, ValueEnum};
use ticktax_bench::peers::host::{self, PeersArguments};
use ticktax_bench::peers::{guest, page};
use ticktax_bench::table;
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::clock::now;

/// Result of a benchmark.
type Outcome = Result<(), Box<dyn Error>>;

type Benchmark = fn(&Bench) -> Outcome;

/// Measure what ticktax costs, and compare it with similar tools
#[derive(Debug, Parser)]
#[command(
    name = "ticktax-bench",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Arguments {
    /// Name of the benchmark
    #[arg(value_enum, required = true)]
    name: Option<Name>,

    /// Run fewer and shorter rounds, as a trial
    #[arg(long)]
    quick: bool,

    /// Minutes of injected stalls in the recorder's benchmark; its long form uses 120
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_440))]
    minutes: u16,

    #[command(subcommand)]
    verb: Option<Verb>,
}

/// Benchmarks that run in a lab guest, and hidden helpers that this program starts itself.
#[derive(Debug, Subcommand)]
enum Verb {
    /// Compare rtla and cyclictest with an audit, in a lab guest
    Peers(PeersArguments),
    /// Part of `peers` that runs in the guest
    #[command(name = guest::VERB, hide = true)]
    PeersGuest {
        /// Run time of each tool
        seconds: u32,
    },
    /// Count the instructions of one traced event, in a lab guest
    EventInstructions(InstructionsArguments),
    /// Part of `event-instructions` that runs in the guest
    #[command(name = event_cost::guest::VERB, hide = true)]
    EventInstructionsGuest,
    /// Program audited by the observer's benchmark
    #[command(name = observer::VERB, hide = true)]
    ObserverVictim {
        /// CPU to compute on
        cpu: u32,
    },
    /// Program delayed by the recorder's benchmark
    #[command(name = recorder::stalls::VICTIM, hide = true)]
    RecorderVictim {
        /// CPU to compute on
        cpu: u32,
    },
    /// Program that causes the delays
    #[command(name = recorder::stalls::INJECTOR, hide = true)]
    RecorderInjector {
        /// CPU to occupy
        cpu: u32,
        /// Number of stalls
        count: i64,
        /// Total time
        length: Nanos,
        /// Seed of the random times
        seed: u64,
    },
    /// Process that takes CPU time in the benchmark of starvation
    #[command(name = starved::load::SPINNER, hide = true)]
    StarvedSpinner(starved::load::Spinner),
    /// Generator of events in the benchmark of starvation
    #[command(name = starved::load::GENERATOR, hide = true)]
    StarvedGenerator {
        /// Length in seconds
        seconds: u32,
    },
    /// PID 1 of a guest
    #[command(name = ticktax_lab::guest::WORD, hide = true)]
    LabGuest,
}

/// The benchmarks that run on this machine. Each has its own module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Cost of one traced event, compared with bpftrace and perf
    EventCost,
    /// Shortest gap that the spin probe resolves, compared with oslat
    Spin,
    /// Latency measured by the sleep probe, compared with cyclictest
    Sleep,
    /// Lateness of the frames of a paced loop, compared with cyclictest
    Pace,
    /// Error of the accounting check, for programs whose CPU time is known
    Accounting,
    /// Share of lost time that is explained, idle and under load
    Coverage,
    /// CPU time, memory and lost events of the tool, by event rate
    Load,
    /// Start-up time and lost events on a machine without a CPU to spare, compared with perf and
    /// bpftrace
    Starved,
    /// CPU time and memory of the agent, by event rate
    Agent,
    /// Cost of monitoring continuously, compared with other collectors and perf as a flight
    /// recorder
    Collectors,
    /// Cost of an audit to the audited program
    Observer,
    /// Cost of a default audit to a 60 Hz loop and a compilation
    Bystanders,
    /// Cost of an audit to the system calls of a program that is not watched
    SystemCalls,
    /// Share of random stalls that the flight recorder catches
    Recorder,
    /// Throughput compared with iperf3, and traffic accounts compared with a soaker
    Net,
    /// Datagrams lost in stalls of known length, compared with the prediction
    Packets,
    /// Time to load and attach the tracer
    Attach,
    /// Rows per second through the ledger, and to and from a file
    Ledger,
    /// All benchmarks
    All,
}

/// Settings that all benchmarks share.
struct Bench {
    quick: bool,
    minutes: u16,
    /// The CPU to measure on. It is the last one, because interrupts and daemons use that one
    /// least.
    measured: Cpu,
    /// The CPU for everything that is not measured, such as this process, the tracer's collector
    /// and third-party tools.
    other: Cpu,
    interrupted: Arc<AtomicBool>,
}

impl Bench {
    /// Returns `quick` if this is a quick run, otherwise `full`.
    fn choose<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Sleeps for `length`. Returns an error if the user interrupts the benchmark.
    fn pause(&self, length: Duration) -> Outcome {
        let end = now() + Nanos(i64::try_from(length.as_nanos())?);
        while now() < end {
            self.go_on()?;
            thread::sleep(Duration::from_millis(10).min(length));
        }
        self.go_on()
    }

    /// Returns an error if the user has interrupted the benchmark. The caller then stops tools and
    /// removes files before it exits.
    fn go_on(&self) -> Outcome {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err("interrupted".into());
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match (&arguments.verb, arguments.name) {
        (Some(Verb::Peers(typed)), _) => peers(typed),
        (Some(Verb::EventInstructions(typed)), _) => event_instructions(typed),
        (Some(Verb::EventInstructionsGuest), _) => {
            bench(true, 0).and_then(|bench| event_cost::guest::in_guest(&bench))
        }
        (Some(Verb::PeersGuest { seconds }), _) => guest::run(*seconds).map_err(Into::into),
        (Some(Verb::ObserverVictim { cpu }), _) => observer::compute_when_asked(Cpu(*cpu)),
        (Some(Verb::RecorderVictim { cpu }), _) => recorder::stalls::hold(Cpu(*cpu)),
        (
            &Some(Verb::RecorderInjector {
                cpu,
                count,
                length,
                seed,
            }),
            _,
        ) => recorder::stalls::inject(Cpu(cpu), count, length, seed),
        (Some(Verb::StarvedSpinner(spinner)), _) => starved::load::spin(spinner),
        (Some(Verb::StarvedGenerator { seconds }), _) => starved::load::generate(*seconds),
        (Some(Verb::LabGuest), _) if ticktax_lab::guest::is_init() => {
            Err(ticktax_lab::guest::run().into())
        }
        (Some(Verb::LabGuest), _) => Err("lab-guest is for PID 1 of a lab's guest alone".into()),
        (None, Some(name)) => run(name, &arguments),
        (None, None) => Err("name a benchmark".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ticktax-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns a flag that is set when the user presses Ctrl-C or the process receives SIGTERM.
fn interrupted() -> Result<Arc<AtomicBool>, Box<dyn Error>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    Ok(interrupted)
}

fn peers(typed: &PeersArguments) -> Outcome {
    let interrupted = interrupted()?;
    let stop = || interrupted.load(Ordering::Relaxed);
    let statement = host::run(typed, &stop, &mut |words| eprintln!("{words}"))?;
    print!("{}", page::page(&statement));
    match &*host::failures(&statement) {
        [] => Ok(()),
        failures => Err(failures.join("; ").into()),
    }
}

fn event_instructions(typed: &InstructionsArguments) -> Outcome {
    let interrupted = interrupted()?;
    event_cost::guest::run(typed, &|| interrupted.load(Ordering::Relaxed))
}

/// Chooses the CPUs to use, and installs the Ctrl-C handler.
fn bench(quick: bool, minutes: u16) -> Result<Bench, Box<dyn Error>> {
    let online = ticktax_probes::online_cpus()?;
    let first = online.iter().next().unwrap_or(Cpu(0));
    Ok(Bench {
        quick,
        minutes,
        measured: online.iter().last().unwrap_or(first),
        other: first,
        interrupted: interrupted()?,
    })
}

fn run(asked: Name, arguments: &Arguments) -> Outcome {
    let bench = bench(arguments.quick, arguments.minutes)?;
    let online = ticktax_probes::online_cpus()?;
    let everywhere: Vec<Cpu> = online.iter().collect();
    println!("{}", machine::line());
    let all: [(Name, Benchmark); 18] = [
        (Name::EventCost, event_cost::run),
        (Name::Spin, spin::run),
        (Name::Sleep, sleep::run),
        (Name::Pace, pace::run),
        (Name::Accounting, accounting::run),
        (Name::Coverage, coverage::run),
        (Name::Load, load::run),
        (Name::Starved, starved::run),
        (Name::Agent, agent::run),
        (Name::Collectors, collectors::run),
        (Name::Observer, observer::run),
        (Name::Bystanders, bystanders::run),
        (Name::SystemCalls, system_calls::run),
        (Name::Recorder, recorder::run),
        (Name::Net, net::run),
        (Name::Packets, packets::run),
        (Name::Attach, attach::run),
        (Name::Ledger, ledger::run),
    ];
    for (name, benchmark) in all {
        if asked == name || asked == Name::All {
            machine::pin_to_all(&everywhere)?;
            benchmark(&bench)?;
            println!("\nLoad average afterwards: {}", machine::load_average());
        }
    }
    Ok(())
}
