//! Finds packets that are steered (RPS) to the watched program's CPUs, where receiving them
//! interrupts the program.

use ticktax_model::configured::SteeredQueue;
use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::kernel_words::RECEIVE_SOFTIRQ;
use ticktax_model::statement::Class;
use ticktax_model::{Cpu, CpuList, Kind, Nanos};

use super::super::Facts;

/// Minimum time in packet reception to report, as a share of the time that the program needed a
/// CPU.
const MUCH: f64 = 0.01;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let (Some(packets), Some(threads)) = (facts.packets, facts.threads) else {
        return Vec::new();
    };
    let receiving = threads
        .interrupted_by
        .iter()
        .find(|by| by.kind == Kind::Softirq && by.name == RECEIVE_SOFTIRQ);
    let Some(receiving) = receiving else {
        return Vec::new();
    };
    let wanted = threads
        .accounts
        .iter()
        .filter(|account| account.state.is_wanted());
    let wanted: Nanos = wanted.map(|account| account.time).sum();
    let own_cpus: CpuList = {
        let all = packets.threads.iter().flat_map(|thread| thread.cpus.iter());
        all.collect()
    };
    let here = |queue: &&SteeredQueue| queue.cpus.iter().any(|cpu| own_cpus.contains(cpu));
    let queues = facts.configured.steered_queues.iter().filter(here);
    let queues: Vec<&SteeredQueue> = queues.collect();
    let online = facts.header.machine.online.iter();
    let others: CpuList = online.filter(|&cpu| !own_cpus.contains(cpu)).collect();
    let (Some(first), true) = (queues.first(), receiving.time.share_of(wanted) >= MUCH) else {
        return Vec::new();
    };
    let named = queues
        .iter()
        .map(|queue| format!("{} {}", queue.device, queue.queue));
    let named: Vec<String> = named.collect();
    let file = format!(
        "/sys/class/net/{}/queues/{}/rps_cpus",
        first.device, first.queue
    );
    let longest = facts.account(Class::Softirq, RECEIVE_SOFTIRQ);
    let longest = longest.and_then(|account| account.longest);
    let longest = longest.filter(|longest| own_cpus.contains(longest.cpu));
    let remedy = match mask(&others) {
        Some(mask) => format!(
            "run `echo {mask} > {file}` to leave {} to the program",
            others.named()
        ),
        None => format!("give the program fewer CPUs (taskset), and write the others to {file}"),
    };
    vec![Finding {
        rule: "rps-on-programs-cpus".to_owned(),
        title: "The watched program's CPUs receive packets".to_owned(),
        configured: format!("rps_cpus of {}: {}", named.join(", "), first.cpus.named()),
        effective: format!(
            "packets wake its threads on {}, where NET_RX interrupted the program for {} in {} \
             softirqs",
            own_cpus.named(),
            receiving.time,
            receiving.count
        ),
        measured: "softirqs that interrupted its threads, and rps_cpus in /sys/class/net"
            .to_owned(),
        confidence: Confidence::Likely,
        severity: Severity::Warning,
        cost: Some(Cost::new("NET_RX interrupts the program", Some(receiving.time)).at(longest)),
        proposal: None,
        remedy,
    }]
}

/// Returns the CPU mask in the kernel's format, or `None` if `cpus` is empty.
fn mask(cpus: &CpuList) -> Option<String> {
    let Cpu(last) = cpus.iter().last()?;
    let words = (0..=last / 32).rev().map(|place| {
        let own = cpus.iter().filter(|cpu| cpu.0 / 32 == place);
        let word = own.fold(0_u32, |word, cpu| word | 1 << (cpu.0 % 32));
        format!("{word:x}")
    });
    let mut words: Vec<String> = words.collect();
    for word in words.iter_mut().skip(1) {
        *word = format!("{word:0>8}");
    }
    Some(words.join(","))
}

#[cfg(test)]
mod tests {
    use ticktax_model::CpuList;

    use super::mask;

    #[test]
    fn a_mask_has_a_word_for_each_32_cpus() {
        let mask_of = |list: &str| mask(&list.parse().unwrap());
        assert_eq!(mask_of("0,2").as_deref(), Some("5"));
        assert_eq!(mask_of("1,36").as_deref(), Some("10,00000002"));
        assert_eq!(mask(&CpuList::default()), None);
    }
}
