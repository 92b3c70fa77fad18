//! Datagrams sent at a fixed rate: how many were lost, where, and what kept the receiver from
//! reading them.

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
    /// Ends that ran on this host.
    pub local_ends: Vec<End>,
    /// Report of the sender.
    pub sender: Option<EndReport>,
    /// Report of the receiver.
    pub receiver: Option<EndReport>,
    /// CPU that the receiver was pinned to.
    pub receiver_cpu: Option<u32>,
    /// Receive buffer of the socket; `None` on the sender's host.
    pub buffer: Option<SocketBuffer>,
    /// Where datagrams were lost; `None` if the number sent is unknown.
    pub losses: Option<PacketLosses>,
    /// Why this host's kernel dropped datagrams of this stream, most frequent reason first; `None`
    /// if drops were not traced.
    #[serde(default)]
    pub drop_reasons: Option<Vec<DropReason>>,
    /// Bursts of losses, in order; `None` on the sender's host.
    pub bursts: Option<Vec<Burst>>,
    /// Number of datagrams lost in bursts that did not fit into the log.
    pub lost_outside_bursts: u64,
    /// Causes that delayed the receiver while its buffer filled, largest loss first.
    pub causes: Vec<BurstCause>,
    /// Period of the bursts, if they recur periodically.
    pub beat: Option<Periodicity>,
    /// Smallest buffer that would have prevented all losses, if datagrams were lost because the
    /// buffer was full.
    pub needed: Option<NeededBuffer>,
    /// Time from sending a datagram to reading it; `None` between hosts, because their clocks may
    /// differ. Median and p99 are accurate to ±11 %.
    pub delays: Option<Lengths>,
    /// Losses and delays over time, in slots of equal length.
    pub by_time: Vec<TimeSlot>,
    /// Length of a slot in `by_time`.
    #[serde(rename = "slot_ns")]
    pub slot: Nanos,
    /// Why the causes of the receiver's delays are unknown.
    pub untraced_reason: Option<String>,
    /// Number of trace events that did not fit into the buffers. Causes may be missing as a result.
    pub events_lost: u64,
}

/// Where datagrams were lost. The numbers add up to the total loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketLosses {
    /// Total loss: datagrams missing from the sequence.
    pub total: u64,
    /// Lost because the sender's queueing discipline was full (`SndbufErrors` in its network
    /// namespace, or the discipline's own counter).
    pub send_queue: u64,
    /// Lost because the receiving socket's buffer was full (the socket's own counter).
    pub socket_buffer: u64,
    /// Lost because UDP's total memory limit was reached (`MemErrors`, `net.ipv4.udp_mem`).
    pub udp_memory: u64,
    /// Still in the socket's buffer when the receiver stopped.
    pub never_read: u64,
    /// Dropped by the kernel for a reason that no other field covers (`skb:kfree_skb`).
    #[serde(default)]
    pub other_reason: u64,
    /// Lost because a CPU's backlog was full (`/proc/net/softnet_stat`, for the entire machine).
    pub backlog: u64,
    /// Lost because a network card's ring was full or the card had no room (`rx_missed_errors`,
    /// `rx_fifo_errors`).
    pub ring: u64,
    /// Dropped by a device (`/proc/net/dev`).
    pub device: u64,
    /// Lost in an unknown place: no counter covers these datagrams.
    pub unknown: u64,
}

/// A burst of losses: all datagrams lost before the receiver had read everything that was waiting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Burst {
    /// When the first lost datagram was sent, relative to the first datagram of the transfer.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Number of the first lost datagram.
    pub first: u64,
    /// Number of datagrams lost.
    pub lost: u64,
    /// Number of these datagrams that the socket counted as dropped.
    pub socket_drops: u64,
    /// Time without a read around the loss of the first datagram; `None` if the receiver never
    /// paused or the pause is unknown.
    #[serde(rename = "read_pause_ns")]
    pub read_pause: Option<Nanos>,
    /// Number of datagrams sent from the first waiting one until the receiver read again; `None` if
    /// unknown.
    #[serde(default)]
    pub sent_in_pause: Option<u64>,
    /// Number of datagrams waiting when the first one was lost. It can be below the buffer's
    /// capacity, because recently read data may still be charged to the buffer.
    #[serde(default)]
    pub queued: Option<u64>,
    /// Cause of the pause; `None` if the receiver was neither off its CPU nor interrupted.
    pub stall: Option<Stall>,
    /// Loss expected from the stall S, the rate r and the buffer B: max(0, r·S − B) + 1.
    pub predicted: Option<u64>,
}

/// An interval in which the receiver could not run while its buffer filled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// Time from when the receiver was first delayed until it read again.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Causes of the delay, largest first.
    pub causes: Vec<StallCause>,
}

/// A cause that kept the receiver from running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StallCause {
    /// Kind of delay.
    pub kind: HoldUp,
    /// Name of the program or kernel activity that used the CPU; empty if nothing did.
    pub name: String,
    /// Kind of the activity in `name`.
    pub source_kind: Kind,
    /// Process id, if the activity is a program.
    pub pid: Option<i32>,
    /// Time due to this cause.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// A cause of loss bursts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BurstCause {
    /// Largest cause of the stall in each of these bursts; `None` if no cause was observed.
    pub cause: Option<StallCause>,
    /// Number of bursts.
    pub bursts: u64,
    /// Number of datagrams lost in these bursts.
    pub lost: u64,
    /// Longest stall among these bursts.
    #[serde(rename = "longest_ns")]
    pub longest: Nanos,
}

/// A buffer that would have prevented all losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NeededBuffer {
    /// Number of datagrams that the buffer must hold.
    pub datagrams: u64,
    /// Part of `datagrams` that is reserved for a second pause while the buffer is being emptied:
    /// the datagrams that arrive during the longest pause without losses.
    #[serde(default)]
    pub spare_datagrams: u64,
    /// Length of the longest pause without losses.
    #[serde(rename = "spare_pause_ns", default)]
    pub spare_pause: Nanos,
    /// Size as the kernel counts it, in bytes. `getsockopt(SO_RCVBUF)` returns this value.
    pub bytes: u64,
    /// Size to request with `setsockopt(SO_RCVBUF)`, in bytes. The kernel doubles it.
    pub request_bytes: u64,
}

impl PacketStatement {
    /// Requested datagrams per second; `None` to send as fast as the link allows.
    pub fn asked_hz(&self) -> Option<f64> {
        Some(self.spec.rate? / 8.0 / f64::from(self.spec.call_bytes))
    }

    /// Datagrams sent per second.
    pub fn sent_hz(&self) -> Option<f64> {
        let sender = self.sender.as_ref()?;
        let elapsed = sender.elapsed();
        (elapsed > Nanos::ZERO).then(|| sender.calls as f64 / elapsed.as_secs_f64())
    }

    /// Achieved share of the requested rate, 0 to 1. `None` unless the sender fell more than 3 %
    /// short.
    pub fn shortfall(&self) -> Option<f64> {
        let reached = self.sent_hz()? / self.asked_hz()?;
        (reached < 0.97).then_some(reached)
    }

    /// Losses in bursts with a known stall, and the losses predicted from the lengths of these
    /// stalls.
    pub fn predicted(&self) -> Option<(u64, u64)> {
        let bursts = self.bursts.iter().flatten();
        let known = bursts.filter_map(|burst| Some((burst.lost, burst.predicted?)));
        known.reduce(|sum, burst| (sum.0 + burst.0, sum.1 + burst.1))
    }
}
