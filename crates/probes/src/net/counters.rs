//! What the kernel counts of a network namespace: the calling thread's own.

use std::fs;

use ticktax_model::net::ProtocolCounters;

/// Reads the counters; what a kernel lacks is 0.
pub(super) fn read() -> ProtocolCounters {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    parse(
        &text("/proc/thread-self/net/snmp"),
        &text("/proc/thread-self/net/dev"),
        &text("/proc/net/softnet_stat"),
    )
}

fn parse(snmp: &str, dev: &str, softnet: &str) -> ProtocolCounters {
    let of = |protocol: &str, name: &str| counter(snmp, protocol, name).unwrap_or_default();
    let (device_drops_in, device_drops_out) = drops(dev);
    ProtocolCounters {
        segments_out: of("Tcp:", "OutSegs"),
        segments_in: of("Tcp:", "InSegs"),
        segments_again: of("Tcp:", "RetransSegs"),
        datagrams_out: of("Udp:", "OutDatagrams"),
        datagrams_in: of("Udp:", "InDatagrams"),
        buffer_drops: of("Udp:", "RcvbufErrors"),
        device_drops_in,
        device_drops_out,
        backlog_drops: backlog(softnet),
    }
}

/// A counter by its name: the names of a protocol are one line, their values the next.
fn counter(snmp: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix(protocol));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    both.find(|(it, _)| *it == name)?.1.parse().ok()
}

/// Packets that all devices dropped, on receipt and on the way out.
fn drops(dev: &str) -> (u64, u64) {
    let of_device = |line: &str| {
        let (_, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        // Columns 4 and 12 of 16: "drop" of what is received, and of what is sent.
        Some((*numbers.get(3)?, *numbers.get(11)?))
    };
    let all = dev.lines().filter_map(of_device);
    all.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
}

/// Packets that found a CPU's backlog full: the second column, hexadecimal, a line a CPU.
fn backlog(softnet: &str) -> u64 {
    let second = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    softnet.lines().filter_map(second).sum()
}

#[cfg(test)]
mod tests {
    use super::{parse, read};

    const SNMP: &str = "\
Tcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs
Tcp: 1 20 30 4 0
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors
Udp: 7 1 9 11 8 0
";
    const DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  eth0:     200       2    0    5    0     0          0         0      200       2    0    6    0     0       0          0
";
    const SOFTNET: &str = "0000a1b2 0000000a 00000000 0\n00000003 00000001 00000000 0\n";

    #[test]
    fn counters_are_read_by_name() {
        let it = parse(SNMP, DEV, SOFTNET);
        let tcp = (it.segments_in, it.segments_out, it.segments_again);
        assert_eq!(tcp, (20, 30, 4));
        let udp = (it.datagrams_in, it.datagrams_out, it.buffer_drops);
        assert_eq!(udp, (7, 11, 8));
        let drops = (it.device_drops_in, it.device_drops_out, it.backlog_drops);
        assert_eq!(drops, (5, 6, 11));
    }

    #[test]
    fn what_is_not_there_is_nothing() {
        assert_eq!(parse("Tcp: InSegs", "lo: 1 2", "zz"), parse("", "", ""));
    }

    /// Whatever else runs, the sockets of this machine have sent no less than before.
    #[test]
    fn this_kernel_has_them() {
        let before = read();
        let after = read();
        assert_eq!(before.since(&after).segments_out, 0);
    }
}
