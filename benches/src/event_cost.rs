//! What one traced event costs the program that it happens to.
//!
//! Two threads on one CPU wake each other; the CPU time of both from one context switch to the
//! next, with an observer less without, is the observer's price of an event. CPU time rather than
//! time on the wall, because other programs are not in it. What an observer does on another CPU
//! (reading its buffers) is not in it either: `load` tells that of ticktax.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use ticktax_trace::Output;

use crate::peer::{Running, Tool, with_tracefs};
use crate::ping_pong::{self, Taken};
use crate::program_time::Statistics;
use crate::table::{Series, Table};
use crate::tracing::{INTERVAL, SPANS, SUMS, Tracing};
use crate::{Bench, Outcome, machine};

const BPFTRACE: Tool = Tool {
    program: "bpftrace",
    package: "bpftrace",
};
const PERF: Tool = Tool {
    program: "perf",
    package: "linux-perf",
};

/// The program that bpftrace runs: the shortest useful one, and the same sum that ticktax keeps
/// least of.
const COUNT: &str = "tracepoint:sched:sched_switch { @[args->prev_comm] = count(); }";

/// Peers attach their programs within this time.
const SETTLE: Duration = Duration::from_millis(1_500);

/// Who observes.
#[derive(Clone, Debug)]
enum Observer {
    Nobody,
    Ticktax(Output),
    Bpftrace(PathBuf),
    PerfRecord(PathBuf),
    PerfTrace(PathBuf),
}

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

/// What one observer's turn came to.
struct Turn {
    per_switch: f64,
    missed: f64,
    inside: Option<f64>,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## event-cost");
    machine::pin(bench.other)?;
    let mut contenders = contenders();
    let folder = tempfile::tempdir()?;
    let mut base = Series::default();
    for _ in 0..bench.choose(15, 3) {
        let mut nothing = turn(bench, &Observer::Nobody, folder.path())?.per_switch;
        for contender in &mut contenders {
            bench.go_on()?;
            let found = match turn(bench, &contender.observer, folder.path()) {
                Ok(found) => found,
                Err(why) => {
                    bench.go_on()?;
                    println!("\n{}: {why}; this round is left out.", contender.name);
                    continue;
                }
            };
            // Between one turn without and the next, so that a drift of the machine cancels.
            let after = turn(bench, &Observer::Nobody, folder.path())?.per_switch;
            contender
                .cost
                .push(found.per_switch - f64::midpoint(nothing, after));
            contender.missed.push(found.missed);
            base.push(nothing);
            nothing = after;
            if let Some(inside) = inside(bench, contender, folder.path())? {
                contender.inside.push(inside);
            }
        }
    }
    print(&contenders, &base);
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
        Observer::Ticktax(_) | Observer::Bpftrace(_)
    ) {
        return Ok(None);
    }
    let statistics = Statistics::start()?;
    observe(bench, &contender.observer, folder, Some(&statistics)).map(|turn| turn.inside)
}

fn turn(bench: &Bench, observer: &Observer, folder: &Path) -> Result<Turn, String> {
    observe(bench, observer, folder, None)
}

/// Starts the observer, has the threads play, ends the observer and asks how much it saw.
fn observe(
    bench: &Bench,
    observer: &Observer,
    folder: &Path,
    statistics: Option<&Statistics>,
) -> Result<Turn, String> {
    let play = |meanwhile: &mut dyn FnMut()| play(bench, statistics, meanwhile);
    match observer {
        Observer::Nobody => play(&mut || {}).map(|played| played.turn(None)),
        Observer::Ticktax(output) => {
            let mut tracing = Tracing::load(*output)?;
            tracing.start();
            let played = play(&mut || tracing.drain())?;
            let lost: u64 = tracing.close().lost.iter().map(|loss| loss.events).sum();
            let seen = played.switches.saturating_sub(lost);
            Ok(played.turn(Some(seen)))
        }
        Observer::Bpftrace(path) => {
            let mut command = with_tracefs(path);
            let running = Running::start(command.args(["-e", COUNT]))?;
            settle(bench)?;
            let played = play(&mut || {})?;
            let seen = counted_by_bpftrace(&running.interrupt()?);
            played.checked(seen)
        }
        Observer::PerfRecord(path) => {
            let file = folder.join("perf.data");
            let mut command = with_tracefs(path);
            // Buffers that hold a whole burst: a lost event would be a cheap one.
            command.args([
                "record",
                "-q",
                "-a",
                "-m",
                "16M",
                "-e",
                "sched:sched_switch",
            ]);
            let running = Running::start(command.arg("-o").arg(&file))?;
            settle(bench)?;
            let played = play(&mut || {})?;
            running.interrupt()?;
            played.checked(counted_by_perf(path, &file)?)
        }
        Observer::PerfTrace(path) => {
            let file = folder.join("perf.txt");
            let mut command = with_tracefs(path);
            command.args(["trace", "-a", "-m", "16M", "-e", "sched:sched_switch"]);
            let running = Running::start(command.arg("-o").arg(&file))?;
            settle(bench)?;
            let played = play(&mut || {})?;
            running.interrupt()?;
            let lines = fs::read(&file).map_err(|error| format!("no output: {error}"))?;
            let lines = String::from_utf8_lossy(&lines);
            let ours = format!("prev_comm: \"{}", ping_pong::NAME);
            played.checked(lines.lines().filter(|line| line.contains(&ours)).count() as u64)
        }
    }
}

fn settle(bench: &Bench) -> Result<(), String> {
    bench.pause(SETTLE).map_err(|error| error.to_string())
}

/// What the threads did in one turn.
struct Played {
    bursts: Series,
    switches: u64,
    inside: Option<f64>,
}

impl Played {
    fn turn(&self, seen: Option<u64>) -> Turn {
        let seen = seen.map_or(1.0, |seen| seen as f64 / self.switches.max(1) as f64);
        Turn {
            per_switch: self.bursts.median(),
            missed: 100.0 * (1.0 - seen.min(1.0)),
            inside: self.inside,
        }
    }

    /// As [`Played::turn`], unless the observer came too late to see most of it.
    fn checked(&self, seen: u64) -> Result<Turn, String> {
        if seen < self.switches / 2 {
            return Err(format!("it saw {seen} of {} switches", self.switches));
        }
        Ok(self.turn(Some(seen)))
    }
}

/// Has the threads play in short bursts, whose median a disturbance does not reach.
fn play(
    bench: &Bench,
    statistics: Option<&Statistics>,
    meanwhile: &mut dyn FnMut(),
) -> Result<Played, String> {
    let (bursts, trips) = bench.choose((9, 20_000), (5, 10_000));
    let cpu = bench.measured;
    let before = statistics.map(Statistics::of_switches);
    let taken: Vec<Taken> = thread::scope(|scope| {
        let player = scope.spawn(move || {
            let bursts = (0..bursts).map(|_| ping_pong::run(cpu, trips));
            bursts.collect::<Result<_, _>>()
        });
        while !player.is_finished() {
            meanwhile();
            thread::sleep(INTERVAL);
        }
        let result = player.join();
        result.unwrap_or_else(|_| Err(std::io::Error::other("the ping-pong panicked")))
    })
    .map_err(|error| format!("no ping-pong: {error}"))?;
    let inside = statistics.zip(before);
    Ok(Played {
        bursts: taken.iter().map(|taken| taken.per_switch()).collect(),
        switches: taken.iter().map(|taken| taken.switches).sum(),
        inside: inside
            .and_then(|(statistics, before)| statistics.of_switches().per_run_since(before)),
    })
}

/// The sum of bpftrace's lines `@[NAME]: COUNT` of our threads.
fn counted_by_bpftrace(said: &str) -> u64 {
    let ours = format!("@[{}", ping_pong::NAME);
    let lines = said.lines().filter(|line| line.starts_with(&ours));
    let counts = lines.filter_map(|line| line.rsplit_once(": ")?.1.trim().parse::<u64>().ok());
    counts.sum()
}

/// How many samples a file of perf has. Those of other threads are in it, too: few.
fn counted_by_perf(perf: &Path, file: &Path) -> Result<u64, String> {
    let mut command = Command::new(perf);
    command.args(["report", "--stats", "-i"]).arg(file);
    let said = Running::start(&mut command)?.finish(Duration::from_secs(60))?;
    let line = said.lines().find(|line| line.contains("SAMPLE events:"));
    let count = line.and_then(|line| {
        let words = line.split_once("SAMPLE events:")?.1;
        words.split_whitespace().next()?.parse().ok()
    });
    count.ok_or_else(|| "perf report tells no number of samples".to_owned())
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
                .map_or("-".to_owned(), |most| format!("≤ {most:.0}: {}", met(most))),
        ]);
    }
    table.print();
}

#[cfg(test)]
mod tests {
    use super::counted_by_bpftrace;

    #[test]
    fn only_our_threads_are_counted() {
        let said =
            "Attaching 1 probe...\n\n@[kworker/0:1]: 7\n@[bench-ping]: 20\n@[bench-pong]: 3\n";
        assert_eq!(counted_by_bpftrace(said), 23);
        assert_eq!(counted_by_bpftrace(""), 0);
    }
}
