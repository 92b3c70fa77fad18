//! Finds virtual machines whose vCPUs KVM polled for long, although they were halted.
//!
//! When a guest halts, KVM may poll for up to `halt_poll_ns` before the vCPU's thread sleeps. This
//! makes wake-ups faster, but uses the CPU like work.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::guests::GuestMachine;

use super::super::Facts;

/// The file with the maximum polling time per halt, in ns.
const FILE: &str = "sys/module/kvm/parameters/halt_poll_ns";
/// Minimum polling time of a machine to report, as a share of one CPU.
const MUCH: f64 = 0.02;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(guests) = facts.guests else {
        return Vec::new();
    };
    // The time of halts that polled in vain is not known separately.
    let polled = |machine: &&GuestMachine| {
        let halts = machine.halts.unwrap_or_default();
        halts.polled_time
    };
    let is_much = |machine: &&GuestMachine| polled(machine).share_of(guests.elapsed) >= MUCH;
    let worst = guests.machines.iter().filter(is_much).max_by_key(polled);
    let Some(machine) = worst else {
        return Vec::new();
    };
    let time = polled(&machine);
    let halts = machine.halts.unwrap_or_default().polled;
    let configured = match facts.number_in(FILE) {
        Some(limit) => format!("halt_poll_ns is {limit}"),
        None => "halt_poll_ns is unknown".to_owned(),
    };
    vec![Finding {
        rule: "guest-halt-polling".to_owned(),
        title: "KVM uses CPU time to wait for idle guests".to_owned(),
        configured,
        effective: format!(
            "KVM polled for {time} while {} ({}) was halted, until {halts} of its halts ended",
            machine.name, machine.pid
        ),
        measured: "kvm_vcpu_wakeup, for halts that ended before the vCPU's thread slept".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Note,
        cost: Some(Cost::new("CPU time of the host", Some(time))),
        proposal: None,
        remedy: format!(
            "to save this time at the price of slower wake-ups: echo 0 > /{FILE}, or lower it"
        ),
    }]
}
