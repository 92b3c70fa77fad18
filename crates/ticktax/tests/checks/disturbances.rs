//! Checks disturbances of known size, which must appear in the right account.
//!
//! If the injector knows how much *time* it used (from its thread's CPU clock or its cgroup's
//! clock), times are compared. The duration of an interrupt handler cannot be measured outside the
//! kernel, so for interrupts, the *number* is compared with the kernel's counters.

use libtest_mimic::Failed;
use ticktax_inject::Truth;
use ticktax_model::recording::Effect;
use ticktax_model::{Kind, Nanos, Source};

use super::recorded::{is_during, is_frame};
use super::{Recorded, Tolerance, check};

/// Returns the time that the injector measured with the method whose name starts with `method`.
pub(crate) fn measured(truth: &Truth, method: &str) -> Result<Nanos, Failed> {
    let mut measured = truth.measured.iter();
    let found = measured.find(|measured| measured.method.starts_with(method));
    let missing = || format!("{method} is not in {:?}", truth.measured);
    Ok(found.ok_or_else(missing)?.time)
}

/// Returns by how much the kernel's counter `label` rose during the disturbance.
pub(crate) fn counted(truth: &Truth, label: &str) -> Result<u64, Failed> {
    let missing = || format!("{label} is not in {:?}", truth.counts);
    Ok(truth.count(label).ok_or_else(missing)?)
}

pub(crate) fn is_of_thread(source: &Source, tid: i32) -> bool {
    let thread = source.thread.as_ref();
    thread.is_some_and(|thread| thread.tid == tid)
}

/// Checks that a real-time thread is charged exactly for the time it spent spinning.
pub(crate) fn fifo_thread(
    truth: &Truth,
    recorded: &Recorded,
    tolerance: Tolerance,
) -> Result<(), Failed> {
    let (time, _) = recorded.sum(|span, source| {
        source.kind == Kind::Task && is_during(span, truth) && is_of_thread(source, truth.tid)
    });
    // Nothing preempts this thread, so compare with elapsed time. If the hypervisor reports stolen
    // time, the thread's CPU clock would be too low, because the kernel leaves stolen time out of
    // it.
    tolerance.time("the thread", time, measured(truth, "CLOCK_MONOTONIC")?)
}

/// Checks that all `NET_RX` softirqs were recorded, each with an edge from the source that raised
/// it.
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
    tolerance.count("NET_RX softirqs", count, truly)?;
    let raises = recorded.edges.iter().filter(|(edge, _)| {
        let is_raise = matches!(&edge.effect, Effect::Raised(name) if &**name == "NET_RX");
        is_raise && is_during(&edge.span, truth)
    });
    tolerance.count("raises of NET_RX", raises.count() as u64, truly)
}

/// Returns how often the timer function `name` ran in an interrupt during the disturbance.
fn expiries(recorded: &Recorded, truth: &Truth, name: &str) -> u64 {
    let (_, count) = recorded.sum(|span, source| {
        is_during(span, truth) && source.kind == Kind::Irq && &*source.detail == name
    });
    count
}

/// Checks that all expiries were recorded for a timer that a thread waits on.
pub(crate) fn timer_storm(
    truth: &Truth,
    recorded: &Recorded,
    tolerance: Tolerance,
) -> Result<(), Failed> {
    let found = expiries(recorded, truth, "timerfd_tmrproc");
    // The injector's timer expires once per event, and once more for the sleep until the injector
    // ends.
    tolerance.count("expiries", found, truth.events + 1)
}

/// Checks that all expiries were recorded for a timer that sends a signal.
pub(crate) fn signal_timer_storm(
    truth: &Truth,
    recorded: &Recorded,
    tolerance: Tolerance,
) -> Result<(), Failed> {
    let found = expiries(recorded, truth, "it_real_fn");
    tolerance.count("expiries", found, truth.events)
}

/// Checks that a program was throttled for as long and as often as its cgroup reports.
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
