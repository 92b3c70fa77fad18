//! Measures how long a BPF program takes to read the clock. No tracer that takes timestamps can
//! cost less than this.

use std::path::Path;
use std::time::Duration;

use crate::peer::{Running, with_tracefs};
use crate::program_time::Statistics;
use crate::table::Series;
use crate::{Bench, Outcome};

/// Interval in µs at which the bpftrace program runs. It becomes part of the program's name in the
/// kernel. An unusual number makes the program easy to recognize.
const INTERVAL: &str = "1777";

/// Compares bpftrace programs that read the clock many times with one that reads it only a few
/// times. The difference excludes everything they have in common, including the cost of the
/// kernel's own statistics.
pub(super) fn run(bench: &Bench, bpftrace: &Path) -> Outcome {
    let mut cost = Series::new();
    for _ in 0..bench.choose(9, 3) {
        bench.go_on()?;
        let few = time(bench, bpftrace, 10)?;
        let many = time(bench, bpftrace, 90)?;
        cost.push((many - few) / 80.0);
    }
    println!(
        "\nOf that, one reading of the clock (bpf_ktime_get_ns) costs {:.0} ns (n {}, quartiles {}), by \
         the kernel's statistics of programs with 10 and with 90 of them.",
        cost.median(),
        cost.n(),
        cost.quartiles(0)
    );
    Ok(())
}

/// Runs a BPF program that reads the clock `readings` times. Returns how long one run of it takes,
/// in ns.
fn time(bench: &Bench, bpftrace: &Path, readings: u32) -> Result<f64, String> {
    let statistics = Statistics::start()?;
    let mut command = with_tracefs(bpftrace);
    let program = format!("interval:us:{INTERVAL} {{ unroll({readings}) {{ $t = nsecs; }} }}");
    let running = Running::start(command.args(["-e", &program]))?;
    bench
        .pause(Duration::from_millis(1_500))
        .map_err(|error| error.to_string())?;
    let spent = statistics.spent_by(INTERVAL);
    running.interrupt()?;
    let time = spent.per_run();
    time.ok_or_else(|| "bpftrace's program did not run".to_owned())
}
