//! Finds device interrupts on the watched program's CPUs, where receiving packets interrupts the
//! program.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::kernel_words::RECEIVE_SOFTIRQ;
use ticktax_model::knob::KnobProposal;
use ticktax_model::{CpuList, Kind, Nanos};

use super::super::Facts;

/// Minimum time in packet reception to report, as a share of the time that the program needed a
/// CPU.
const MUCH: f64 = 0.01;

/// `NET_RX` is attributed to an interrupt only if the interrupt occurred at least this often on the
/// program's CPUs.
const SOME: u64 = 100;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let (Some(packets), Some(threads)) = (facts.packets, facts.threads) else {
        return Vec::new();
    };
    let mut interrupted = threads.interrupted_by.iter();
    let receiving = interrupted.find(|by| by.kind == Kind::Softirq && by.name == RECEIVE_SOFTIRQ);
    let Some(receiving) = receiving else {
        return Vec::new();
    };
    let wanted = threads
        .accounts
        .iter()
        .filter(|account| account.state.is_wanted());
    let wanted: Nanos = wanted.map(|account| account.time).sum();
    if receiving.time.share_of(wanted) < MUCH {
        return Vec::new();
    }
    let own_cpus: CpuList = packets
        .threads
        .iter()
        .flat_map(|thread| thread.cpus.iter())
        .collect();
    let online = facts.header.machine.online.iter();
    let others: CpuList = online.filter(|&cpu| !own_cpus.contains(cpu)).collect();
    let (before, after) = (&facts.header.before, &facts.header.after);
    // Use the recorded edges to find the interrupts that raised `NET_RX` for the program's threads.
    let lines = after.interrupts.iter().filter_map(|(label, row)| {
        let irq: u32 = label.parse().ok()?;
        let mut ways = packets.groups.iter();
        let name = ways.find_map(|way| {
            let name = way.raised_by.as_deref();
            let name = name.filter(|_| way.kind == Some(Kind::Irq))?;
            let mut devices = row.description.split([' ', ',']);
            devices.any(|device| device == name).then_some(name)
        })?;
        let counts = own_cpus
            .iter()
            .filter_map(|cpu| after.interrupts_since(before, label, cpu));
        let count: u64 = counts.sum();
        (count >= SOME).then_some((irq, name, count))
    });
    let lines = lines.map(|(irq, name, count)| {
        let goes_to = facts.configured.interrupt_cpus.get(&irq.to_string());
        let goes_to = goes_to.map_or_else(
            || "has an unknown affinity".to_owned(),
            |cpus| format!("may run on CPU {cpus}"),
        );
        let remedy = if others.is_empty() {
            "give the program fewer CPUs (taskset), and move the interrupt to the others".to_owned()
        } else {
            format!(
                "run `echo {others} > /proc/irq/{irq}/smp_affinity_list` to leave {} to the \
                 program; irqbalance, if running, reverts this",
                others.named()
            )
        };
        let proposal = KnobProposal::new("irq.affinity", &others).filter(|_| !others.is_empty());
        Finding {
            rule: "packets-on-programs-cpus".to_owned(),
            title: format!("{name} interrupts the CPUs of the watched program"),
            configured: format!("/proc/irq/{irq}/smp_affinity_list: interrupt {irq} ({name}) {goes_to}"),
            effective: format!(
                "{count} interrupts on {}, where NET_RX interrupted the program for {} in {} softirqs",
                own_cpus.named(),
                receiving.time,
                receiving.count
            ),
            measured: "softirqs that interrupted its threads and their triggers, and the increase \
                of /proc/interrupts"
                .to_owned(),
            confidence: Confidence::Likely,
            severity: Severity::Warning,
            cost: Some(Cost::new(
                "NET_RX interrupts the program",
                Some(receiving.time),
            )),
            proposal: proposal.map(|proposal| proposal.for_irq(irq)),
            remedy,
        }
    });
    lines.collect()
}
