//! Disturbances of known size: the account that each belongs to must show it.
//!
//! Where the injector can know how much *time* it took (its thread's CPU clock, the cgroup's own
//! clock), times are compared. Nobody outside the kernel can measure how long an interrupt's
//! handler takes, so there the *number* is compared with the kernel's own counters.

use libtest_mimic::Failed;
use ticktax_inject::Truth;
use ticktax_model::{Kind, Nanos, Source};

use super::recorded::{is_during, is_frame};
use super::{Recorded, Tolerance, check};

/// Time of the method that begins with these words.
pub(crate) fn measured(truth: &Truth, method: &str) -> Result<Nanos, Failed> {
    let mut measured = truth.measured.iter();
    let found = measured.find(|measured| measured.method.starts_with(method));
    let missing = || format!("{method} is not in {:?}", truth.measured);
    Ok(found.ok_or_else(missing)?.time)
}

/// The kernel's count of `label` during the disturbance.
pub(crate) fn counted(truth: &Truth, label: &str) -> Result<u64, Failed> {
    let missing = || format!("{label} is not in {:?}", truth.counts);
    Ok(truth.count(label).ok_or_else(missing)?)
}

pub(crate) fn is_of_thread(source: &Source, tid: i32) -> bool {
    let thread = source.thread.as_ref();
    thread.is_some_and(|thread| thread.tid == tid)
}

/// A real-time thread has the time that it spun for.
pub(crate) fn fifo_thread(
    truth: &Truth,
    recorded: &Recorded,
    tolerance: Tolerance,
) -> Result<(), Failed> {
    let (time, _) = recorded.sum(|span, source| {
        source.kind == Kind::Task && is_during(span, truth) && is_of_thread(source, truth.tid)
    });
    // Nothing runs before it, so it was on its CPU for all of each spin. Its CPU clock says less in
    // a guest whose hypervisor reports stolen time: the kernel leaves that out.
    tolerance.time("the thread", time, measured(truth, "CLOCK_MONOTONIC")?)
}

/// All softirqs of received packets are there.
pub(crate) fn softirq_load(
    truth: &Truth,
    recorded: &Recorded,
    tolerance: Tolerance,
) -> Result<(), Failed> {
    let truly = counted(truth, "/proc/softirqs NET_RX")?;
    check(truly * 3 >= truth.planned, || {
        format!("only {truly} softirqs were raised")
    })?;
    let (time, count) = recorded
        .sum(|span, source| is_during(span, truth) && is_frame(source, Kind::Softirq, "NET_RX"));
    check(time > Nanos::ZERO, || "NET_RX took no time".to_owned())?;
    tolerance.count("NET_RX softirqs", count, truly)
}

/// Expiries of the timer function `name` within interrupts.
fn expiries(recorded: &Recorded, truth: &Truth, name: &str) -> u64 {
    let (_, count) = recorded.sum(|span, source| {
        is_during(span, truth) && source.kind == Kind::Irq && &*source.detail == name
    });
    count
}

/// All expiries of a timer that a thread waits for are there.
pub(crate) fn timer_storm(
    truth: &Truth,
    recorded: &Recorded,
    tolerance: Tolerance,
) -> Result<(), Failed> {
    let found = expiries(recorded, truth, "timerfd_tmrproc");
    // The injector sleeps by its timer until its end, too.
    tolerance.count("expiries", found, truth.events + 1)
}

/// All expiries of a timer that sends a signal are there.
pub(crate) fn signal_timer_storm(
    truth: &Truth,
    recorded: &Recorded,
    tolerance: Tolerance,
) -> Result<(), Failed> {
    let found = expiries(recorded, truth, "it_real_fn");
    tolerance.count("expiries", found, truth.events)
}

/// A program that used up its quota was held as long, and as often, as its cgroup says.
pub(crate) fn cgroup_quota(
    truth: &Truth,
    recorded: &Recorded,
    tolerance: Tolerance,
) -> Result<(), Failed> {
    let (time, count) = recorded.sum(|_, source| {
        source.kind == Kind::Wait
            && &*source.detail == "throttled"
            && is_of_thread(source, truth.tid)
    });
    check(truth.allows_throttled(time), || {
        format!("throttled for {time}: {truth:?}")
    })?;
    tolerance.count("times", count, truth.events)
}
