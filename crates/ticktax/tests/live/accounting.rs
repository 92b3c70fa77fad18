//! Tests for the accounting section, with programs whose CPU time the kernel's samples misjudge.

use std::process::{Child, Command};

use libtest_mimic::Failed;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use ticktax_analysis::accounting::{counting, sampled};
use ticktax_host::Proc;
use ticktax_inject::{Disturbance, Plan, Schedule, Truth, Window};
use ticktax_model::accounting::SpareTimeSource;
use ticktax_model::statement::Statement;
use ticktax_model::{Cpu, Nanos};

use super::checks::accounting::{self as checks, accounting, line};
use super::fixture::{Recorded, RecordingDir, check, injector, statement, ticktax};

/// Allowed error, as a fraction of the elapsed time.
const POINTS: f64 = 0.005;

struct Audited {
    truth: Truth,
    statement: Statement,
    recorded: Recorded,
}

impl Audited {
    fn parts(&self) -> checks::Audited<'_> {
        checks::Audited {
            truth: &self.truth,
            statement: &self.statement,
            recorded: &self.recorded,
        }
    }
}

/// Audits a program that makes the disturbance in `plan`, with this kind of `probe` running during
/// the audit.
fn audit(plan: &Plan, probe: &str) -> Result<Audited, Failed> {
    let dir = RecordingDir::new();
    let (command, truth_file) = injector(plan, &dir)?;
    let recording = dir.file("recording.parquet");
    let output = ticktax(&["audit", "--format", "json", "--probe", probe, "--save"])
        .arg(&recording)
        .arg("--")
        .args(command)
        .output()?;
    Ok(Audited {
        statement: statement(&output)?,
        truth: serde_json::from_slice(&std::fs::read(truth_file)?)?,
        recorded: Recorded::read(&recording)?,
    })
}

/// Returns why the kernel's sampling cannot be tested here, or `None` if it can.
pub(crate) fn unsampled() -> Option<&'static str> {
    let machine = Proc::default().machine();
    let Ok(cpu) = ticktax_inject::default_cpu() else {
        return Some("no CPU to disturb");
    };
    match (sampled(&machine, cpu), counting(&machine).tick) {
        (Some(true), Some(_)) => None,
        (Some(false), _) => Some("this kernel measures instead of sampling"),
        _ => Some("it is unknown how this kernel counts"),
    }
}

/// Plans a program that works only in one part of each of this kernel's tick periods.
fn dodge(window: Window) -> Result<Plan, Failed> {
    let tick = counting(&Proc::default().machine()).tick.ok_or("no tick")?;
    let cpu = ticktax_inject::default_cpu()?;
    Ok(Plan::new(Disturbance::Dodge { window }, cpu)
        .schedule(Schedule::every(tick, Nanos(tick.0 / 10)))
        .duration(Nanos::from_secs(4)))
}

/// Checks the program's samples, its true time, and the cause named for its CPU.
fn samples(window: Window, too_many: bool) -> Result<(), Failed> {
    let audited = audit(&dodge(window)?, "none")?;
    checks::samples_miss(audited.parts(), too_many, POINTS)
}

pub(crate) fn a_program_between_ticks_is_found() -> Result<(), Failed> {
    samples(Window::BETWEEN, false)
}

pub(crate) fn a_program_around_ticks_is_found() -> Result<(), Failed> {
    samples(Window::AROUND, true)
}

pub(crate) fn the_soak_probe_gets_the_remaining_time() -> Result<(), Failed> {
    let plan = dodge(Window::BETWEEN)?;
    let audited = audit(&plan, "soak")?;
    let line = line(&audited.truth, accounting(&audited.statement)?)?;
    let left = line.spare.ok_or("nobody soaked")?;
    check(left.measured_by == SpareTimeSource::Soaker, || {
        format!("{left:?}")
    })?;
    let outside = line
        .hypervisor_or_firmware
        .unwrap_or_default()
        .share_of(line.elapsed);
    let mut soakers = audited.recorded.header.soakers.iter();
    let soaker = soakers.find(|soaker| soaker.cpu == audited.truth.cpu);
    let block = soaker.ok_or("no soaker was there")?.block;
    let median = block.block_median_ns.ok_or("no block was timed")?;
    let busy = line.busy_share.ok_or("busy is not known")?;
    let left = left.time.share_of(left.watched);
    // Neither the share of spare time nor the share of busy time includes time that the hypervisor
    // took, so they add up to at most about 1.
    check(left + busy <= 1.03, || {
        format!("left {left}, busy {busy}, {block:?}")
    })?;
    // If the CPU ran below its highest speed, the probe did less work in the spare time, so correct
    // the result for the speed.
    let left = left * median / block.fastest_ns();
    check(left + busy + outside >= 0.90, || {
        format!("left {left}, busy {busy}, outside {outside}, {block:?}")
    })
}

/// Checks that a program with a positive nice value is shown as busy, even though the probe is
/// nice, too.
pub(crate) fn a_nice_program_is_shown_as_busy() -> Result<(), Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    for probe in ["spin", "soak"] {
        let _hog = Hog::start(cpu)?;
        let arguments = ["audit", "--for", "3s", "--format", "json", "--probe", probe];
        let statement = statement(&ticktax(&arguments).output()?)?;
        let found = accounting(&statement)?;
        let line = found.cpus.iter().find(|line| line.cpu == cpu);
        let line = line.ok_or("its CPU has no line")?;
        let busy = line.busy_share.ok_or("busy is not known")?;
        let off = line.off().ok_or("off is not known")?;
        check(busy > 0.9 && off.abs() < 0.05, || {
            format!("{probe}: {line:?}")
        })?;
    }
    Ok(())
}

/// A program with a positive nice value that keeps a CPU busy until this is dropped.
struct Hog(Child);

impl Hog {
    fn start(cpu: Cpu) -> Result<Self, Failed> {
        let all = sched_getaffinity(Pid::from_raw(0))?;
        let mut one = CpuSet::new();
        one.set(cpu.index())?;
        sched_setaffinity(Pid::from_raw(0), &one)?;
        let hog = Command::new("nice")
            .args(["-n", "5", "sh", "-c", "while :; do :; done"])
            .spawn();
        sched_setaffinity(Pid::from_raw(0), &all)?;
        Ok(Self(hog?))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // Ignore errors: the program may have exited already, and the test's figures would show
        // that.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn unmeasured_interrupts_are_named() -> Result<(), Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    let plan = Plan::new(Disturbance::Softirq { packets: 64 }, cpu)
        .schedule(Schedule::every(Nanos::from_millis(1), Nanos::ZERO))
        .duration(Nanos::from_secs(3));
    let audited = audit(&plan, "none")?;
    checks::unmeasured_interrupts_are_named(audited.parts())
}
