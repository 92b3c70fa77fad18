//! Measures the errors of the accounting check and of its soak probe, and how long it takes to read
//! the kernel's counters. The check is tested with programs whose true CPU time is known but which
//! mislead the kernel's sampling.
//!
//! The CPU time that the kernel charges to a program differs from the time for which the program
//! ran (docs/explanation/accounting.md). That is why a program's rows are compared with its own
//! clock, which it reads while it causes its events. Its CPU clock is compared with
//! `/proc/PID/stat`.
//!
//! The CPU's idle time shows independently how long the CPU was busy. On a kernel that can stop the
//! tick, idle time is measured with the kernel's clock (`get_cpu_idle_time_us`) and appears in the
//! idle column of `/proc/stat`, in steps of 10 ms.

use std::error::Error;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tempfile::TempPath;
use ticktax_host::Proc;
use ticktax_inject::{Disturbance, Plan, Schedule, Window};
use ticktax_model::accounting::ProgramCheck;
use ticktax_model::{CpuList, Nanos};
use ticktax_probes::clock::now;
use ticktax_probes::soak::SoakProbe;

use crate::recording::Recording;
use crate::table::{Series, Table};
use crate::tool::{Audit, Tool};
use crate::{Bench, Outcome, machine};

/// Target: the check is off by at most this many percentage points of a CPU's time.
const TARGET: f64 = 0.5;

/// A program whose CPU time is known. Also the errors of several figures for that time, in
/// percentage points of a CPU's time.
struct Adversary {
    name: &'static str,
    plan: Plan,
    truth: Series,
    check: Series,
    charged: Series,
    process: Series,
    samples: Series,
    top: Series,
    cpu: Series,
}

impl Adversary {
    fn new(name: &'static str, plan: Plan) -> Self {
        Self {
            name,
            plan,
            truth: Series::new(),
            check: Series::new(),
            charged: Series::new(),
            process: Series::new(),
            samples: Series::new(),
            top: Series::new(),
            cpu: Series::new(),
        }
    }
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## accounting");
    let tool = Tool::find()?;
    let hz = Proc::default()
        .machine()
        .hz_configured
        .unwrap_or(250)
        .max(1);
    let tick = Nanos(1_000_000_000 / i64::from(hz));
    let seconds = bench.choose(5, 3);
    let plan = |disturbance, schedule| {
        Plan::new(disturbance, bench.measured)
            .schedule(schedule)
            .duration(Nanos::from_secs(i64::from(seconds) + 3))
    };
    let dodge = |window| plan(Disturbance::Dodge { window }, Schedule::every(tick, tick));
    let paced = Schedule::every(Nanos(7_300_000), Nanos(2_100_000));
    let mut adversaries = [
        Adversary::new("runs between ticks, 60 %", dodge(Window::BETWEEN)),
        Adversary::new("runs around ticks, 10 %", dodge(Window::AROUND)),
        Adversary::new(
            "every 7.3 ms for 2.1 ms",
            plan(Disturbance::Fifo { priority: 10 }, paced),
        ),
        Adversary::new(
            "packets: softirqs",
            plan(
                Disturbance::Softirq { packets: 64 },
                Schedule::every(Nanos::from_millis(1), Nanos::ZERO),
            ),
        ),
    ];
    for _ in 0..bench.choose(5, 2) {
        for adversary in &mut adversaries {
            bench.go_on()?;
            turn(bench, &tool, seconds, adversary)?;
        }
    }
    print(&adversaries, seconds);
    // Do this before pinning this thread, because child processes inherit the affinity.
    soaker(bench, &tool, seconds, paced)?;
    machine::pin(bench.other)?;
    reading(bench)
}

/// Starts an audit that records to a temporary file.
fn recorded(tool: &Tool, seconds: u32) -> Result<(Audit, TempPath), Box<dyn Error>> {
    let folder = tempfile::Builder::new().suffix(".parquet").tempfile()?;
    let path = folder.into_temp_path();
    let file = path
        .to_str()
        .ok_or("the folder for temporary files is not in UTF-8")?;
    let audit = tool.audit(seconds, &["--probe", "none", "--save", file])?;
    Ok((audit, path))
}

/// Compares the work reported by a soak probe with the recorded run time of its thread, both alone
/// and while another program uses part of its CPU.
fn soaker(bench: &Bench, tool: &Tool, seconds: u32, schedule: Schedule) -> Outcome {
    let cpus: CpuList = [bench.measured].into_iter().collect();
    let mut table = Table::new(["soaker", "n", "true, %", "off by", "target"]);
    for (name, beside) in [("alone", false), ("beside 2.1 ms every 7.3 ms", true)] {
        let (mut truth, mut off) = (Series::new(), Series::new());
        for _ in 0..bench.choose(5, 2) {
            bench.go_on()?;
            let plan = Plan::new(Disturbance::Fifo { priority: 10 }, bench.measured)
                .schedule(schedule)
                .duration(Nanos::from_secs(i64::from(seconds) + 4));
            let running = beside.then(|| ticktax_inject::spawn(&plan)).transpose()?;
            let (audit, recording) = recorded(tool, seconds + 3)?;
            bench.pause(Duration::from_millis(1_200))?;
            let soaker = SoakProbe::start(&cpus)?;
            bench.pause(Duration::from_secs(seconds.into()))?;
            let reports = soaker.stop();
            let report = reports.first().ok_or("it reports nothing")?;
            audit.statement(bench)?;
            let rows = Recording::read(&recording)?;
            let watched = report.ended - report.started;
            // Self time excludes interruptions. If only part of an interval lies within the soaked
            // time, count that fraction of its self time.
            let own = rows.stretches(report.tid).map(|span| {
                let cut = span.end().min(report.ended) - span.start.max(report.started);
                span.self_time.0 as f64 * cut.max(Nanos::ZERO).share_of(span.dur)
            });
            let own = own.sum::<f64>() / watched.0 as f64 * 100.0;
            truth.push(own);
            let reported =
                report.blocks as f64 * report.block.fastest_ns() / watched.0 as f64 * 100.0;
            off.push(reported - own);
            if let Some(running) = running {
                running.stop()?;
            }
        }
        let met = if off.median().abs() <= TARGET {
            "met"
        } else {
            "not met"
        };
        table.row([
            name.to_owned(),
            truth.n().to_string(),
            format!("{:.2}", truth.median()),
            format!("{:+.2} ({})", off.median(), off.range(2)),
            format!("≤ {TARGET}: {met}"),
        ]);
    }
    println!(
        "\nThe soaker, in points of the CPU's time, medians over turns of {seconds} s (least to \
         most):"
    );
    table.print();
    Ok(())
}

/// Audits a program while it runs, and adds the errors to its results.
fn turn(bench: &Bench, tool: &Tool, seconds: u32, adversary: &mut Adversary) -> Outcome {
    let running = ticktax_inject::spawn(&adversary.plan)?;
    // Wait until the adversary has found the tick and started.
    bench.pause(Duration::from_millis(1_200))?;
    let (audit, recording) = recorded(tool, seconds)?;
    // Measure while the audit is recording. Afterwards, its search for periodic sources competes
    // for the CPU.
    bench.pause(Duration::from_millis(500))?;
    let (begin, before) = (now(), own_cpu_time()?);
    bench.pause(Duration::from_secs(u64::from(seconds) - 1))?;
    let (end, after) = (now(), own_cpu_time()?);
    let statement = audit.statement(bench)?;
    let truth = running.finish()?;
    let check = statement.accounting.ok_or("the statement has no check")?;
    let line = check.cpus.iter().find(|line| line.cpu == truth.cpu);
    let line = line.ok_or("its CPU has no line")?;
    let program = check
        .programs
        .iter()
        .find(|program| program.pid == truth.pid);
    let program = program.ok_or("it is not among the programs")?;
    let rows = Recording::read(&recording)?;
    let (ran, measured) = rows.within_events(&truth)?;
    adversary
        .truth
        .push(measured.share_of(line.elapsed) * 100.0);
    adversary
        .check
        .push((ran - measured).share_of(line.elapsed) * 100.0);
    let charged = (after - before).share_of(end - begin) * 100.0;
    let shown_share = |time: fn(&ProgramCheck) -> Option<Nanos>| {
        let time = time(program).ok_or("its time is missing")?;
        Ok::<f64, &str>(time.share_of(line.elapsed) * 100.0 - charged)
    };
    adversary
        .charged
        .push(-shown_share(|program| program.on_cpu)?);
    adversary
        .process
        .push(shown_share(|program| program.shown)?);
    adversary
        .samples
        .push(shown_share(|program| program.sampled)?);
    let busy = line.busy_share.ok_or("the CPU's busy share is missing")?;
    adversary.top.push((line.shown_share - busy) * 100.0);
    let idle = line.columns.idle + line.columns.iowait;
    let not_idle = 1.0 - idle.share_of(line.stat_elapsed);
    adversary.cpu.push((busy - not_idle) * 100.0);
    Ok(())
}

/// Returns this process's CPU time by its own clock. It includes the injector, which is a thread of
/// this process.
fn own_cpu_time() -> Result<Nanos, Box<dyn Error>> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    Ok(Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec()))
}

fn print(adversaries: &[Adversary], seconds: u32) {
    println!(
        "\nErrors in points of a CPU's time, medians over turns of {seconds} s (least to most):"
    );
    let mut table = Table::new([
        "program",
        "n",
        "ran in its events, %",
        "ticktax",
        "charged besides",
        "/proc/PID/stat",
        "by samples",
        "its CPU in top",
        "its CPU in ticktax",
        "target",
    ]);
    for adversary in adversaries {
        let cell = |series: &Series| format!("{:+.2} ({})", series.median(), series.range(2));
        let medians = [adversary.check.median(), adversary.cpu.median()];
        let met = if medians.into_iter().all(|median| median.abs() <= TARGET) {
            "met"
        } else {
            "not met"
        };
        table.row([
            adversary.name.to_owned(),
            adversary.truth.n().to_string(),
            format!("{:.2}", adversary.truth.median()),
            cell(&adversary.check),
            format!("{:.2}", adversary.charged.median()),
            cell(&adversary.process),
            cell(&adversary.samples),
            cell(&adversary.top),
            cell(&adversary.cpu),
            format!("≤ {TARGET}: {met}"),
        ]);
    }
    table.print();
}

/// Measures how long it takes to read all of the kernel's counters, as an audit does at its start
/// and end.
fn reading(bench: &Bench) -> Outcome {
    let proc = Proc::default();
    let mut times = Series::new();
    let mut processes = 0;
    for _ in 0..bench.choose(31, 5) {
        bench.go_on()?;
        let begin = now();
        processes = proc.counters(begin).programs.len();
        times.push((now() - begin).as_secs_f64() * 1e3);
    }
    println!(
        "\nReading all counters, those of {processes} processes included: {:.1} ms (n {}, {} ms), \
         twice an audit.",
        times.median(),
        times.n(),
        times.range(1)
    );
    Ok(())
}
