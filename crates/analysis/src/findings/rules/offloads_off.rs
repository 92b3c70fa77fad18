//! Finds packet processing that is left to the CPUs even though a device could do it.

use ticktax_model::Nanos;
use ticktax_model::configured::{DeviceOffloads, Offload};
use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::machine::DevicePackets;
use ticktax_model::statement::Class;

use super::super::Facts;

/// Minimum share of all CPU time that packet processing must take to be reported.
const MUCH: f64 = 0.01;

/// A device is considered only if it received or sent at least this many packets.
const SOME: u64 = 1_000;

/// Softirqs that process packets.
const OF_PACKETS: [&str; 2] = ["NET_RX", "NET_TX"];

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let header = facts.header;
    let elapsed = header.after.at - header.before.at;
    let cpus = header.machine.online.len();
    let time = packet_time(facts);
    let share = time.share_of(elapsed.times(cpus as f64));
    if share < MUCH {
        return Vec::new();
    }
    let devices = facts.configured.offloads_off.iter();
    let findings = devices.filter_map(|device| {
        let after = header.after.devices.get(&device.device)?;
        // For a device created during the recording, count from 0.
        let before = header.before.devices.get(&device.device).copied();
        let before = before.unwrap_or_default();
        let packets = DevicePackets {
            received: after.received.saturating_sub(before.received),
            sent: after.sent.saturating_sub(before.sent),
        };
        let concerned = device.off.iter().copied().filter(|offload| {
            let passed = if offload.is_of_received() {
                packets.received
            } else {
                packets.sent
            };
            passed >= SOME
        });
        let off: Vec<Offload> = concerned.collect();
        (!off.is_empty()).then(|| finding(device, &off, packets, time, share))
    });
    findings.collect()
}

fn packet_time(facts: &Facts<'_>) -> Nanos {
    let accounts = facts.accounts.iter().filter(|account| {
        account.class == Class::Softirq && OF_PACKETS.contains(&account.name.as_str())
    });
    accounts.map(|account| account.time).sum()
}

fn finding(
    device: &DeviceOffloads,
    off: &[Offload],
    packets: DevicePackets,
    time: Nanos,
    share: f64,
) -> Finding {
    let name = &device.device;
    let names: Vec<&str> = off.iter().map(|offload| offload.name()).collect();
    let names = names.join(", ");
    let switches: Vec<String> = off
        .iter()
        .map(|offload| format!("{} on", offload.name()))
        .collect();
    let factors: Vec<String> = off
        .iter()
        .filter_map(|offload| experiment(*offload))
        .map(|factor| format!("--vary {factor}=0,1"))
        .collect();
    let measure = if factors.is_empty() {
        String::new()
    } else {
        let factors = factors.join(" ");
        format!("; measure the saving on this kernel with `ticktax net pair {factors}`")
    };
    Finding {
        rule: "offloads-off".to_owned(),
        title: format!("{name} does not offload work from the CPUs"),
        configured: format!("{names}, which {name} supports"),
        effective: format!(
            "off, while {} packets were received and {} sent",
            packets.received, packets.sent
        ),
        measured:
            "the device's features (ethtool netlink), the increase of /proc/net/dev, and the \
            time of NET_RX and NET_TX"
                .to_owned(),
        // It was not measured how much of this time the offload would save.
        confidence: Confidence::Possible,
        severity: Severity::Note,
        cost: Some(Cost::new(
            format!(
                "part of NET_RX and NET_TX ({:.1} % of all CPU time), and of the system calls that \
                 send",
                100.0 * share
            ),
            Some(time),
        )),
        proposal: None,
        remedy: format!("run `ethtool -K {name} {}`{measure}", switches.join(" ")),
    }
}

/// Returns the factor in ticktax's experiments that switches this offload, or `None` if the
/// experiments don't cover it.
const fn experiment(offload: Offload) -> Option<&'static str> {
    match offload {
        Offload::Checksum => Some("tx-checksum"),
        Offload::Segmentation => Some("tso"),
        Offload::GenericSegmentation => Some("gso"),
        Offload::GenericReceive => Some("gro"),
        // The experiments use a veth pair, which has no checksums to verify.
        Offload::ReceiveChecksum => None,
    }
}
