//! Determines where datagrams were lost.

use super::{DropReason, PacketLog, PacketLosses};
use crate::net::EndReport;

/// Drop reasons that a counter also covers, and the reasons that kernels give if the actual reason
/// is unknown.
const COUNTED: [&str; 5] = [
    "SOCKET_RCVBUFF",
    "PROTO_MEM",
    "CPU_BACKLOG",
    "FULL_RING",
    "NOT_SPECIFIED",
];

/// Prefix of the drop reasons that queueing disciplines give.
const QUEUE: &str = "QDISC_";

/// Returns where the datagrams were lost; `None` if it is unknown how many were sent. The numbers
/// for all places add up to the total loss.
///
/// Counters that belong only to our own sockets and network namespaces are applied first. Counters
/// of the entire host, such as a CPU's backlog or a card's ring, may include other traffic, so they
/// account for at most the losses that remain.
///
/// If a backlog is full, both devices of a veth pair count the drop as well. If a ring is full, the
/// network card also counts it among its device drops. These drops are subtracted from the devices'
/// counts.
///
/// The kernel's drop `reasons` cover only this stream on this host. Reasons given by queueing
/// disciplines are used if they add up to more than the disciplines' own counters. Other reasons
/// are used if no counter covers them.
pub fn places(
    sender: Option<&EndReport>,
    receiver: &EndReport,
    log: Option<&PacketLog>,
    reasons: &[DropReason],
) -> Option<PacketLosses> {
    let lost = receiver.datagrams?.lost()?;
    let mut left = lost;
    let mut take = |count: u64| {
        let taken = count.min(left);
        left -= taken;
        taken
    };
    let at_receiver = &receiver.counters;
    let never_read = take(log.map_or(0, |log| log.never_read));
    // The socket's drop counter also includes datagrams dropped because UDP had used up its memory
    // limit.
    let dropped = log.map_or(at_receiver.buffer_drops + at_receiver.memory_drops, |log| {
        log.socket_drops
    });
    let udp_memory = take(at_receiver.memory_drops.min(dropped));
    let socket_buffer = take(dropped - at_receiver.memory_drops.min(dropped));
    let sent = sender.map(|sender| &sender.counters);
    // UDP's counter includes drops in the device's queue, unless the queue hides them from UDP, as
    // netem does.
    let queue = reasons.iter().filter(|drop| drop.reason.starts_with(QUEUE));
    let queue: u64 = queue.map(|drop| drop.datagrams).sum();
    let counted = sent.map_or(0, |counters| counters.send_drops.max(counters.queue_drops));
    let send_queue = take(counted.max(queue));
    let others = reasons.iter().filter(|drop| {
        let is_counted = COUNTED.contains(&&*drop.reason);
        !is_counted && !drop.reason.starts_with(QUEUE)
    });
    let other_reason = take(others.map(|drop| drop.datagrams).sum());
    let backlog = take(at_receiver.backlog_drops);
    let ring = take(at_receiver.ring_drops);
    let device = at_receiver
        .device_drops_in
        .saturating_sub(at_receiver.ring_drops)
        + sent.map_or(0, |counters| {
            counters
                .device_drops_out
                .saturating_sub(at_receiver.backlog_drops)
        });
    let device = take(device);
    Some(PacketLosses {
        total: lost,
        send_queue,
        socket_buffer,
        udp_memory,
        never_read,
        other_reason,
        backlog,
        ring,
        device,
        unknown: left,
    })
}
