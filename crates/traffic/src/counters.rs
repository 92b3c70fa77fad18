//! The kernel's protocol counters for the calling thread's network namespace.

use std::fs;
use std::path::Path;

use ticktax_model::net::ProtocolCounters;

use super::qdisc;

/// Reads the counters. Counters that the kernel lacks are 0.
pub(super) fn read() -> ProtocolCounters {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let counters = parse(
        &text("/proc/thread-self/net/snmp"),
        &text("/proc/thread-self/net/netstat"),
        &text("/proc/thread-self/net/dev"),
        &text("/proc/net/softnet_stat"),
    );
    // `/sys` shows the devices of the namespace in which the process started. If the thread has
    // moved to a different namespace, these are not its devices.
    let namespace = |task: &str| fs::read_link(format!("/proc/{task}/ns/net")).ok();
    let is_at_home = namespace("thread-self") == namespace("self");
    ProtocolCounters {
        ring_drops: if is_at_home {
            ring(Path::new("/sys/class/net"))
        } else {
            0
        },
        queue_drops: qdisc::drops(),
        ..counters
    }
}

/// Returns how many packets the devices in the directory `devices` dropped because the network
/// card's receive ring was full.
fn ring(devices: &Path) -> u64 {
    let counter = |device: &Path, name: &str| {
        let text = fs::read_to_string(device.join("statistics").join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let devices = fs::read_dir(devices).into_iter().flatten().flatten();
    let names = ["rx_missed_errors", "rx_fifo_errors"];
    let device_drops = |device: &Path| -> u64 {
        names
            .into_iter()
            .filter_map(|name| counter(device, name))
            .sum()
    };
    devices.map(|device| device_drops(&device.path())).sum()
}

fn parse(snmp: &str, netstat: &str, dev: &str, softnet: &str) -> ProtocolCounters {
    let value = |protocol: &str, name: &str| counter(snmp, protocol, name).unwrap_or_default();
    let (device_drops_in, device_drops_out) = drops(dev);
    ProtocolCounters {
        segments_out: value("Tcp:", "OutSegs"),
        segments_in: value("Tcp:", "InSegs"),
        segments_retransmitted: value("Tcp:", "RetransSegs"),
        segments_duplicated: counter(netstat, "TcpExt:", "TCPDSACKRecvSegs").unwrap_or_default(),
        datagrams_out: value("Udp:", "OutDatagrams"),
        datagrams_in: value("Udp:", "InDatagrams"),
        buffer_drops: value("Udp:", "RcvbufErrors"),
        queue_drops: 0,
        device_drops_in,
        device_drops_out,
        backlog_drops: backlog(softnet),
        send_drops: value("Udp:", "SndbufErrors"),
        memory_drops: value("Udp:", "MemErrors"),
        ring_drops: 0,
    }
}

/// Returns the value of a protocol's counter `name`, or `None` if `text` does not contain it. In
/// `text`, a line with the names of the protocol's counters is followed by a line with their
/// values.
fn counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut counters = names.split_whitespace().zip(values.split_whitespace());
    counters.find(|(known, _)| *known == name)?.1.parse().ok()
}

/// Returns how many packets were dropped on receiving and on sending, each summed over all devices.
fn drops(dev: &str) -> (u64, u64) {
    let of_device = |line: &str| {
        let (_, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        // The file has 16 columns. The 4th counts received packets that were dropped, and the 12th
        // counts packets that were dropped on sending.
        Some((*numbers.get(3)?, *numbers.get(11)?))
    };
    let all = dev.lines().filter_map(of_device);
    all.fold((0, 0), |sum, drops| (sum.0 + drops.0, sum.1 + drops.1))
}

/// Returns how many packets were dropped because a CPU's backlog was full. `softnet` has one line
/// per CPU, with the count in the second column, in hexadecimal.
fn backlog(softnet: &str) -> u64 {
    let second = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    softnet.lines().filter_map(second).sum()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{parse, read, ring};

    const SNMP: &str = "\
Tcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs
Tcp: 1 20 30 4 0
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors MemErrors
Udp: 7 1 9 11 8 12 13
";
    const NETSTAT: &str = "\
TcpExt: SyncookiesSent TCPDSACKRecv TCPDSACKRecvSegs
TcpExt: 0 2 3
IpExt: InNoRoutes
IpExt: 0
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
        let counters = parse(SNMP, NETSTAT, DEV, SOFTNET);
        let tcp = (
            counters.segments_in,
            counters.segments_out,
            counters.segments_retransmitted,
        );
        assert_eq!(tcp, (20, 30, 4));
        assert_eq!(counters.segments_duplicated, 3);
        let udp = (
            counters.datagrams_in,
            counters.datagrams_out,
            counters.buffer_drops,
        );
        assert_eq!(udp, (7, 11, 8));
        let drops = (
            counters.device_drops_in,
            counters.device_drops_out,
            counters.backlog_drops,
        );
        assert_eq!(drops, (5, 6, 11));
        assert_eq!((counters.send_drops, counters.memory_drops), (12, 13));
    }

    #[test]
    fn ring_drops_of_all_cards_are_summed() {
        let folder = tempfile::tempdir().unwrap();
        for (card, name, count) in [
            ("eth0", "rx_missed_errors", "5\n"),
            ("eth0", "rx_fifo_errors", "2\n"),
            ("eth1", "rx_missed_errors", "1\n"),
            ("eth1", "rx_fifo_errors", "none"),
        ] {
            let statistics = folder.path().join(card).join("statistics");
            fs::create_dir_all(&statistics).unwrap();
            fs::write(statistics.join(name), count).unwrap();
        }
        assert_eq!(ring(folder.path()), 8);
        assert_eq!(ring(&folder.path().join("none")), 0);
    }

    #[test]
    fn missing_counters_are_zero() {
        let nothing = parse("", "", "", "");
        assert_eq!(parse("Tcp: InSegs", "TcpExt: A", "lo: 1 2", "zz"), nothing);
    }

    /// Other programs may send segments during the test. That does no harm, because it can only
    /// increase the counters.
    #[test]
    fn this_kernels_counters_are_read() {
        let before = read();
        let after = read();
        assert_eq!(before.since(&after).segments_out, 0);
    }
}
