//! The receive path of packets: from the NIC ring to the protocol queue, the socket buffer, and the
//! task that reads the packet.

use ticktax_model::Nanos;

use super::Engine;
use super::wakers::Waker;
use crate::hash::TraceEvent;

const RING: usize = 0;
const PROTOCOL: usize = 1;
const SOCKET: usize = 2;

impl Engine<'_> {
    /// Puts a packet into the NIC's ring, which the NIC does even while the CPU is busy.
    pub(super) fn packet_arrives(&mut self, link: usize) {
        let state = &mut self.links[link];
        state.report.arrived += 1;
        state.put(RING, 1, state.link.ring);
    }

    /// Moves all packets from the ring to the protocol queue, as the NIC's interrupt handler does.
    pub(super) fn packets_go_up(&mut self, link: usize) {
        let state = &mut self.links[link];
        let count = std::mem::take(&mut state.report.queued[RING]);
        state.put(PROTOCOL, count, state.link.protocol);
    }

    /// Returns how long the softirq takes to process the packets that are now in the protocol
    /// queue.
    pub(super) fn packets_cost(&self, link: usize) -> Nanos {
        let state = &self.links[link];
        let count = i64::try_from(state.report.queued[PROTOCOL]).unwrap_or(i64::MAX);
        Nanos(state.link.cost.0 * count)
    }

    /// Moves the packets that the softirq has processed to the socket buffer, and wakes readers.
    pub(super) fn packets_reach_the_socket(&mut self, link: usize, by: Waker) {
        let state = &mut self.links[link];
        let count = std::mem::take(&mut state.report.queued[PROTOCOL]);
        state.put(SOCKET, count, state.link.socket);
        // Wake one task per packet. A packet stays in the buffer until the woken task reads it.
        for _ in 0..count {
            let Some(task) = self.links[link].waiting.pop_front() else {
                return;
            };
            self.wake(task, by);
        }
    }

    pub(super) fn take_packet(&mut self, link: usize) -> bool {
        let report = &mut self.links[link].report;
        if report.queued[SOCKET] == 0 {
            return false;
        }
        report.queued[SOCKET] -= 1;
        report.delivered += 1;
        let what = u32::try_from(link).unwrap_or(u32::MAX);
        self.hash.note(self.now, TraceEvent::Packet, 0, what);
        true
    }
}

impl super::LinkState {
    /// Adds `count` packets to queue `queue`, which has a capacity of `room`, and drops the packets
    /// that do not fit.
    fn put(&mut self, queue: usize, count: u64, room: u64) {
        let taken = count.min(room.saturating_sub(self.report.queued[queue]));
        self.report.queued[queue] += taken;
        self.report.dropped[queue] += count - taken;
    }
}
