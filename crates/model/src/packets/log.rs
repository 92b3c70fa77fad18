//! The log of a receiver of numbered datagrams.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::net::{End, EndReport, Link, TrafficSpec};
use crate::{Lengths, Nanos};

/// A run of datagrams as stored in a recording. The activity of the CPUs is in the rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketRun {
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
    /// Log of the receiver, if it ran on this host.
    pub log: Option<PacketLog>,
    /// Reasons why this host's kernel dropped datagrams of this stream; `None` if they were not
    /// traced.
    #[serde(default)]
    pub drop_reasons: Option<Vec<DropReason>>,
    /// Process id and thread id of the receiver, if it ran on this host and was traced.
    pub thread: Option<(i32, i32)>,
    /// CPU that the receiver was pinned to.
    pub receiver_cpu: Option<u32>,
    /// Why nothing was traced.
    pub no_trace: Option<String>,
}

/// A reason of the kernel for dropping datagrams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DropReason {
    /// The kernel's name without `SKB_DROP_REASON_` (`include/net/dropreason-core.h`).
    pub reason: String,
    /// Number of datagrams.
    pub datagrams: u64,
}

/// The log of a receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketLog {
    /// Buffer of its socket.
    pub buffer: SocketBuffer,
    /// Bursts of losses, in order.
    pub bursts: Vec<LossBurst>,
    /// Datagrams lost in bursts that did not fit into the log.
    pub not_kept: u64,
    /// Arrivals and pauses around the bursts, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub courses: Vec<Course>,
    /// Whether there was no room for some of `courses`.
    #[serde(default)]
    pub is_course_missing: bool,
    /// Longest pause without losses.
    #[serde(rename = "other_pause_ns", default)]
    pub other_pause: Nanos,
    /// Datagrams that the socket counted as dropped.
    pub socket_drops: u64,
    /// Lost datagrams that were still in the socket's buffer at the end.
    pub never_read: u64,
    /// Time from sending to reading; `None` if the ends have different clocks.
    pub delays: Option<Lengths>,
    /// Losses and delays over time.
    pub by_time: Vec<TimeSlot>,
    /// Length of a slot in `by_time`.
    #[serde(rename = "slot_ns")]
    pub slot: Nanos,
}

/// A socket's receive buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketBuffer {
    /// Size requested with `SO_RCVBUF`, in bytes; `None` if none was requested.
    pub asked_bytes: Option<u32>,
    /// Size as the kernel counts it, in bytes: the value of `getsockopt(SO_RCVBUF)`, twice the size
    /// that was set.
    pub bytes: u64,
    /// Largest size that a program can request without privileges: `net.core.rmem_max`.
    pub max_ask_bytes: Option<u64>,
    /// Whether the buffer exceeds that limit, through `SO_RCVBUFFORCE`.
    pub is_forced: bool,
    /// Space that a datagram takes, if it was measured.
    pub charge: Option<Charge>,
}

/// The kernel's charge for datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Charge {
    /// Bytes charged to the buffer per datagram, including the kernel's own data.
    pub each_bytes: u64,
    /// Datagrams that fit into the buffer.
    pub datagrams: u64,
    /// Whether it was measured beforehand by filling a similar buffer over the same link. Otherwise
    /// it was derived from the first burst of losses.
    pub is_filled: bool,
}

/// A burst of losses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LossBurst {
    /// Number of the first lost datagram.
    pub first: u64,
    /// Datagrams lost.
    pub lost: u64,
    /// Lost datagrams that the socket counted as dropped.
    pub in_socket: u64,
    /// Sending time of the first lost datagram, relative to the first datagram sent.
    #[serde(rename = "time_ns")]
    pub at: Nanos,
    /// The same time on the receiver's `CLOCK_MONOTONIC`.
    #[serde(rename = "lost_at_ns", default)]
    pub lost_at: Nanos,
    /// The pause in which the first datagram was lost, if there was one.
    pub pause: Option<Pause>,
}

/// A time between two reads in which data was waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pause {
    /// Return of the previous read or arrival of the first waiting datagram, the later of the two,
    /// on the receiver's `CLOCK_MONOTONIC`.
    #[serde(rename = "start_ns")]
    pub start: Nanos,
    /// Return of the next read.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
    /// Datagrams waiting when the first one was lost.
    pub queued: u64,
    /// Datagrams sent from the first waiting one until the end of the pause; `None` if the run
    /// ended before that was known.
    pub sent: Option<u64>,
}

/// An interval around bursts of losses. It lasts until a receiver without losses would have read
/// everything that was waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Course {
    /// Start, on the receiver's `CLOCK_MONOTONIC`.
    #[serde(rename = "start_ns")]
    pub start: Nanos,
    /// Length of a slot.
    #[serde(rename = "slot_ns")]
    pub slot: Nanos,
    /// Datagrams sent in each slot, including lost ones. The sending times of consecutive lost
    /// datagrams are interpolated from their neighbours.
    pub sent: Vec<u16>,
    /// Start and end of long pauses in which nothing was read although data was waiting.
    #[serde(rename = "pauses_ns")]
    pub pauses: Vec<(Nanos, Nanos)>,
    /// Time per read while data was waiting, without these pauses.
    #[serde(rename = "read_ns")]
    pub read: Nanos,
}

/// A time slot, with the fate of the datagrams sent in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimeSlot {
    /// Datagrams that arrived.
    pub arrived: u64,
    /// Datagrams lost.
    pub lost: u64,
    /// Longest delay of a datagram that arrived. If the clocks of the ends may differ, its excess
    /// over the shortest delay of all.
    #[serde(rename = "delay_max_ns")]
    pub delay_max: Nanos,
}
