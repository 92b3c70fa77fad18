//! Measures what an audit costs the system calls of a program that it does not watch. The audit
//! traces another program's system calls, which makes the kernel take its slow path for every
//! program's calls.

use std::process::{Command, Stdio};
use std::time::Duration;

use nix::unistd::getppid;
use ticktax_probes::clock::now;

use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome};

/// Calls per batch, and batches per reading.
const CALLS: u32 = 200;
const BATCHES: u32 = 100;
/// Length of an audit in seconds, and the part of it that is left for starting up.
const AUDIT: u32 = 4;
const SETTLE: Duration = Duration::from_millis(1_500);

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## system-calls");
    let tool = Tool::find()?;
    let mut sleeper = Command::new("sleep")
        .arg("3600")
        .stdin(Stdio::null())
        .spawn()?;
    let readings = read_alternately(bench, &tool, &sleeper.id().to_string());
    // A signal that interrupted the benchmark may have stopped it already.
    let _ = sleeper.kill();
    sleeper.wait()?;
    print(&readings?);
    Ok(())
}

/// Takes readings alternately without and with an audit of process `pid`. Returns ns per call.
fn read_alternately(
    bench: &Bench,
    tool: &Tool,
    pid: &str,
) -> Result<[Series; 2], Box<dyn std::error::Error>> {
    let [mut without, mut with] = [Series::new(), Series::new()];
    for _ in 0..bench.choose(9, 3) {
        bench.go_on()?;
        without.push(call());
        let audit = tool.audit(AUDIT, &["--pid", pid])?;
        bench.pause(SETTLE)?;
        with.push(call());
        audit.statement(bench)?;
    }
    Ok([without, with])
}

/// Returns the length of a call in ns. Takes the lowest decile of the batches, because other
/// programs interrupt some of them.
fn call() -> f64 {
    let batch = |_| {
        let begin = now();
        for _ in 0..CALLS {
            std::hint::black_box(getppid());
        }
        (now() - begin).0 as f64 / f64::from(CALLS)
    };
    (0..BATCHES).map(batch).collect::<Series>().quantile(0.1)
}

fn print([without, with]: &[Series; 2]) {
    let mut table = Table::new(["getppid", "n", "ns per call, median", "least to most"]);
    for (name, series) in [("no audit", without), ("audit of another program", with)] {
        table.row([
            name.to_owned(),
            series.n().to_string(),
            format!("{:.0}", series.median()),
            series.range(0),
        ]);
    }
    table.print();
}
