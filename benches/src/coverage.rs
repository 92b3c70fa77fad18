//! How much of the time that a spinning loop loses is explained, idle and under load.

use std::process::Command;
use std::time::Duration;

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

/// At most so much of the time in gaps may be without an explanation, in percent.
const TARGET: f64 = 1.0;

/// The statements of one situation.
struct Situation {
    name: &'static str,
    statements: Vec<Statement>,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## coverage");
    let tool = Tool::find()?;
    let stress = STRESS.find();
    let seconds = bench.choose(60, 10);
    let situation = |name| Situation {
        name,
        statements: Vec::new(),
    };
    let mut idle = situation("nothing else");
    let mut loaded = situation("stress-ng: cpu, hdd, udp, timer");
    for _ in 0..bench.choose(3, 1) {
        bench.go_on()?;
        idle.statements
            .push(tool.audit(seconds, &[])?.statement(bench)?);
        if let Some(stress) = &stress {
            let folder = tempfile::tempdir()?;
            let mut command = Command::new(stress);
            command.args(["--quiet", "--cpu", "1", "--cpu-load", "60", "--udp", "1"]);
            command.args(["--hdd", "1", "--hdd-bytes", "64M", "--temp-path"]);
            command.arg(folder.path());
            command.args(["--timer", "1", "--timer-freq", "2000"]);
            // A limit of its own, should nobody be left to end it.
            command.args(["--timeout", &format!("{}s", seconds + 10)]);
            let running = Running::start(&mut command)?;
            bench.pause(Duration::from_secs(1))?;
            let statement = tool.audit(seconds, &[])?.statement(bench)?;
            running.interrupt()?;
            loaded.statements.push(statement);
        }
    }
    print(&[idle, loaded], seconds);
    Ok(())
}

fn print(situations: &[Situation], seconds: u32) {
    println!(
        "\nShares of the time in gaps, in percent: the median run, and the range where there are several of {seconds} s."
    );
    let mut table = Table::new([
        "load and gaps",
        "n",
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
        add(&mut table, situation, "CPU lent to programs", false, |s| {
            s.gaps.as_ref().map(|gaps| gaps.lent)
        });
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
    let of = |number: &dyn Fn(&GapParts, Nanos) -> f64| -> Series {
        let statements = situation.statements.iter();
        let found = statements.filter_map(|statement| {
            let watched = statement.gaps.as_ref()?.watched;
            Some(number(&parts(statement)?, watched))
        });
        found.collect()
    };
    let share = |part: fn(&GapParts) -> Nanos| {
        let shares = of(&|gaps, _| 100.0 * part(gaps).share_of(gaps.time));
        (
            format!("{:.2}{}", shares.median(), several(&shares, 2)),
            shares,
        )
    };
    let lost = situation
        .statements
        .iter()
        .map(|s| s.coverage.events_lost());
    let rate = of(&|gaps, watched| gaps.count as f64 / watched.as_secs_f64());
    let watched = of(&|gaps, watched| 100.0 * gaps.time.share_of(watched));
    let (unexplained, shares) = share(|gaps| gaps.unexplained);
    let met = if shares.quantile(1.0) <= TARGET {
        "met"
    } else {
        "not met"
    };
    table.row([
        format!("{}: {what}", situation.name),
        rate.n().to_string(),
        format!("{:.0}", rate.median()),
        format!("{:.2} %", watched.median()),
        share(|gaps| gaps.named).0,
        share(|gaps| gaps.entry_exit).0,
        share(|gaps| gaps.outside).0,
        unexplained,
        lost.sum::<u64>().to_string(),
        if targeted {
            format!("≤ {TARGET} %: {met}")
        } else {
            "-".to_owned()
        },
    ]);
}

fn several(series: &Series, digits: usize) -> String {
    if series.n() < 2 {
        return String::new();
    }
    format!(" ({})", series.range(digits))
}
