//! Finds virtual machines whose timer tick goes on while they are idle and costs the host CPU time.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::guests::{GuestMachine, GuestTicks, TickMode};

use super::super::Facts;

/// Minimum CPU time to report that ticks of idle vCPUs cost the host, as a share of one CPU.
const MUCH: f64 = 0.002;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(guests) = facts.guests else {
        return Vec::new();
    };
    let ticks = |machine: &GuestMachine| machine.ticks.clone().unwrap_or_default();
    let cost = |machine: &&GuestMachine| ticks(machine).cost.host;
    let keeps_ticking = |machine: &&GuestMachine| {
        let timers = machine.vcpus.iter().filter_map(|vcpu| vcpu.timer.as_ref());
        let mut modes = timers.map(|timer| timer.mode);
        modes.any(|mode| mode == TickMode::KeepsTicking)
            && cost(machine).share_of(guests.elapsed) >= MUCH
    };
    let ticking = guests.machines.iter().filter(keeps_ticking);
    let count = ticking.clone().count();
    let Some(machine) = ticking.max_by_key(cost) else {
        return Vec::new();
    };
    let GuestTicks {
        ticks_per_s, cost, ..
    } = ticks(machine);
    let others = match count {
        1 => String::new(),
        2 => "; one other machine does the same".to_owned(),
        count => format!("; {} other machines do the same", count - 1),
    };
    let exits = cost.exits_per_tick();
    let exits = exits.map_or_else(String::new, |exits| format!(", {exits:.1} exits each"));
    let mut rates = machine
        .vcpus
        .iter()
        .filter_map(|vcpu| vcpu.timer.as_ref()?.hz);
    let hz = rates.next().map_or_else(
        || "the guest's tick is regular".to_owned(),
        |hz| format!("the guest's tick has a rate of {hz} Hz"),
    );
    vec![Finding {
        rule: "guest-keeps-ticking".to_owned(),
        title: "an idle guest's timer tick keeps waking its vCPUs".to_owned(),
        configured: hz,
        effective: format!(
            "the timers of {} ({}) expired {ticks_per_s:.0} times per second{exits}, and went on \
             while its vCPUs were idle{others}",
            machine.name, machine.pid
        ),
        measured: "expiries of KVM's timers, and the vCPUs' time until they slept again".to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Note,
        cost: Some(Cost::new("CPU time of the host", Some(cost.host))),
        proposal: None,
        remedy: "in the guest, remove nohz=off from the kernel's command line, or use a kernel \
                 built with CONFIG_NO_HZ_IDLE"
            .to_owned(),
    }]
}
