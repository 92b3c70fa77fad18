//! A receiver's log of numbered datagrams.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::net::{End, EndReport, Link, TrafficSpec};
use crate::{Lengths, Nanos};

/// A transfer of datagrams, as stored in a recording. The recording's rows show what the CPUs did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketRun {
    /// Specification of the traffic.
    pub spec: TrafficSpec,
    /// Link that carried the datagrams.
    pub link: Link,
    /// Ends that ran on this host.
    #[serde(alias = "here")]
    pub local_ends: Vec<End>,
    /// Report of the sender.
    pub sender: Option<EndReport>,
    /// Report of the receiver.
    pub receiver: Option<EndReport>,
    /// Log of the receiver, if it ran on this host.
    pub log: Option<PacketLog>,
    /// Why this host's kernel dropped datagrams of this stream; `None` if drops were not traced.
    #[serde(default)]
    pub drop_reasons: Option<Vec<DropReason>>,
    /// Process id and thread id of the receiver, if it ran on this host and was traced.
    pub thread: Option<(i32, i32)>,
    /// CPU that the receiver was pinned to.
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

/// The log of a receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketLog {
    /// Buffer of the receiving socket.
    pub buffer: SocketBuffer,
    /// Bursts of losses, in order.
    pub bursts: Vec<LossBurst>,
    /// Number of datagrams lost in bursts that did not fit into the log.
    #[serde(alias = "not_kept")]
    pub lost_outside_bursts: u64,
    /// Arrivals and pauses around the bursts, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "courses")]
    pub burst_windows: Vec<BurstWindow>,
    /// Whether some intervals did not fit into `burst_windows`.
    #[serde(default, alias = "is_course_missing")]
    pub burst_windows_incomplete: bool,
    /// Longest pause without losses.
    #[serde(rename = "other_pause_ns", default)]
    pub other_pause: Nanos,
    /// Number of datagrams that the socket counted as dropped.
    pub socket_drops: u64,
    /// Number of lost datagrams that were still in the socket's buffer at the end.
    pub never_read: u64,
    /// Time from sending to reading; `None` if the ends use different clocks.
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
    /// Size requested with `SO_RCVBUF`, in bytes; `None` if no size was requested.
    #[serde(alias = "asked_bytes")]
    pub requested_bytes: Option<u32>,
    /// Size as the kernel counts it, in bytes. This is what `getsockopt(SO_RCVBUF)` returns, which
    /// is twice the size that was set.
    pub bytes: u64,
    /// Largest size that a program can request without privileges: `net.core.rmem_max`.
    #[serde(alias = "max_ask_bytes")]
    pub max_request_bytes: Option<u64>,
    /// Whether the buffer was made larger than `max_request_bytes` with `SO_RCVBUFFORCE`.
    #[serde(alias = "is_forced")]
    pub forced: bool,
    /// Buffer space taken by a datagram, if measured.
    pub charge: Option<Charge>,
}

/// Buffer space that the kernel charges for datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Charge {
    /// Bytes charged to the buffer per datagram, including kernel overhead.
    #[serde(alias = "each_bytes")]
    pub bytes_per_datagram: u64,
    /// Number of datagrams that fit into the buffer.
    pub datagrams: u64,
    /// Whether the charge was measured beforehand, by filling a similar buffer over the same link.
    /// Otherwise it was derived from the first burst of losses.
    #[serde(alias = "is_filled")]
    pub measured_beforehand: bool,
}

/// A burst of losses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LossBurst {
    /// Number of the first lost datagram.
    pub first: u64,
    /// Number of datagrams lost.
    pub lost: u64,
    /// Number of these datagrams that the socket counted as dropped.
    #[serde(alias = "in_socket")]
    pub socket_drops: u64,
    /// When the first lost datagram was sent, relative to the first datagram of the transfer.
    #[serde(rename = "at_ns", alias = "time_ns")]
    pub at: Nanos,
    /// When the first lost datagram was sent, on the receiver's `CLOCK_MONOTONIC`.
    #[serde(rename = "lost_at_ns", default)]
    pub lost_at: Nanos,
    /// The pause during which the first datagram was lost, if the receiver paused.
    pub pause: Option<Pause>,
}

/// The time between two reads, counted while data is waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pause {
    /// Start, on the receiver's `CLOCK_MONOTONIC`: the return of the previous read or the arrival
    /// of the first waiting datagram, the later of the two.
    #[serde(rename = "start_ns")]
    pub start: Nanos,
    /// End, on the same clock: when the next read returned.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
    /// Number of datagrams waiting when the first one was lost.
    pub queued: u64,
    /// Number of datagrams sent from the first waiting one until the end of the pause; `None` if
    /// the transfer ended before this was known.
    pub sent: Option<u64>,
}

/// An interval around bursts of losses. It ends when a receiver that lost nothing would have read
/// everything that was waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BurstWindow {
    /// Start, on the receiver's `CLOCK_MONOTONIC`.
    #[serde(rename = "start_ns")]
    pub start: Nanos,
    /// Length of a slot.
    #[serde(rename = "slot_ns")]
    pub slot: Nanos,
    /// Number of datagrams sent in each slot, including lost ones. Sending times of consecutive
    /// lost datagrams are interpolated between their neighbours.
    pub sent: Vec<u16>,
    /// Start and end of each long pause in which nothing was read although data was waiting.
    #[serde(rename = "pauses_ns")]
    pub pauses: Vec<(Nanos, Nanos)>,
    /// Time per read while data was waiting, excluding `pauses`.
    #[serde(rename = "read_ns")]
    pub read: Nanos,
}

/// A time slot, with the fate of the datagrams sent in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimeSlot {
    /// Number of datagrams that arrived.
    pub arrived: u64,
    /// Number of datagrams lost.
    pub lost: u64,
    /// Longest delay of a datagram that arrived. If the ends' clocks may differ, the difference
    /// from the shortest delay of the transfer.
    #[serde(rename = "delay_max_ns")]
    pub delay_max: Nanos,
}
