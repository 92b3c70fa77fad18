//! Tests with disturbances of known size, which must appear in the right account within 5 %.

use libtest_mimic::Failed;
use ticktax_inject::{Disturbance, Plan, Schedule, Truth};
use ticktax_model::{Cpu, Kind, Nanos};

use super::checks::disturbances::{self as checks, counted};
use super::checks::recorded::{is_during, is_frame};
use super::checks::{Recorded, Tolerance};
use super::fixture::{audit_of, check};

fn plan(disturbance: Disturbance, period: Nanos, length: Nanos) -> Result<Plan, Failed> {
    let cpu: Cpu = ticktax_inject::default_cpu()?;
    let schedule = Schedule::every(period, length);
    Ok(Plan::new(disturbance, cpu)
        .schedule(schedule)
        .duration(Nanos::from_secs(3)))
}

/// Makes a disturbance on this machine, and checks the recording with `checked`.
fn check_of(
    plan: &Plan,
    checked: fn(&Truth, &Recorded, Tolerance) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let (truth, recorded) = audit_of(plan)?;
    checked(&truth, &recorded, Tolerance::LIVE)
}

pub(crate) fn fifo_thread() -> Result<(), Failed> {
    let fifo = Disturbance::Fifo { priority: 50 };
    let plan = plan(fifo, Nanos::from_millis(20), Nanos::from_millis(4))?;
    check_of(&plan, checks::fifo_thread)
}

/// Returns the number of function calls from other CPUs. They arrive on one of two interrupt
/// vectors, which the kernel counts in a single row of `/proc/interrupts`.
fn calls(recorded: &Recorded, truth: &Truth) -> u64 {
    let (_, count) = recorded.sum(|span, source| {
        is_during(span, truth)
            && (is_frame(source, Kind::Irq, "call_function_single")
                || is_frame(source, Kind::Irq, "call_function"))
    });
    count
}

pub(crate) fn membarrier_storm() -> Result<(), Failed> {
    let (truth, recorded) = audit_of(&plan(
        Disturbance::Membarrier,
        Nanos::from_millis(1),
        Nanos::ZERO,
    )?)?;
    let truly = counted(&truth, "/proc/interrupts CAL")?;
    check(truly >= 1_000, || format!("only {truly} calls were made"))?;
    Tolerance::LIVE.count("function calls", calls(&recorded, &truth), truly)
}

pub(crate) fn tlb_shootdowns() -> Result<(), Failed> {
    let plan = plan(
        Disturbance::Munmap { pages: 8 },
        Nanos::from_millis(1),
        Nanos::ZERO,
    )?;
    let (truth, recorded) = audit_of(&plan)?;
    let truly = counted(&truth, "/proc/interrupts TLB")?;
    check(truly >= 1_000, || {
        format!("only {truly} shootdowns were made")
    })?;
    let (_, flushes) = recorded.sum(|span, source| {
        is_during(span, &truth) && source.kind == Kind::Irq && source.detail.contains("flush_tlb")
    });
    Tolerance::LIVE.count("TLB flushes", flushes, truly)
}

pub(crate) fn softirq_load() -> Result<(), Failed> {
    let packets = Disturbance::Softirq { packets: 16 };
    let plan = plan(packets, Nanos::from_millis(2), Nanos::ZERO)?;
    check_of(&plan, checks::softirq_load)
}

pub(crate) fn timer_storm() -> Result<(), Failed> {
    let plan = plan(Disturbance::Timer, Nanos::from_millis(1), Nanos::ZERO)?;
    check_of(&plan, checks::timer_storm)
}

pub(crate) fn signal_timer_storm() -> Result<(), Failed> {
    let plan = plan(Disturbance::Itimer, Nanos::from_millis(2), Nanos::ZERO)?;
    check_of(&plan, checks::signal_timer_storm)
}

pub(crate) fn cgroup_quota() -> Result<(), Failed> {
    let quota = Disturbance::Throttle {
        quota: Nanos::from_millis(20),
    };
    let plan = plan(quota, Nanos::from_millis(100), Nanos::ZERO)?;
    check_of(&plan, checks::cgroup_quota)
}
