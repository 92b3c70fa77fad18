//! Finds virtual machines whose vCPUs waited long for a CPU of the host.

use ticktax_model::Nanos;
use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::guests::GuestMachine;

use super::super::Facts;

/// Minimum waiting time to report, as a share of the time in which the vCPUs wanted to run.
const MUCH: f64 = 0.05;
/// Minimum waiting time to report, as a share of the observation.
const LONG: f64 = 0.01;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(guests) = facts.guests else {
        return Vec::new();
    };
    let waited = |machine: &&GuestMachine| machine.waits.unwrap_or_default().time;
    let wanted = |machine: &&GuestMachine| {
        let ran: Nanos = machine.vcpus.iter().map(|vcpu| vcpu.time).sum();
        ran + waited(machine)
    };
    let is_much = |machine: &&GuestMachine| {
        let time = waited(machine);
        time.share_of(guests.elapsed) >= LONG && time.share_of(wanted(machine)) >= MUCH
    };
    let waiting = guests.machines.iter().filter(is_much);
    let count = waiting.clone().count();
    let Some(machine) = waiting.max_by_key(waited) else {
        return Vec::new();
    };
    let waits = machine.waits.unwrap_or_default();
    let others = match count {
        1 => String::new(),
        count => format!("; {} other machines waited too", count - 1),
    };
    vec![Finding {
        rule: "guest-waits-for-cpu".to_owned(),
        title: "vCPUs wait for a CPU, which their guests see as stolen time".to_owned(),
        configured: format!(
            "{} ({}) has {} vCPUs that ran",
            machine.name,
            machine.pid,
            machine.vcpus.len()
        ),
        effective: format!(
            "they waited {} of the {} in which they wanted to run, up to {} at once{others}",
            waits.time,
            wanted(&machine),
            waits.max
        ),
        measured: "run-queue waits of the vCPUs' threads".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Serious,
        cost: Some(Cost::new("the guest's programs are late", Some(waits.time))),
        proposal: None,
        remedy: format!(
            "run fewer vCPUs per CPU, or pin the vCPUs and keep other work off their CPUs; \
             `ticktax audit --pid {}` shows what ran instead",
            machine.pid
        ),
    }]
}
