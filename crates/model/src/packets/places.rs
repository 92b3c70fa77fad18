//! Where lost datagrams were lost.

use super::{DropReason, PacketLog, PacketPlaces};
use crate::net::EndReport;

/// Reasons for drops that a counter tells as well, and what kernels say where they do not say why.
const COUNTED: [&str; 5] = [
    "SOCKET_RCVBUFF",
    "PROTO_MEM",
    "CPU_BACKLOG",
    "FULL_RING",
    "NOT_SPECIFIED",
];

/// What the reasons of queueing disciplines begin with.
const QUEUE: &str = "QDISC_";

/// The places of what was lost; they sum to it. `None` where it is not known how many were sent.
///
/// What only our own sockets and namespaces count comes first. What is counted for a whole host (a CPU's backlog, a
/// card's ring) may be others', so no more is taken of it than is left. A full backlog is counted again by the devices
/// on both sides of a veth pair, and a full ring by its device: these are taken off the devices' counts. The kernel's
/// `reasons` are of this stream alone, but of this host: those of a queueing discipline count where they are more than
/// its counters, and those that no counter is about.
pub fn places(
    sender: Option<&EndReport>,
    receiver: &EndReport,
    log: Option<&PacketLog>,
    reasons: &[DropReason],
) -> Option<PacketPlaces> {
    let lost = receiver.datagrams?.lost()?;
    let mut left = lost;
    let mut take = |count: u64| {
        let taken = count.min(left);
        left -= taken;
        taken
    };
    let here = &receiver.counters;
    let never_read = take(log.map_or(0, |log| log.never_read));
    // The socket counts what UDP had no memory for as dropped as well.
    let dropped = log.map_or(here.buffer_drops + here.memory_drops, |log| {
        log.socket_drops
    });
    let udp_memory = take(here.memory_drops.min(dropped));
    let socket_buffer = take(dropped - here.memory_drops.min(dropped));
    let there = sender.map(|sender| &sender.counters);
    // UDP counts what its device's queue dropped as well, unless the queue keeps that to itself, as netem does.
    let queue = reasons.iter().filter(|it| it.reason.starts_with(QUEUE));
    let queue: u64 = queue.map(|it| it.datagrams).sum();
    let counted = there.map_or(0, |it| it.send_drops.max(it.queue_drops));
    let send_queue = take(counted.max(queue));
    let others = reasons.iter().filter(|it| {
        let is_counted = COUNTED.contains(&&*it.reason);
        !is_counted && !it.reason.starts_with(QUEUE)
    });
    let other_reason = take(others.map(|it| it.datagrams).sum());
    let backlog = take(here.backlog_drops);
    let ring = take(here.ring_drops);
    let device = here.device_drops_in.saturating_sub(here.ring_drops)
        + there.map_or(0, |it| {
            it.device_drops_out.saturating_sub(here.backlog_drops)
        });
    let device = take(device);
    Some(PacketPlaces {
        lost,
        send_queue,
        socket_buffer,
        udp_memory,
        never_read,
        other_reason,
        backlog,
        ring,
        device,
        not_placed: left,
    })
}
