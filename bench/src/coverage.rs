//! Measures how much of the time lost by a spinning loop can be explained, on an idle machine and
//! on loaded ones.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use ticktax_model::Nanos;
use ticktax_model::statement::{GapParts, Statement};

use crate::peer::{Running, Tool as Peer};
use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome};

const STRESS: Peer = Peer {
    program: "stress-ng",
    package: "stress-ng",
};

/// Target: at most this percentage of the time in gaps is unexplained.
const TARGET: f64 = 1.0;

/// The situations in which to measure, each with the stress-ng options that create it.
const SITUATIONS: [(&str, &[&[&str]]); 3] = [
    ("nothing else", &[]),
    ("cpu, hdd, timer", &[STEADY]),
    // The load with the highest event rate that stress-ng can produce on this machine.
    ("cpu, hdd, timer, udp", &[STEADY, &["--udp", "1"]]),
];

const STEADY: &[&str] = &[
    "--cpu",
    "1",
    "--cpu-load",
    "60",
    "--hdd",
    "1",
    "--hdd-bytes",
    "64M",
    "--timer",
    "1",
    "--timer-freq",
    "2000",
];

/// A situation in which audits ran, and their statements.
struct Situation {
    name: &'static str,
    load: &'static [&'static [&'static str]],
    statements: Vec<Statement>,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## coverage");
    let tool = Tool::find()?;
    let stress = STRESS.find();
    let seconds = bench.choose(60, 10);
    let mut situations = SITUATIONS.map(|(name, load)| Situation {
        name,
        load,
        statements: Vec::new(),
    });
    for _ in 0..bench.choose(2, 1) {
        for situation in &mut situations {
            bench.go_on()?;
            let load = match (&stress, situation.load) {
                (_, []) => None,
                (None, _) => continue,
                (Some(stress), load) => Some(start(bench, stress, &load.concat(), seconds)?),
            };
            let statement = tool
                .audit(seconds, &["--probe", "spin"])?
                .statement(bench)?;
            situation.statements.push(statement);
            if let Some((running, folder)) = load {
                running.interrupt()?;
                folder.close()?;
            }
        }
    }
    print(&situations, seconds);
    Ok(())
}

/// Starts stress-ng in a separate temporary directory.
fn start(
    bench: &Bench,
    stress: &Path,
    load: &[&str],
    seconds: u32,
) -> Result<(Running, TempDir), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(stress);
    command.arg("--quiet").args(load);
    command.arg("--temp-path").arg(folder.path());
    // Limit the run time, so that stress-ng ends even if this process is killed.
    command.args(["--timeout", &format!("{}s", seconds + 10)]);
    let running = Running::start(&mut command)?;
    bench.pause(Duration::from_secs(1))?;
    Ok((running, folder))
}

fn print(situations: &[Situation], seconds: u32) {
    println!(
        "\nShares of the time in gaps, in percent: the median run, and the range where there are \
         several of {seconds} s."
    );
    let mut table = Table::new([
        "load and gaps",
        "n",
        "events/s",
        "gaps/s",
        "of the time watched",
        "named",
        "entry/exit",
        "outside",
        "unexplained",
        "events lost",
        "target",
    ]);
    for situation in situations.iter().filter(|s| !s.statements.is_empty()) {
        add(&mut table, situation, "losses ≥ 1 µs", true, |s| {
            s.gaps.as_ref().map(|gaps| gaps.long)
        });
        add(
            &mut table,
            situation,
            "CPU yielded to programs",
            false,
            |s| s.gaps.as_ref().map(|gaps| gaps.yielded),
        );
    }
    table.print();
}

fn add(
    table: &mut Table,
    situation: &Situation,
    what: &str,
    targeted: bool,
    parts: impl Fn(&Statement) -> Option<GapParts>,
) {
    let series = |number: &dyn Fn(&GapParts, Nanos) -> f64| -> Series {
        let statements = situation.statements.iter();
        let found = statements.filter_map(|statement| {
            let watched = statement.gaps.as_ref()?.watched;
            Some(number(&parts(statement)?, watched))
        });
        found.collect()
    };
    let share = |part: fn(&GapParts) -> Nanos| {
        let shares = series(&|gaps, _| 100.0 * part(gaps).share_of(gaps.time));
        (
            format!("{:.2}{}", shares.median(), several(&shares, 2)),
            shares,
        )
    };
    let lost = situation
        .statements
        .iter()
        .map(|s| s.coverage.events_lost());
    let rate = series(&|gaps, watched| gaps.gaps.count as f64 / watched.as_secs_f64());
    let statements = situation.statements.iter();
    let events: Series = statements.map(events_a_second).collect();
    let watched = series(&|gaps, watched| 100.0 * gaps.time.share_of(watched));
    let (unexplained, shares) = share(|gaps| gaps.unexplained);
    let met = if shares.quantile(1.0) <= TARGET {
        "met"
    } else {
        "not met"
    };
    table.row([
        format!("{}: {what}", situation.name),
        rate.n().to_string(),
        format!("{:.0}", events.median()),
        format!("{:.0}", rate.median()),
        format!("{:.2} %", watched.median()),
        share(|gaps| gaps.named).0,
        share(|gaps| gaps.entry_exit).0,
        share(|gaps| gaps.hypervisor_or_firmware).0,
        unexplained,
        lost.sum::<u64>().to_string(),
        if targeted {
            format!("≤ {TARGET} %: {met}")
        } else {
            "-".to_owned()
        },
    ]);
}

fn events_a_second(statement: &Statement) -> f64 {
    let cpus = statement.cpus.iter().map(|books| books.elapsed);
    statement.cost.events as f64 / cpus.max().unwrap_or_default().as_secs_f64()
}

fn several(series: &Series, digits: usize) -> String {
    if series.n() < 2 {
        return String::new();
    }
    format!(" ({})", series.range(digits))
}
