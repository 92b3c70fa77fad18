//! Datagrams sent at a fixed rate: how many were lost, where they were lost, and why the receiver
//! did not read them in time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::beats::Periodicity;
use crate::net::{End, EndReport, Link, TrafficSpec};
use crate::victim::HoldUp;
use crate::{Kind, Lengths, Nanos};

mod log;
mod places;

pub use log::{
    BurstWindow, Charge, DropReason, LossBurst, PacketLog, PacketRun, Pause, SocketBuffer, TimeSlot,
};
pub use places::places;

/// The result of `ticktax pace --udp`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketStatement {
    /// Version of ticktax that wrote the document.
    pub tool_version: String,
    /// Host name.
    pub host: String,
    /// Specification of the traffic.
    pub spec: TrafficSpec,
    /// Link that carried the datagrams.
    pub link: Link,
    /// Ends of the traffic that ran on this host.
    pub local_ends: Vec<End>,
    /// Report of the sender.
    pub sender: Option<EndReport>,
    /// Report of the receiver.
    pub receiver: Option<EndReport>,
    /// CPU that the receiver was pinned to; `None` if it was not pinned.
    pub receiver_cpu: Option<u32>,
    /// Receive buffer of the receiver's socket; `None` on the sender's host.
    pub buffer: Option<SocketBuffer>,
    /// Where datagrams were lost; `None` if it is unknown how many were sent.
    pub losses: Option<PacketLosses>,
    /// Why this host's kernel dropped datagrams of this stream, most frequent reason first; `None`
    /// if drops were not traced.
    #[serde(default)]
    pub drop_reasons: Option<Vec<DropReason>>,
    /// Bursts of losses, in chronological order; `None` on the sender's host.
    pub bursts: Option<Vec<Burst>>,
    /// Number of datagrams lost in further bursts that did not fit into the log.
    pub lost_outside_bursts: u64,
    /// Causes that delayed the receiver while its buffer filled, largest loss first.
    pub causes: Vec<BurstCause>,
    /// Period at which the bursts recur; `None` if they are not periodic.
    pub beat: Option<Periodicity>,
    /// Smallest buffer that would have prevented all losses. Computed only if datagrams were lost
    /// because the buffer was full.
    pub needed: Option<NeededBuffer>,
    /// Time from sending a datagram to reading it; `None` between two hosts, whose clocks may
    /// differ. The median and the 99th percentile are accurate to ±11 %.
    pub delays: Option<Lengths>,
    /// Losses and delays over time, in slots of equal length.
    pub by_time: Vec<TimeSlot>,
    /// Length of each slot in `by_time`.
    #[serde(rename = "slot_ns")]
    pub slot: Nanos,
    /// Why it is unknown what delayed the receiver; `None` if its host was traced.
    pub untraced_reason: Option<String>,
    /// Number of trace events that did not fit into the buffers. If there are any, some causes may
    /// be missing.
    pub events_lost: u64,
}

/// Places where datagrams were lost. The numbers for all places add up to `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketLosses {
    /// Total number of datagrams lost, according to gaps in the numbering.
    pub total: u64,
    /// Lost because the sender's queueing discipline was full (`SndbufErrors` in its network
    /// namespace, or the discipline's own counter).
    pub send_queue: u64,
    /// Lost because the receiving socket's buffer was full (the socket's own counter).
    pub socket_buffer: u64,
    /// Lost because UDP had used up its memory limit (`MemErrors`, `net.ipv4.udp_mem`).
    pub udp_memory: u64,
    /// Not read: these datagrams were still in the socket's buffer when the receiver stopped.
    pub never_read: u64,
    /// Dropped by the kernel for a reason that no other field covers (`skb:kfree_skb`).
    #[serde(default)]
    pub other_reason: u64,
    /// Lost because a CPU's backlog queue was full (`/proc/net/softnet_stat`, which covers the
    /// entire machine).
    pub backlog: u64,
    /// Lost because a network card's receive ring was full or the card had no room
    /// (`rx_missed_errors`, `rx_fifo_errors`).
    pub ring: u64,
    /// Dropped by a network device (`/proc/net/dev`).
    pub device: u64,
    /// Lost in an unknown place, because no counter includes these datagrams.
    pub unknown: u64,
}

/// A burst of losses: all datagrams lost before the receiver had read everything that was waiting
/// in its buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Burst {
    /// Time when the first lost datagram was sent, relative to the first datagram of the transfer.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Sequence number of the first lost datagram.
    pub first: u64,
    /// Number of datagrams lost in this burst.
    pub lost: u64,
    /// Number of lost datagrams that the socket counted as dropped.
    pub socket_drops: u64,
    /// Length of the pause between two reads during which the first datagram was lost; `None` if
    /// the receiver did not pause or the length is unknown.
    #[serde(rename = "read_pause_ns")]
    pub read_pause: Option<Nanos>,
    /// Number of datagrams sent during the pause, starting with the first one that had to wait;
    /// `None` if unknown.
    #[serde(default)]
    pub sent_in_pause: Option<u64>,
    /// Number of datagrams waiting in the buffer when the first one was lost. This can be less than
    /// the buffer's capacity, because data that was read recently may still be charged to the
    /// buffer.
    #[serde(default)]
    pub queued: Option<u64>,
    /// Why the receiver paused; `None` if it was neither off its CPU nor interrupted.
    pub stall: Option<Stall>,
    /// Predicted number of lost datagrams: max(0, r·S − B) + 1, where S is the length of the stall,
    /// r the rate at which datagrams were sent, and B the capacity of the buffer. `None` if any of
    /// these is unknown.
    pub predicted: Option<u64>,
}

/// An interval during which the receiver could not run while its buffer filled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// Time from the moment the receiver was first delayed until it read again.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Causes of the stall, largest first.
    pub causes: Vec<StallCause>,
}

/// A cause that kept the receiver from running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StallCause {
    /// Kind of delay.
    pub kind: HoldUp,
    /// Name of the program or kernel activity that used the receiver's CPU; empty if the CPU was
    /// not used.
    pub name: String,
    /// Kind of the activity in `name`.
    pub source_kind: Kind,
    /// Process id, if the activity is a program.
    pub pid: Option<i32>,
    /// Time that this cause delayed the receiver.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// A cause of loss bursts, with the bursts it caused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BurstCause {
    /// The cause that contributed most to the stall in each of these bursts; `None` for bursts
    /// without an observed cause.
    pub cause: Option<StallCause>,
    /// Number of bursts.
    pub bursts: u64,
    /// Number of datagrams lost in these bursts.
    pub lost: u64,
    /// Longest stall among these bursts.
    #[serde(rename = "longest_ns")]
    pub longest: Nanos,
}

/// A receive buffer that would have prevented all losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NeededBuffer {
    /// Number of datagrams that the buffer must be able to hold.
    pub datagrams: u64,
    /// Part of `datagrams` reserved in case the receiver pauses again while it empties the buffer.
    /// It is the number of datagrams that arrive during `spare_pause`.
    #[serde(default)]
    pub spare_datagrams: u64,
    /// Assumed length of another pause while the receiver empties the buffer. It is the longest
    /// pause without a loss, but at most the longest pause around a burst.
    #[serde(rename = "spare_pause_ns", default)]
    pub spare_pause: Nanos,
    /// Size as the kernel counts it, in bytes. `getsockopt(SO_RCVBUF)` would return this value.
    pub bytes: u64,
    /// Size to request with `setsockopt(SO_RCVBUF)`, in bytes. The kernel doubles this value.
    pub request_bytes: u64,
}

impl PacketStatement {
    /// Returns the requested number of datagrams per second; `None` if the sender sends as fast as
    /// the link allows.
    pub fn asked_hz(&self) -> Option<f64> {
        Some(self.spec.rate? / 8.0 / f64::from(self.spec.call_bytes))
    }

    /// Returns the number of datagrams sent per second; `None` if it is unknown.
    pub fn sent_hz(&self) -> Option<f64> {
        let sender = self.sender.as_ref()?;
        let elapsed = sender.elapsed();
        (elapsed > Nanos::ZERO).then(|| sender.calls as f64 / elapsed.as_secs_f64())
    }

    /// Returns the reached share of the requested rate, 0 to 1, if it is below 97 %; otherwise
    /// `None`.
    pub fn shortfall(&self) -> Option<f64> {
        let reached = self.sent_hz()? / self.asked_hz()?;
        (reached < 0.97).then_some(reached)
    }

    /// Returns the total loss in the bursts that have a prediction, and the sum of the predictions.
    /// `None` if no burst has one.
    pub fn predicted(&self) -> Option<(u64, u64)> {
        let bursts = self.bursts.iter().flatten();
        let known = bursts.filter_map(|burst| Some((burst.lost, burst.predicted?)));
        known.reduce(|sum, burst| (sum.0 + burst.0, sum.1 + burst.1))
    }
}
