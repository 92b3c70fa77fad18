//! The accounting check, beside programs that the kernel's samples cannot see.

use libtest_mimic::Failed;
use ticktax_inject::{Disturbance, Plan, Schedule, Truth, Window};
use ticktax_model::Nanos;
use ticktax_model::accounting::{
    AccountingStatement, BiasKind, CpuCheck, Method, ProgramCheck, Witness,
};
use ticktax_model::statement::Statement;

use super::world::{Place, check, close, injector, statement, ticktax};

/// How far a share of the time may be from the injected truth.
const POINTS: f64 = 0.005;

/// The share of the time from which a difference has to be named, with room for rounding.
const NAMED_FROM: f64 = 0.002;

/// Audits a disturbance with `probe`; what it did, and the accounting check.
fn audit(plan: &Plan, probe: &str) -> Result<(Truth, Statement), Failed> {
    let place = Place::new();
    let (command, truth_file) = injector(plan, &place)?;
    let output = ticktax(&["audit", "--format", "json", "--probe", probe, "--"])
        .args(command)
        .output()?;
    let statement = statement(&output)?;
    Ok((
        serde_json::from_slice(&std::fs::read(truth_file)?)?,
        statement,
    ))
}

fn accounting(statement: &Statement) -> Result<&AccountingStatement, Failed> {
    Ok(statement.accounting.as_ref().ok_or("no accounting check")?)
}

/// A program that works in a part of each tick of this kernel; `None` where samples are not taken.
fn dodge(window: Window) -> Result<Option<Plan>, Failed> {
    let output = ticktax(&[
        "audit", "--for", "50ms", "--format", "json", "--probe", "none",
    ])
    .output()?;
    let counting = accounting(&statement(&output)?)?.counting.clone();
    let (Some(Method::Sampled), Some(tick)) = (counting.method, counting.tick) else {
        return Ok(None);
    };
    let cpu = ticktax_inject::default_cpu()?;
    Ok(Some(
        Plan::new(Disturbance::Dodge { window }, cpu)
            .schedule(Schedule::every(tick, Nanos(tick.0 / 10)))
            .duration(Nanos::from_secs(4)),
    ))
}

fn line<'a>(truth: &Truth, check: &'a AccountingStatement) -> Result<&'a CpuCheck, Failed> {
    let line = check.cpus.iter().find(|line| line.cpu == truth.cpu);
    Ok(line.ok_or("its CPU has no line")?)
}

fn program<'a>(truth: &Truth, check: &'a AccountingStatement) -> Result<&'a ProgramCheck, Failed> {
    let program = check
        .programs
        .iter()
        .find(|program| program.pid == truth.pid);
    Ok(program.ok_or_else(|| format!("{} is not in {:?}", truth.pid, check.programs))?)
}

/// The program's samples, its true time, and the cause on its CPU.
fn samples(window: Window, expected: f64) -> Result<(), Failed> {
    let Some(plan) = dodge(window)? else {
        return Ok(());
    };
    let (truth, statement) = audit(&plan, "none")?;
    let found = accounting(&statement)?;
    let injected = truth.injected.as_ref().ok_or("no truth")?.time;
    let program = program(&truth, found)?;
    let on_cpu = program.on_cpu.ok_or("it was not seen")?;
    // Its looking for the tick is in the thread of another name, and in its process.
    let looked = Nanos::from_millis(400);
    let line = line(&truth, found)?;
    let share = (on_cpu - injected).share_of(line.elapsed);
    let slack = looked.share_of(line.elapsed) + POINTS;
    check((-POINTS..slack).contains(&share), || {
        format!("{share}: {on_cpu} of {injected}")
    })?;
    let sampled = program.sampled.ok_or("it was not sampled")?;
    let of_walk = (sampled.share_of(truth.end - truth.start) - expected).abs();
    check(of_walk < 0.2, || format!("sampled {sampled}: {program:?}"))?;
    let cause = line
        .causes
        .iter()
        .find(|cause| cause.kind == BiasKind::TickPhase);
    let cause = cause.ok_or_else(|| format!("no cause in {line:?}"))?;
    check(cause.pid == Some(truth.pid), || format!("{cause:?}"))?;
    check((cause.time > Nanos::ZERO) == (expected > 0.5), || {
        format!("{cause:?}")
    })
}

pub(crate) fn a_program_between_ticks_is_found() -> Result<(), Failed> {
    samples(Window::BETWEEN, 0.0)
}

pub(crate) fn a_program_around_ticks_is_found() -> Result<(), Failed> {
    samples(Window::AROUND, 1.0)
}

/// The soaker gets what the program leaves, whatever the kernel's columns say.
pub(crate) fn the_soaker_gets_what_is_left() -> Result<(), Failed> {
    let Some(plan) = dodge(Window::BETWEEN)? else {
        return Ok(());
    };
    let (truth, statement) = audit(&plan, "soak")?;
    let found = accounting(&statement)?;
    let line = line(&truth, found)?;
    let left = line.left.ok_or("nobody soaked")?;
    check(left.witness == Witness::Soaker, || format!("{left:?}"))?;
    let outside = line.outside.unwrap_or_default().share_of(line.elapsed);
    let left = left.time.share_of(left.watched);
    let busy = line.busy_share.ok_or("busy is not known")?;
    // The hypervisor's time is in neither, and a block of work is timed on a machine that is shared.
    check(left + busy <= 1.03, || format!("left {left}, busy {busy}"))?;
    check(left + busy + outside >= 0.90, || {
        format!("left {left}, busy {busy}, outside {outside}")
    })
}

/// Interrupt load that no column shows, where the kernel does not measure interrupts.
pub(crate) fn interrupts_that_are_not_measured_are_named() -> Result<(), Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    let plan = Plan::new(Disturbance::Softirq { packets: 64 }, cpu)
        .schedule(Schedule::every(Nanos::from_millis(1), Nanos::ZERO))
        .duration(Nanos::from_secs(3));
    let (truth, statement) = audit(&plan, "none")?;
    let found = accounting(&statement)?;
    let line = line(&truth, found)?;
    let interrupts = line.interrupts.ok_or("interrupts were not seen")?;
    check(interrupts.share_of(line.elapsed) > 0.01, || {
        format!("{line:?}")
    })?;
    if found.counting.interrupts_measured != Some(false) {
        return Ok(());
    }
    // On a CPU that does much else, samples may happen to come out right: then nothing is off.
    let columns = line.columns.irq + line.columns.softirq;
    let differs = (interrupts - columns).share_of(line.elapsed).abs();
    let mut causes = line.causes.iter();
    let cause = causes.find(|cause| cause.kind == BiasKind::InterruptsNotMeasured);
    let Some(cause) = cause else {
        return check(differs < NAMED_FROM, || format!("no cause in {line:?}"));
    };
    close(
        "interrupts",
        cause.ran.as_secs_f64(),
        interrupts.as_secs_f64(),
        0.0,
    )
}
