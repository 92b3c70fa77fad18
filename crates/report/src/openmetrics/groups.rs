//! Metrics of services, containers and pods.

use std::collections::HashMap;

use ticktax_model::Nanos;
use ticktax_model::group::GroupCounters;
use ticktax_model::statement::{GroupAccount, Statement};
use ticktax_model::totals::{DelayTotals, Delays, NamedDelays};

use super::families::{Families, Family};

/// The group names of a statement's processes.
pub(super) struct GroupLabels<'s>(HashMap<i32, &'s str>);

impl<'s> GroupLabels<'s> {
    pub(super) fn new(statement: &'s Statement) -> Self {
        let groups = statement.groups.iter();
        let by_pid = groups.flat_map(|group| group.pids.iter().map(|&pid| (pid, &*group.name)));
        Self(by_pid.collect())
    }

    /// Returns a process's group. Prometheus treats an empty label as absent.
    pub(super) fn of(&self, pid: Option<i32>) -> String {
        let group = pid.and_then(|pid| self.0.get(&pid).copied());
        group.unwrap_or_default().to_owned()
    }
}

/// Adds the time of each group, and the increases of its counters.
pub(super) fn groups(all: &mut Families, statement: &Statement) {
    let groups = &statement.groups;
    let family = all.counter("group_seconds", "CPU time of the programs in a group.");
    for group in groups {
        family.time(&[("group", &group.name)], group.time);
    }
    let waits = statement
        .waits
        .iter()
        .filter_map(|waits| waits.by_group.as_ref());
    let waits = waits.flat_map(|waits| &waits.groups);
    let family = all.counter(
        "group_run_queue_wait_seconds",
        "Time that threads in a group waited for a CPU.",
    );
    // The list also has an entry for each program that is not in a group.
    for wait in waits.filter(|wait| groups.iter().any(|group| group.name == wait.name)) {
        family.time(&[("group", &wait.name)], wait.time);
    }
    quotas(all, groups);
    let family = all.counter(
        "group_pressure_seconds",
        "Time during which some or all tasks in a group were stalled on a resource (PSI).",
    );
    for (group, counters) in counted(groups) {
        for (resource, pressure) in &counters.pressure {
            let labels = |tasks| {
                [
                    ("group", group),
                    ("resource", &**resource),
                    ("tasks", tasks),
                ]
            };
            family.time(&labels("some"), pressure.some);
            family.time(&labels("all"), pressure.full);
        }
    }
}

/// Adds the counters of the quotas that apply to each group. A parent's quota has a different path.
fn quotas(all: &mut Families, groups: &[GroupAccount]) {
    let counters = [
        ("group_quota_periods", "Periods of a CPU quota."),
        (
            "group_throttled_periods",
            "Periods of a CPU quota in which threads were throttled.",
        ),
    ];
    for (name, help) in counters {
        let family = all.counter(name, help);
        for (group, counters) in counted(groups) {
            for level in &counters.throttling {
                let periods = match name {
                    "group_quota_periods" => level.periods,
                    _ => level.throttled_periods,
                };
                let labels = [("group", group), ("path", &*level.path)];
                family.value(&labels, periods as f64);
            }
        }
    }
    let family = all.counter(
        "group_throttled_seconds",
        "Time that threads were throttled by a CPU quota, according to the kernel.",
    );
    for (group, counters) in counted(groups) {
        for level in &counters.throttling {
            let labels = [("group", group), ("path", &*level.path)];
            family.time(&labels, level.throttled);
        }
    }
}

/// Returns the groups whose counters were read, by name.
fn counted(groups: &[GroupAccount]) -> impl Iterator<Item = (&str, &GroupCounters)> {
    groups.iter().filter_map(|group| {
        let counters = group.group.counters.as_deref()?;
        Some((&*group.name, counters))
    })
}

/// Adds the waiting times and counters that an agent has added up. The series `others` contains
/// the waiting times of all names that have no series.
pub(super) fn delays(all: &mut Families, delays: &DelayTotals) {
    let family = all.counter(
        "run_queue_wait_seconds",
        "Time that a program's threads waited for a CPU, according to the scheduler.",
    );
    add(family, "name", &delays.programs, |delays| delays.run_queue);
    let family = all.counter(
        "block_io_wait_seconds",
        "Time that a program's threads waited for disk I/O (kernel.task_delayacct).",
    );
    add(family, "name", &delays.programs, |delays| delays.block_io);
    let family = all.counter(
        "group_run_queue_wait_seconds",
        "Time that threads in a group waited for a CPU, according to the scheduler.",
    );
    add(family, "group", &delays.groups, |delays| delays.run_queue);
    let family = all.counter(
        "group_block_io_wait_seconds",
        "Time that threads in a group waited for disk I/O (kernel.task_delayacct).",
    );
    add(family, "group", &delays.groups, |delays| delays.block_io);
    counters(all, delays);
}

/// Adds one kind of sum for each name that ever waited.
fn add(
    family: &mut Family,
    label: &'static str,
    delays: &NamedDelays,
    time: impl Fn(&Delays) -> Nanos,
) {
    for (name, delays) in delays.iter() {
        let time = time(delays);
        if time > Nanos::ZERO {
            family.time(&[(label, name)], time);
        }
    }
}

/// Adds the counters of groups.
fn counters(all: &mut Families, delays: &DelayTotals) {
    let limited = || {
        delays
            .counters
            .iter()
            .filter(|(_, totals)| totals.periods > 0)
    };
    let family = all.counter("group_quota_periods", "Periods of the group's CPU quota.");
    for (group, totals) in limited() {
        family.value(&[("group", group)], totals.periods as f64);
    }
    let family = all.counter(
        "group_throttled_periods",
        "Periods of the group's CPU quota in which threads were throttled.",
    );
    for (group, totals) in limited() {
        family.value(&[("group", group)], totals.throttled_periods as f64);
    }
    let family = all.counter(
        "group_throttled_seconds",
        "Time that threads of the group were throttled by its CPU quota, according to the kernel.",
    );
    for (group, totals) in limited() {
        family.time(&[("group", group)], totals.throttled);
    }
    let quotas = || limited().filter_map(|(group, totals)| Some((group, totals.quota.as_ref()?)));
    let family = all.gauge(
        "group_quota_seconds",
        "CPU time that the group may use per period.",
    );
    for (group, quota) in quotas() {
        family.time(&[("group", group), ("path", &quota.path)], quota.quota);
    }
    let family = all.gauge(
        "group_quota_period_seconds",
        "Length of a period of the group's CPU quota.",
    );
    for (group, quota) in quotas() {
        family.time(&[("group", group), ("path", &quota.path)], quota.period);
    }
    let family = all.counter(
        "group_pressure_seconds",
        "Time during which some or all tasks in a group were stalled on a resource (PSI).",
    );
    for (group, totals) in &delays.counters {
        for (resource, pressure) in &totals.pressure {
            let labels = |tasks| {
                [
                    ("group", &**group),
                    ("resource", &**resource),
                    ("tasks", tasks),
                ]
            };
            family.time(&labels("some"), pressure.some);
            family.time(&labels("all"), pressure.full);
        }
    }
}
