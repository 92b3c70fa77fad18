//! Disturbances of known size: the account that each belongs to must show it, to within 5 %.
//!
//! Where the injector can know how much *time* it took (its thread's CPU clock, the cgroup's own
//! clock), times are compared. What an interrupt's handler takes nobody outside the kernel can
//! measure, so there the *number* is compared with the kernel's own counters.

use libtest_mimic::Failed;
use ticktax_inject::{Disturbance, Plan, Schedule, Truth};
use ticktax_model::{Cpu, Kind, Nanos, Source, Span};

use super::fixture::{Recorded, audit_of, check, close};

fn plan(disturbance: Disturbance, period: Nanos, length: Nanos) -> Result<Plan, Failed> {
    let cpu: Cpu = ticktax_inject::default_cpu()?;
    let schedule = Schedule::every(period, length);
    Ok(Plan::new(disturbance, cpu)
        .schedule(schedule)
        .duration(Nanos::from_secs(3)))
}

/// Whether a span lies where and when the disturbance was.
fn during(span: &Span, truth: &Truth) -> bool {
    span.cpu == truth.cpu && span.start >= truth.start && span.end() <= truth.end
}

/// An interrupt or softirq as such, not a function within it.
fn is_frame(source: &Source, kind: Kind, name: &str) -> bool {
    source.kind == kind && &*source.name == name && source.detail.is_empty()
}

pub(crate) fn fifo_thread() -> Result<(), Failed> {
    let plan = plan(
        Disturbance::Fifo { priority: 50 },
        Nanos::from_millis(20),
        Nanos::from_millis(4),
    )?;
    let (truth, recorded) = audit_of(&plan)?;
    let (time, _) = recorded.sum(|span, source| {
        source.kind == Kind::Task
            && during(span, &truth)
            && source
                .thread
                .as_ref()
                .is_some_and(|thread| thread.tid == truth.tid)
    });
    // Nothing runs before it, so it was on its CPU for all of each spin. Its CPU clock says less in a guest whose
    // hypervisor tells what it takes: the kernel leaves that out.
    let mut measured = truth.measured.iter();
    let spins = measured.find(|measured| measured.method.starts_with("CLOCK_MONOTONIC"));
    let spins = spins.ok_or("the injector could not measure itself")?.time;
    close(
        "time of the thread",
        time.as_secs_f64(),
        spins.as_secs_f64(),
        0.0,
    )
}

/// How often the kernel counted `label` while the disturbance went on.
fn counted(truth: &Truth, label: &str) -> Result<f64, Failed> {
    let count = truth
        .count(label)
        .ok_or_else(|| format!("{label} is not in {:?}", truth.counts))?;
    Ok(count as f64)
}

/// Calls from other CPUs arrive as one of two vectors; the kernel counts both in one row.
fn calls(recorded: &Recorded, truth: &Truth) -> u64 {
    let (_, count) = recorded.sum(|span, source| {
        during(span, truth)
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
    check(truly >= 1000.0, || format!("only {truly} calls were made"))?;
    close(
        "function calls",
        calls(&recorded, &truth) as f64,
        truly,
        3.0,
    )
}

pub(crate) fn tlb_shootdowns() -> Result<(), Failed> {
    let plan = plan(
        Disturbance::Munmap { pages: 8 },
        Nanos::from_millis(1),
        Nanos::ZERO,
    )?;
    let (truth, recorded) = audit_of(&plan)?;
    let truly = counted(&truth, "/proc/interrupts TLB")?;
    check(truly >= 1000.0, || {
        format!("only {truly} shootdowns were made")
    })?;
    let (_, flushes) = recorded.sum(|span, source| {
        during(span, &truth) && source.kind == Kind::Irq && source.detail.contains("flush_tlb")
    });
    close("TLB flushes", flushes as f64, truly, 3.0)
}

pub(crate) fn softirq_load() -> Result<(), Failed> {
    let plan = plan(
        Disturbance::Softirq { packets: 16 },
        Nanos::from_millis(2),
        Nanos::ZERO,
    )?;
    let (truth, recorded) = audit_of(&plan)?;
    let truly = counted(&truth, "/proc/softirqs NET_RX")?;
    check(truly >= 500.0, || {
        format!("only {truly} softirqs were raised")
    })?;
    let (time, count) = recorded
        .sum(|span, source| during(span, &truth) && is_frame(source, Kind::Softirq, "NET_RX"));
    check(time > Nanos::ZERO, || "NET_RX took no time".to_owned())?;
    close("NET_RX softirqs", count as f64, truly, 3.0)
}

/// Expiries of the timer function `name`.
fn expiries(recorded: &Recorded, truth: &Truth, name: &str) -> u64 {
    let (_, count) = recorded.sum(|span, source| {
        during(span, truth) && source.kind == Kind::Irq && &*source.detail == name
    });
    count
}

pub(crate) fn timer_storm() -> Result<(), Failed> {
    let (truth, recorded) = audit_of(&plan(
        Disturbance::Timer,
        Nanos::from_millis(1),
        Nanos::ZERO,
    )?)?;
    let told = expiries(&recorded, &truth, "timerfd_tmrproc");
    close("expiries", told as f64, truth.events as f64, 3.0)
}

pub(crate) fn signal_timer_storm() -> Result<(), Failed> {
    let (truth, recorded) = audit_of(&plan(
        Disturbance::Itimer,
        Nanos::from_millis(2),
        Nanos::ZERO,
    )?)?;
    let told = expiries(&recorded, &truth, "it_real_fn");
    close("expiries", told as f64, truth.events as f64, 3.0)
}

pub(crate) fn cgroup_quota() -> Result<(), Failed> {
    let quota = Nanos::from_millis(20);
    let plan = plan(
        Disturbance::Throttle { quota },
        Nanos::from_millis(100),
        Nanos::ZERO,
    )?;
    let (truth, recorded) = audit_of(&plan)?;
    let (time, count) = recorded.sum(|_, source| {
        source.kind == Kind::Wait
            && &*source.detail == "throttled"
            && source
                .thread
                .as_ref()
                .is_some_and(|thread| thread.tid == truth.tid)
    });
    check(truth.allows_throttled(time), || {
        format!("throttled for {time}: {truth:?}")
    })?;
    close("times", count as f64, truth.events as f64, 3.0)
}
