//! Finds virtual machines whose tick comes from the emulated timer chip (PIT).
//!
//! For each expiry of this timer, KVM wakes a kernel thread that injects the interrupt. By default,
//! it also injects the interrupts that the guest missed.

use ticktax_model::Nanos;
use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::guests::{GuestMachine, GuestTimer};

use super::super::Facts;

/// Minimum rate of the tick to report, in Hz. A guest may use the chip briefly while it boots.
const OFTEN: f64 = 50.0;

/// Returns the rate of a regular tick from the timer chip.
fn rate(machine: &GuestMachine) -> Option<f64> {
    let timers = machine.vcpus.iter().filter_map(|vcpu| vcpu.timer.as_ref());
    let is_often = |timer: &&GuestTimer| timer.is_pit && timer.ticks_per_s >= OFTEN;
    timers.filter(is_often).find_map(|timer| timer.regular)
}

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let machines = facts.guests.map(|guests| &guests.machines[..]);
    let cost = |machine: &GuestMachine| -> Nanos {
        let ticks = machine.ticks.as_ref();
        machine.kernel_threads + ticks.map_or(Nanos::ZERO, |ticks| ticks.cost.host)
    };
    let ticking = machines.unwrap_or_default().iter();
    let ticking = ticking.filter_map(|machine| Some((machine, rate(machine)?)));
    let Some((machine, rate)) = ticking.max_by_key(|&(machine, _)| cost(machine)) else {
        return Vec::new();
    };
    vec![Finding {
        rule: "guest-timer-chip".to_owned(),
        title: "a guest's tick comes from the emulated timer chip (PIT)".to_owned(),
        configured: "KVM emulates faster timers too: that of the local APIC".to_owned(),
        effective: format!(
            "the timer chip of {} ({}) expired {rate:.0} times per second, each time through a \
             kernel thread",
            machine.name, machine.pid
        ),
        measured: "expiries of KVM's timers".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Note,
        cost: Some(Cost::new("CPU time of the host", Some(cost(machine)))),
        proposal: None,
        remedy: "in a Linux guest, remove noapic, nolapic, nolapic_timer and clocksource=pit from \
                 the kernel's command line; for other guests, QEMU's option -global \
                 kvm-pit.lost_tick_policy=discard drops ticks that the guest missed"
            .to_owned(),
    }]
}
