//! The log of numbered datagrams that a receiver keeps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::net::{End, EndReport, Link, TrafficSpec};
use crate::{Lengths, Nanos};

/// A transfer of numbered datagrams, as stored in a recording's header. The recording's rows show
/// what the CPUs did during the transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketRun {
    /// Specification of the traffic.
    pub spec: TrafficSpec,
    /// Link that carried the datagrams.
    pub link: Link,
    /// Ends of the transfer that ran on this host.
    #[serde(alias = "here")]
    pub local_ends: Vec<End>,
    /// Report of the sender.
    pub sender: Option<EndReport>,
    /// Report of the receiver.
    pub receiver: Option<EndReport>,
    /// Log of the receiver; `None` if it ran on another host.
    pub log: Option<PacketLog>,
    /// Why this host's kernel dropped datagrams of this stream; `None` if drops were not traced.
    #[serde(default)]
    pub drop_reasons: Option<Vec<DropReason>>,
    /// Process id and thread id of the receiver; `None` unless it ran on this host and was traced.
    pub thread: Option<(i32, i32)>,
    /// CPU that the receiver was pinned to; `None` if it was not pinned.
    pub receiver_cpu: Option<u32>,
    /// Why nothing was traced; `None` if the transfer was traced.
    #[serde(alias = "no_trace")]
    pub untraced_reason: Option<String>,
}

/// Number of datagrams that the kernel dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DropReason {
    /// The kernel's name for the reason, without `SKB_DROP_REASON_`
    /// (`include/net/dropreason-core.h`).
    pub reason: String,
    /// Number of datagrams dropped for this reason.
    pub datagrams: u64,
}

/// The log that a receiver keeps while it reads numbered datagrams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketLog {
    /// Receive buffer of the receiver's socket.
    pub buffer: SocketBuffer,
    /// Bursts of losses, in chronological order.
    pub bursts: Vec<LossBurst>,
    /// Number of datagrams lost in further bursts that did not fit into the log.
    #[serde(alias = "not_kept")]
    pub lost_outside_bursts: u64,
    /// Intervals around the bursts, in chronological order, with the datagrams sent and the
    /// receiver's pauses.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "courses")]
    pub burst_windows: Vec<BurstWindow>,
    /// Whether the intervals around some bursts did not fit into `burst_windows`.
    #[serde(default, alias = "is_course_missing")]
    pub burst_windows_incomplete: bool,
    /// Length of the longest pause without a loss.
    #[serde(rename = "other_pause_ns", default)]
    pub other_pause: Nanos,
    /// Number of datagrams that the socket counted as dropped.
    pub socket_drops: u64,
    /// Number of datagrams still in the socket's buffer when the receiver stopped. They count as
    /// lost.
    pub never_read: u64,
    /// Time from sending a datagram to reading it; `None` if sender and receiver use different
    /// clocks.
    pub delays: Option<Lengths>,
    /// Losses and delays over time, in slots of equal length.
    pub by_time: Vec<TimeSlot>,
    /// Length of each slot in `by_time`.
    #[serde(rename = "slot_ns")]
    pub slot: Nanos,
}

/// The receive buffer of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketBuffer {
    /// Size requested with `SO_RCVBUF`, in bytes; `None` if no size was requested.
    #[serde(alias = "asked_bytes")]
    pub requested_bytes: Option<u32>,
    /// Size as the kernel counts it, in bytes. This is twice the size that was set, and is what
    /// `getsockopt(SO_RCVBUF)` returns.
    pub bytes: u64,
    /// Largest size that an unprivileged program can request (`net.core.rmem_max`).
    #[serde(alias = "max_ask_bytes")]
    pub max_request_bytes: Option<u64>,
    /// Whether `SO_RCVBUFFORCE` was used to make the buffer larger than `max_request_bytes`.
    #[serde(alias = "is_forced")]
    pub forced: bool,
    /// Buffer space that a datagram takes; `None` if it was not measured.
    pub charge: Option<Charge>,
}

/// Buffer space that the kernel charges for each datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Charge {
    /// Bytes charged to the buffer per datagram, including kernel overhead.
    #[serde(alias = "each_bytes")]
    pub bytes_per_datagram: u64,
    /// Number of datagrams that fit into the buffer.
    pub datagrams: u64,
    /// Whether the charge was measured before the transfer, by filling a similar buffer over the
    /// same link. If not, it was derived from the first burst of losses.
    #[serde(alias = "is_filled")]
    pub measured_beforehand: bool,
}

/// A burst of losses, as logged by the receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LossBurst {
    /// Sequence number of the first lost datagram.
    pub first: u64,
    /// Number of datagrams lost in this burst.
    pub lost: u64,
    /// Number of lost datagrams that the socket counted as dropped.
    #[serde(alias = "in_socket")]
    pub socket_drops: u64,
    /// Time when the first lost datagram was sent, relative to the first datagram of the transfer.
    #[serde(rename = "at_ns", alias = "time_ns")]
    pub at: Nanos,
    /// Time when the first lost datagram was sent, on the receiver's `CLOCK_MONOTONIC`.
    #[serde(rename = "lost_at_ns", default)]
    pub lost_at: Nanos,
    /// The pause between two reads during which the first datagram was lost; `None` if the receiver
    /// did not pause.
    pub pause: Option<Pause>,
}

/// A pause between two reads, counted from the moment data became available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pause {
    /// Start of the pause, on the receiver's `CLOCK_MONOTONIC`: the moment at which the previous
    /// read has returned and a datagram is waiting.
    #[serde(rename = "start_ns")]
    pub start: Nanos,
    /// End of the pause, on the same clock, when the next read returned.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
    /// Number of datagrams waiting in the buffer when the first one was lost.
    pub queued: u64,
    /// Number of datagrams sent during the pause, starting with the first one that had to wait;
    /// `None` if the transfer ended before this was known.
    pub sent: Option<u64>,
}

/// An interval around one or more bursts of losses. It ends when the receiver would have caught up
/// if it had also had to read the lost datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BurstWindow {
    /// Start of the interval, on the receiver's `CLOCK_MONOTONIC`.
    #[serde(rename = "start_ns")]
    pub start: Nanos,
    /// Length of each slot in `sent`.
    #[serde(rename = "slot_ns")]
    pub slot: Nanos,
    /// Number of datagrams sent in each slot, including lost ones, whose sending times are
    /// interpolated between the datagrams before and after them.
    pub sent: Vec<u16>,
    /// Start and end of each long pause, in which the receiver read nothing even though data was
    /// waiting.
    #[serde(rename = "pauses_ns")]
    pub pauses: Vec<(Nanos, Nanos)>,
    /// Mean time per read while more data was waiting, excluding the long `pauses`.
    #[serde(rename = "read_ns")]
    pub read: Nanos,
}

/// A time slot, with what happened to the datagrams sent in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimeSlot {
    /// Number of datagrams sent in this slot that arrived.
    pub arrived: u64,
    /// Number of datagrams sent in this slot that were lost.
    pub lost: u64,
    /// Longest delay of a datagram that arrived. If the clocks of sender and receiver may differ,
    /// it is relative to the shortest delay in the transfer.
    #[serde(rename = "delay_max_ns")]
    pub delay_max: Nanos,
}
