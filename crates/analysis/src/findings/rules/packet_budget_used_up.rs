//! Finds softirqs that postponed packets because they ran out of their packet or time budget.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::knob::KnobProposal;
use ticktax_model::packet_path::{PacketCpu, PacketPaths, ReceivedIn};
use ticktax_model::{CpuList, Moment};

use super::super::Facts;

const BUDGET: &str = "proc/sys/net/core/netdev_budget";
const TIME: &str = "proc/sys/net/core/netdev_budget_usecs";

/// Fewer squeezes than this (`time_squeeze` in `/proc/net/softnet_stat`) are normal: squeezing is
/// how the kernel shares a CPU.
const FEW: u64 = 10;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(packets) = facts.packets else {
        return Vec::new();
    };
    let squeezed: Vec<&PacketCpu> = packets.cpus.iter().filter(|cpu| cpu.squeezed > 0).collect();
    let times: u64 = squeezed.iter().map(|cpu| cpu.squeezed).sum();
    if times < FEW {
        return Vec::new();
    }
    let (budget, time) = (facts.number_in(BUDGET), facts.number_in(TIME));
    let cpus: CpuList = squeezed.iter().map(|cpu| cpu.cpu).collect();
    let frames: u64 = squeezed.iter().map(|cpu| cpu.processed).sum();
    let configured = match (budget, time) {
        (Some(budget), Some(time)) => format!(
            "net.core.netdev_budget = {budget} packets, net.core.netdev_budget_usecs = {time} \u{b5}s"
        ),
        (Some(budget), None) => format!("net.core.netdev_budget = {budget} packets"),
        (None, _) => "net.core.netdev_budget, which could not be read".to_owned(),
    };
    vec![Finding {
        rule: "packet-budget-used-up".to_owned(),
        title: "NET_RX used up its budget and left packets waiting".to_owned(),
        configured,
        effective: format!(
            "{times} times on {}, which received {frames} frames",
            cpus.named()
        ),
        measured: "the increase of time_squeeze in /proc/net/softnet_stat during the recording"
            .to_owned(),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Some(Cost::new(cost(packets), None).at(longest(packets))),
        proposal: budget.and_then(|budget| KnobProposal::new("netdev.budget", 2 * budget)),
        remedy: remedy(budget, time),
    }]
}

fn cost(packets: &PacketPaths) -> String {
    let delays_of = |context: ReceivedIn| {
        let ways = packets
            .groups
            .iter()
            .filter(move |way| way.received_in == context);
        ways.map(|way| &way.delay)
    };
    let handed: u64 = delays_of(ReceivedIn::Ksoftirqd)
        .map(|delay| delay.count)
        .sum();
    let max = delays_of(ReceivedIn::Ksoftirqd)
        .filter_map(|delay| delay.max)
        .max();
    match max {
        Some(max) => format!(
            "packets wait for the next softirq, or for ksoftirqd to get the CPU: of {} wake-ups, \
             {handed} were by ksoftirqd, up to {max} late",
            packets.followed
        ),
        None => "packets wait for the next softirq, or for ksoftirqd to get the CPU".to_owned(),
    }
}

/// Returns the longest delay through `ksoftirqd`, if it is among the longest delays overall.
fn longest(packets: &PacketPaths) -> Option<Moment> {
    let mut ways = packets.longest.iter();
    let way = ways.find(|way| way.received_in == ReceivedIn::Ksoftirqd)?;
    Some(way.moment())
}

fn remedy(budget: Option<u64>, time: Option<u64>) -> String {
    let raise = match (budget, time) {
        (Some(budget), Some(time)) => format!(
            "run `sysctl -w net.core.netdev_budget={} net.core.netdev_budget_usecs={}`",
            2 * budget,
            2 * time
        ),
        (Some(budget), None) => format!("run `sysctl -w net.core.netdev_budget={}`", 2 * budget),
        (None, _) => "raise net.core.netdev_budget and net.core.netdev_budget_usecs".to_owned(),
    };
    format!("{raise}; or spread receiving over more CPUs (RSS queues, RPS)")
}
