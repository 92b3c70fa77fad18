//! Benchmarks: what ticktax costs and how fine it sees, each beside its peers in the same run.
//!
//! `cargo run --release -p ticktax-bench -- NAME` runs one, `all` every one, and each prints a
//! Markdown table. Rounds are interleaved (A B C A B C …), so that a machine that slows down
//! slows all of them down. A peer that is not installed costs its own row, nothing else.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark's result goes to the terminal"
)]

mod accounting;
mod agent;
mod attach;
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

/// What a benchmark ends with.
type Outcome = Result<(), Box<dyn Error>>;

type Benchmark = fn(&Bench) -> Outcome;

/// Measures what ticktax costs, beside its peers.
#[derive(Debug, Parser)]
#[command(
    name = "ticktax-bench",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Arguments {
    /// Which benchmark
    #[arg(value_enum, required = true)]
    name: Option<Name>,

    /// Fewer and shorter rounds: to try it out, not to quote
    #[arg(long)]
    quick: bool,

    /// For how long stalls are injected into the recorder's benchmark: 120 is its long form
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_440))]
    minutes: u16,

    #[command(subcommand)]
    verb: Option<Verb>,
}

/// What does not run on this machine's own kernel.
#[derive(Debug, Subcommand)]
enum Verb {
    /// rtla and cyclictest beside an audit, in a guest of the lab
    Peers(PeersArguments),
    /// What runs in that guest
    #[command(name = guest::VERB, hide = true)]
    PeersGuest {
        /// How long each tool is to run
        seconds: u32,
    },
    /// What one traced event costs in instructions, in a guest of the lab
    EventInstructions(InstructionsArguments),
    /// What runs in that guest
    #[command(name = event_cost::guest::VERB, hide = true)]
    EventInstructionsGuest,
    /// The program whose time the benchmark of the observer is about
    #[command(name = observer::VERB, hide = true)]
    ObserverVictim {
        /// Where it computes
        cpu: u32,
    },
    /// The program that the benchmark of the recorder holds up
    #[command(name = recorder::stalls::VICTIM, hide = true)]
    RecorderVictim {
        /// Where it computes
        cpu: u32,
    },
    /// What holds it up
    #[command(name = recorder::stalls::INJECTOR, hide = true)]
    RecorderInjector {
        /// Where
        cpu: u32,
        /// How often
        count: i64,
        /// In how long
        length: Nanos,
        /// What the random times are made from
        seed: u64,
    },
    /// PID 1 of a guest
    #[command(name = ticktax_lab::guest::WORD, hide = true)]
    LabGuest,
}

/// The benchmarks; each has a module of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// What one traced event costs, beside bpftrace and perf
    EventCost,
    /// How small a gap the spin probe resolves, beside oslat
    Spin,
    /// What the sleep probe measures, beside cyclictest
    Sleep,
    /// How late the frames of a paced loop begin, beside cyclictest
    Pace,
    /// How far the accounting check is off, beside programs of known time
    Accounting,
    /// How much of the lost time is explained, idle and under load
    Coverage,
    /// The tool's CPU time and memory, and events lost, by the rate of events
    Load,
    /// The agent's CPU time and memory, by the rate of events
    Agent,
    /// What watches a machine all the time, beside other collectors and perf as a flight recorder
    Collectors,
    /// What an audit costs the program that it is asked about
    Observer,
    /// What the flight recorder catches of stalls at random times
    Recorder,
    /// Throughput beside iperf3, and accounts of traffic beside a soaker
    Net,
    /// What stalls of known length lose of datagrams, beside what is predicted
    Packets,
    /// How long loading and attaching the tracer takes
    Attach,
    /// Rows a second through the ledger, and into and out of a file
    Ledger,
    /// All of them
    All,
}

/// What every benchmark needs to know.
struct Bench {
    quick: bool,
    minutes: u16,
    /// The CPU that is measured: the last one, which interrupts and daemons leave alone most.
    measured: Cpu,
    /// The CPU of everything else: this process, its collector, the peers.
    other: Cpu,
    interrupted: Arc<AtomicBool>,
}

impl Bench {
    /// `full`, or `quick` where little time is to be spent.
    fn choose<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Sleeps, until it is interrupted.
    fn pause(&self, length: Duration) -> Outcome {
        let end = now() + Nanos(i64::try_from(length.as_nanos())?);
        while now() < end {
            self.go_on()?;
            thread::sleep(Duration::from_millis(10).min(length));
        }
        self.go_on()
    }

    /// An error once it was interrupted: peers are ended and files removed on the way out.
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
        ) => recorder::stalls::inject(Cpu(cpu), (count, length, seed)),
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

/// A flag that Ctrl-C raises.
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

/// What this machine has for benchmarks.
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
    let all: [(Name, Benchmark); 15] = [
        (Name::EventCost, event_cost::run),
        (Name::Spin, spin::run),
        (Name::Sleep, sleep::run),
        (Name::Pace, pace::run),
        (Name::Accounting, accounting::run),
        (Name::Coverage, coverage::run),
        (Name::Load, load::run),
        (Name::Agent, agent::run),
        (Name::Collectors, collectors::run),
        (Name::Observer, observer::run),
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
