//! Finds device interrupts on CPUs that are reserved for other work.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::knob::KnobProposal;

use super::super::Facts;

use ticktax_model::{CpuList, Moment};

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let apart = facts.set_apart();
    if apart.is_empty() {
        return Vec::new();
    }
    let (mut hit, mut lines) = (Vec::new(), Vec::new());
    let mut longest: Option<Moment> = None;
    let mut total = 0;
    for (label, row) in &facts.header.after.interrupts {
        if !label.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // An interrupt that belongs to one CPU's queue cannot be moved. It occurs only when that
        // CPU causes it.
        let goes_to: Option<CpuList> = facts
            .configured
            .interrupt_cpus
            .get(label)
            .and_then(|cpus| cpus.parse().ok());
        if goes_to.is_none_or(|cpus| cpus.len() == 1) && facts.configured.irqbalance != Some(true) {
            continue;
        }
        let (before, after) = (&facts.header.before, &facts.header.after);
        let count: u64 = apart
            .iter()
            .filter_map(|cpu| after.interrupts_since(before, label, cpu))
            .sum();
        if count > 0 {
            total += count;
            hit.push(format!("{label} ({})", row.description));
            lines.extend(label.parse::<u32>());
            let account = facts.interrupt(&row.description);
            let worst = account.and_then(|account| account.longest);
            let worst = worst.filter(|moment| apart.contains(moment.cpu));
            longest = longest
                .into_iter()
                .chain(worst)
                .max_by_key(|moment| moment.length);
        }
    }
    if hit.is_empty() {
        return Vec::new();
    }
    let balancer = match facts.configured.irqbalance {
        Some(true) => "in irqbalance, add these CPUs to IRQBALANCE_BANNED_CPULIST; then ",
        _ => "",
    };
    let online = facts.header.machine.online.iter();
    let others: CpuList = online.filter(|cpu| !apart.contains(*cpu)).collect();
    // Propose nothing if irqbalance is running, because it would move the interrupt back.
    let movable = lines
        .first()
        .filter(|_| balancer.is_empty() && !others.is_empty());
    let proposal =
        movable.and_then(|irq| Some(KnobProposal::new("irq.affinity", &others)?.for_irq(*irq)));
    vec![Finding {
        rule: "interrupts-on-cpus-set-apart".to_owned(),
        title: "Devices interrupt isolated CPUs".to_owned(),
        configured: format!("{} isolated or tickless", apart.named()),
        effective: format!("{total} interrupts on these CPUs: {}", hit.join(", ")),
        measured: "the increase of /proc/interrupts during the recording, and the affinities in \
            /proc/irq"
            .to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Some(Cost::new("each one interrupts the program that runs there", None).at(longest)),
        proposal,
        remedy: format!("{balancer}write the other CPUs to /proc/irq/N/smp_affinity_list"),
    }]
}
