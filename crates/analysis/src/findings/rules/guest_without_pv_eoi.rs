//! Finds virtual machines that exit at the end of each interrupt (EOI), although KVM offers a way
//! without an exit.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::guests::{GuestMachine, InterruptEnds};

use super::super::Facts;

/// Minimum rate of these exits to report, in Hz.
const OFTEN: f64 = 100.0;

fn with_exit(machine: &GuestMachine) -> u64 {
    let ends = machine.interrupt_ends.unwrap_or_default();
    ends.count.saturating_sub(ends.without_exit)
}

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(guests) = facts.guests else {
        return Vec::new();
    };
    let rate =
        |machine: &GuestMachine| with_exit(machine) as f64 / guests.elapsed.as_secs_f64().max(1e-9);
    // A guest that uses the way without an exit still exits if another interrupt is pending.
    let never = |ends: InterruptEnds| ends.without_exit == 0;
    // With APICv and AVIC, only level-triggered interrupts exit at their end, and KVM injects none.
    let is_each = |machine: &GuestMachine| {
        let (ended, injected) = (with_exit(machine), machine.injected.unwrap_or(0));
        injected > 0 && ended.abs_diff(injected) * 10 <= injected
    };
    let is_affected = |machine: &&GuestMachine| {
        machine.interrupt_ends.is_some_and(never) && is_each(machine) && rate(machine) >= OFTEN
    };
    let affected = guests.machines.iter().filter(is_affected);
    let Some(machine) = affected.max_by_key(|machine| with_exit(machine)) else {
        return Vec::new();
    };
    vec![Finding {
        rule: "guest-without-pv-eoi".to_owned(),
        title: "a guest exits at the end of each interrupt".to_owned(),
        configured: "KVM can learn of the end of an interrupt without an exit (PV EOI)".to_owned(),
        effective: format!(
            "{} ({}) ended {} interrupts with an exit, {:.0} per second, and none without one",
            machine.name,
            machine.pid,
            with_exit(machine),
            rate(machine)
        ),
        measured: "kvm_eoi and kvm_pv_eoi".to_owned(),
        confidence: Confidence::Likely,
        severity: Severity::Note,
        cost: Some(Cost::new("exits of the guest", None)),
        proposal: None,
        remedy: "offer the guest PV EOI (QEMU: -cpu with kvm=on and kvm-pv-eoi=on), with a guest \
                 kernel that has CONFIG_KVM_GUEST"
            .to_owned(),
    }]
}
