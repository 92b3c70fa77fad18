//! Numbered datagrams at a fixed rate: losses, their places, and the causes that kept the receiver
//! from reading.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::beats::Periodicity;
use crate::net::{End, EndReport, Link, TrafficSpec};
use crate::victim::HoldUp;
use crate::{Kind, Lengths, Nanos};

mod log;
mod places;

pub use log::{
    Charge, Course, DropReason, LossBurst, PacketLog, PacketRun, Pause, SocketBuffer, TimeSlot,
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
    pub here: Vec<End>,
    /// Report of the sender.
    pub sender: Option<EndReport>,
    /// Report of the receiver.
    pub receiver: Option<EndReport>,
    /// CPU that the receiver was pinned to.
    pub receiver_cpu: Option<u32>,
    /// Buffer of the receiving socket; `None` on the sender's host.
    pub buffer: Option<SocketBuffer>,
    /// Places where datagrams were lost; `None` if the number sent is unknown.
    pub places: Option<PacketPlaces>,
    /// Reasons why this host's kernel dropped datagrams of this stream, most frequent first; `None`
    /// if they were not traced.
    #[serde(default)]
    pub drop_reasons: Option<Vec<DropReason>>,
    /// Bursts of losses, in order; `None` on the sender's host.
    pub bursts: Option<Vec<Burst>>,
    /// Datagrams lost in bursts that did not fit into the log.
    pub lost_in_no_burst: u64,
    /// Causes that delayed the receiver while its buffer filled, largest loss first.
    pub causes: Vec<BurstCause>,
    /// Period of the bursts, if they are periodic.
    pub beat: Option<Periodicity>,
    /// Smallest buffer that would have lost nothing, if datagrams were lost in the buffer.
    pub needed: Option<NeededBuffer>,
    /// Time from sending a datagram to reading it; `None` between hosts, because their clocks may
    /// differ. Median and p99 are accurate to ±11 %.
    pub delays: Option<Lengths>,
    /// Losses and delays over time, in slots of equal length.
    pub by_time: Vec<TimeSlot>,
    /// Length of a slot.
    #[serde(rename = "slot_ns")]
    pub slot: Nanos,
    /// Why the causes of the receiver's delays are unknown.
    pub no_trace: Option<String>,
    /// Trace events that did not fit into the buffers. A cause may be missing.
    pub events_lost: u64,
}

/// Places where datagrams were lost. They add up to the total loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketPlaces {
    /// Total loss: the gaps in the sequence.
    pub lost: u64,
    /// The sender's queueing discipline was full (`SndbufErrors` of its network namespace, or the
    /// discipline's own counter).
    pub send_queue: u64,
    /// The receiving socket's buffer was full (the socket's own counter).
    pub socket_buffer: u64,
    /// UDP's total memory was used up (`MemErrors`, `net.ipv4.udp_mem`).
    pub udp_memory: u64,
    /// The datagrams were still in the socket's buffer when the receiver ended.
    pub never_read: u64,
    /// The kernel dropped them for a reason that has no counter here (`skb:kfree_skb`).
    #[serde(default)]
    pub other_reason: u64,
    /// A CPU's backlog was full (`/proc/net/softnet_stat`, for the whole machine).
    pub backlog: u64,
    /// A network card's ring was full, or the card had no room (`rx_missed_errors`,
    /// `rx_fifo_errors`).
    pub ring: u64,
    /// A device dropped them (`/proc/net/dev`).
    pub device: u64,
    /// No counter shows where.
    pub not_placed: u64,
}

/// A burst of losses: the datagrams lost until the receiver had read everything that was waiting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Burst {
    /// Sending time of the first lost datagram, relative to the first datagram sent.
    #[serde(rename = "time_ns")]
    pub at: Nanos,
    /// Number of the first lost datagram.
    pub first: u64,
    /// Datagrams lost.
    pub lost: u64,
    /// Lost datagrams that the socket counted as dropped.
    pub in_socket: u64,
    /// Time in which the receiver read nothing, around the loss of the first datagram; `None` if it
    /// never paused or that is unknown.
    #[serde(rename = "read_pause_ns")]
    pub read_pause: Option<Nanos>,
    /// Datagrams sent from the first waiting one until the receiver read again; `None` if unknown.
    #[serde(default)]
    pub sent_in_pause: Option<u64>,
    /// Datagrams waiting when the first one was lost. There are fewer than the buffer holds if data
    /// that had been read was still charged to it.
    #[serde(default)]
    pub queued: Option<u64>,
    /// Cause of the pause; `None` if the receiver was neither off its CPU nor interrupted.
    pub stall: Option<Stall>,
    /// Expected loss for the stall S, the rate r and the buffer B: max(0, r·S − B) + 1.
    pub predicted: Option<u64>,
}

/// A time in which the receiver could not run while its buffer filled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// Time from its first delay until it read again.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Causes of the delay, largest first.
    pub held_by: Vec<HeldBy>,
}

/// A cause that kept the receiver from running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldBy {
    /// Kind of delay.
    pub kind: HoldUp,
    /// Name of the program or kernel activity that used the CPU; empty if there was none.
    pub name: String,
    /// Kind of that activity.
    pub source_kind: Kind,
    /// Process id, if it is a program.
    pub pid: Option<i32>,
    /// Time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// A cause of bursts of losses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BurstCause {
    /// Largest cause of each of these stalls; `None` if none was observed.
    pub held_by: Option<HeldBy>,
    /// Number of bursts.
    pub bursts: u64,
    /// Datagrams lost in them.
    pub lost: u64,
    /// Longest stall.
    #[serde(rename = "longest_ns")]
    pub longest: Nanos,
}

/// A buffer that would have lost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NeededBuffer {
    /// Number of datagrams that it must hold.
    pub datagrams: u64,
    /// Part of `datagrams` in reserve for a second pause while the buffer is being emptied: the
    /// datagrams that arrive in the longest pause without losses.
    #[serde(default)]
    pub spare_datagrams: u64,
    /// Length of that pause.
    #[serde(rename = "spare_pause_ns", default)]
    pub spare_pause: Nanos,
    /// Size as the kernel counts it, which is the value that `getsockopt(SO_RCVBUF)` returns, in
    /// bytes.
    pub bytes: u64,
    /// Size to request with `setsockopt(SO_RCVBUF)`, which doubles it, in bytes.
    pub ask_bytes: u64,
}

impl PacketStatement {
    /// Requested datagrams per second; `None` for as many as the link takes.
    pub fn asked_hz(&self) -> Option<f64> {
        Some(self.spec.rate? / 8.0 / f64::from(self.spec.call_bytes))
    }

    /// Datagrams sent per second.
    pub fn sent_hz(&self) -> Option<f64> {
        let sender = self.sender.as_ref()?;
        let elapsed = sender.elapsed();
        (elapsed > Nanos::ZERO).then(|| sender.calls as f64 / elapsed.as_secs_f64())
    }

    /// Achieved share of the requested rate, 0 to 1, if it fell short by more than 3 %.
    pub fn shortfall(&self) -> Option<f64> {
        let reached = self.sent_hz()? / self.asked_hz()?;
        (reached < 0.97).then_some(reached)
    }

    /// Loss in bursts with a known stall, and the loss predicted from the length of the stalls.
    pub fn predicted(&self) -> Option<(u64, u64)> {
        let bursts = self.bursts.iter().flatten();
        let known = bursts.filter_map(|burst| Some((burst.lost, burst.predicted?)));
        known.reduce(|sum, burst| (sum.0 + burst.0, sum.1 + burst.1))
    }
}
