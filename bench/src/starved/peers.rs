//! Measures how soon perf and bpftrace start under the same loads as ticktax, and how many events
//! they lose.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ticktax_model::Nanos;
use ticktax_probes::clock::now;

use super::load::{self, Load, Loaded};
use super::{PATIENCE, Punctual, SETTLE};
use crate::peer::{Running, Tool, with_tracefs};
use crate::table::{Series, Table};
use crate::{Bench, Outcome};

const PERF: Tool = Tool {
    program: "perf",
    package: "linux-perf",
};
const BPFTRACE: Tool = Tool {
    program: "bpftrace",
    package: "bpftrace",
};

/// Length of a recording, in seconds.
const SECONDS: u32 = 8;

/// Results of starting a third-party tool once.
struct Seen {
    /// Seconds from `exec` to the first event.
    start: f64,
    lost: u64,
}

pub(super) fn run(bench: &Bench, folder: &Path) -> Outcome {
    let mut table = Table::new([
        "peer, load",
        "n",
        "start, s, median",
        "least to most",
        "lost",
    ]);
    let (perf, bpftrace) = (PERF.find(), BPFTRACE.find());
    for load in Load::ALL {
        let perf = perf.as_deref().map(|program| {
            let seen = |_| perf_sched(bench, program, load, folder);
            (
                "perf sched record",
                (0..bench.choose(3, 1)).map(seen).collect::<Vec<_>>(),
            )
        });
        let bpftrace = bpftrace.as_deref().map(|program| {
            let seen = |_| bpftrace_switches(bench, program, load);
            (
                "bpftrace",
                (0..bench.choose(3, 1)).map(seen).collect::<Vec<_>>(),
            )
        });
        for (name, runs) in perf.into_iter().chain(bpftrace) {
            bench.go_on()?;
            let (mut start, mut lost) = (Series::new(), 0);
            for seen in runs {
                match seen {
                    Ok(seen) => {
                        start.push(seen.start);
                        lost += seen.lost;
                    }
                    Err(why) => println!("\n{name}, {load}: {why}; this run is left out."),
                }
            }
            if start.n() == 0 {
                continue;
            }
            table.row([
                format!("{name}, {load}"),
                start.n().to_string(),
                format!("{:.2}", start.median()),
                start.range(2),
                lost.to_string(),
            ]);
        }
    }
    table.print();
    println!("\nlost: events that the peer reports as lost, over all runs.");
    Ok(())
}

/// Runs `command` under `load` while events are produced. Returns when the command was started, and
/// its output.
fn under(bench: &Bench, load: Load, command: &mut Command) -> Result<(Nanos, String), String> {
    let length = Duration::from_secs(u64::from(SECONDS)) + PATIENCE;
    // Start the generator before the load: under the load, it would take seconds to start.
    let _events = load::events(length)?;
    bench.pause(SETTLE).map_err(|error| error.to_string())?;
    let _loaded = Loaded::start(load, length, &[])?;
    bench.pause(SETTLE).map_err(|error| error.to_string())?;
    let punctual = Punctual::start()?;
    let begin = now();
    let mut running = Running::start(command)?;
    drop(punctual);
    let said = running.finish(length)?;
    Ok((begin, said))
}

fn perf_sched(bench: &Bench, perf: &Path, load: Load, folder: &Path) -> Result<Seen, String> {
    let file = folder.join("perf.data");
    let mut record = with_tracefs(perf);
    record.args(["sched", "record", "-k", "CLOCK_MONOTONIC", "-o"]);
    record
        .arg(&file)
        .args(["--", "sleep", &SECONDS.to_string()]);
    let (begin, _) = under(bench, load, &mut record)?;
    // Read the file only after the load has ended.
    let read = |arguments: &[&str]| {
        let mut command = with_tracefs(perf);
        command.args(arguments).arg("-i").arg(&file);
        Running::start(&mut command)?.finish(Duration::from_mins(2))
    };
    let stats = read(&["report", "--stats"])?;
    let count = |name: &str| -> u64 {
        let mut lines = stats.lines().map(str::trim);
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" events:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    // Times of the first and the last sample, in seconds.
    let header = read(&["report", "--header-only"])?;
    let first = header
        .lines()
        .find_map(|line| line.split_once("time of first sample :"))
        .and_then(|(_, time)| time.trim().parse::<f64>().ok());
    let first = first.ok_or("the recording has no time of its first sample")?;
    let lost = count("LOST_SAMPLES").max(count("LOST"));
    let _ = fs::remove_file(&file);
    Ok(Seen {
        start: first - begin.as_secs_f64(),
        lost,
    })
}

fn bpftrace_switches(bench: &Bench, bpftrace: &Path, load: Load) -> Result<Seen, String> {
    let program = format!(
        "BEGIN {{ printf(\"begin %lld\\n\", nsecs); }} \
         tracepoint:sched:sched_switch {{ printf(\"%lld %d %d\\n\", nsecs, args->prev_pid, \
         args->next_pid); }} \
         interval:s:{SECONDS} {{ exit(); }}"
    );
    let mut command = with_tracefs(bpftrace);
    let (begin, said) = under(bench, load, command.args(["-e", &program]))?;
    let first = said.lines().find_map(|line| line.strip_prefix("begin "));
    let first: i64 = first
        .and_then(|time| time.trim().parse().ok())
        .ok_or("it printed no begin")?;
    let lost = said.lines().filter_map(|line| {
        let count = line.strip_prefix("Lost ")?.split_whitespace().next()?;
        count.parse::<u64>().ok()
    });
    Ok(Seen {
        start: (Nanos(first) - begin).as_secs_f64(),
        lost: lost.sum(),
    })
}
