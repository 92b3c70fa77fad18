//! What a receiver of numbered datagrams notes while it reads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::net::{End, EndReport, Link, TrafficSpec};
use crate::{Lengths, Nanos};

/// A run of datagrams, as a recording keeps it: everything but who had the CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketRun {
    /// What was asked for.
    pub spec: TrafficSpec,
    /// What the datagrams went over.
    pub link: Link,
    /// Which ends ran on this host.
    pub here: Vec<End>,
    /// What the sender did.
    pub sender: Option<EndReport>,
    /// What the receiver did.
    pub receiver: Option<EndReport>,
    /// What the receiver noted, where it was here.
    pub log: Option<PacketLog>,
    /// Why the kernel of this host dropped datagrams of this stream; `None` where that was not watched.
    #[serde(default)]
    pub drop_reasons: Option<Vec<DropReason>>,
    /// The receiving process and its thread, where they were here and traced.
    pub thread: Option<(i32, i32)>,
    /// The CPU that the receiver was kept on.
    pub receiver_cpu: Option<u32>,
    /// Why nothing was traced.
    pub no_trace: Option<String>,
}

/// A reason for which the kernel dropped datagrams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DropReason {
    /// The kernel's name of it, without `SKB_DROP_REASON_` (`include/net/dropreason-core.h`).
    pub reason: String,
    /// How many.
    pub datagrams: u64,
}

/// Everything that the receiver noted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketLog {
    /// Its socket's buffer.
    pub buffer: SocketBuffer,
    /// Each burst of losses, in order.
    pub bursts: Vec<LossBurst>,
    /// How many were lost in bursts for which there was no room.
    pub not_kept: u64,
    /// What came, and when nothing was read, around the bursts, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub courses: Vec<Course>,
    /// Whether there was no room for some of them.
    #[serde(default)]
    pub is_course_missing: bool,
    /// The longest pause in which nothing was lost.
    #[serde(rename = "other_pause_ns", default)]
    pub other_pause: Nanos,
    /// How many datagrams the socket says that it dropped.
    pub socket_drops: u64,
    /// How many were in the socket's buffer at the end, and are among the lost.
    pub never_read: u64,
    /// From sent to read; `None` where the ends have clocks of their own.
    pub delays: Option<Lengths>,
    /// Losses and delays by time.
    pub by_time: Vec<TimeSlot>,
    /// The length of a slot of that.
    #[serde(rename = "slot_ns")]
    pub slot: Nanos,
}

/// A socket's receive buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketBuffer {
    /// Bytes that were asked for with `SO_RCVBUF`, where they were.
    pub asked_bytes: Option<u32>,
    /// Bytes that the kernel lets it hold: what `getsockopt(SO_RCVBUF)` returns, twice what it was set to.
    pub bytes: u64,
    /// The most that a program may ask for: `net.core.rmem_max`.
    pub max_ask_bytes: Option<u64>,
    /// Whether it has more than that, by the right to (`SO_RCVBUFFORCE`).
    pub is_forced: bool,
    /// What a datagram takes of it, where that was measured.
    pub charge: Option<Charge>,
}

/// What the kernel charges for datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Charge {
    /// Bytes that a datagram takes of the buffer, with all that the kernel keeps beside its data.
    pub each_bytes: u64,
    /// How many the buffer holds.
    pub datagrams: u64,
    /// Whether it was measured by filling a buffer like it beforehand, over the same link; else the first burst of
    /// losses tells.
    pub is_filled: bool,
}

/// A burst of losses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LossBurst {
    /// The number of the first that was lost.
    pub first: u64,
    /// How many were.
    pub lost: u64,
    /// Of these, how many the socket counted as dropped.
    pub in_socket: u64,
    /// When the first was sent, since the first datagram of all.
    #[serde(rename = "time_ns")]
    pub at: Nanos,
    /// The same by the receiver's `CLOCK_MONOTONIC`.
    #[serde(rename = "lost_at_ns", default)]
    pub lost_at: Nanos,
    /// The pause in which the first was lost, if there was one.
    pub pause: Option<Pause>,
}

/// A time between two reads, in which there was something to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pause {
    /// When the read before returned, or the first of those that waited came, whichever is later; by the receiver's
    /// `CLOCK_MONOTONIC`.
    #[serde(rename = "start_ns")]
    pub start: Nanos,
    /// When the next did.
    #[serde(rename = "end_ns")]
    pub end: Nanos,
    /// How many datagrams were waiting when the first was lost.
    pub queued: u64,
    /// How many datagrams were sent from the first that was waiting until the end of the pause; `None` where the run ended
    /// before that was known.
    pub sent: Option<u64>,
}

/// A stretch of time around bursts of losses, until a receiver that had lost nothing would have read all that waited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Course {
    /// When it begins, by the receiver's `CLOCK_MONOTONIC`.
    #[serde(rename = "start_ns")]
    pub start: Nanos,
    /// The length of a slot of it.
    #[serde(rename = "slot_ns")]
    pub slot: Nanos,
    /// How many datagrams were sent in each slot, the lost ones included. When those were sent that were lost in a row
    /// is told by the ones before and after.
    pub sent: Vec<u16>,
    /// From when to when nothing was read although something waited, where that was long.
    #[serde(rename = "pauses_ns")]
    pub pauses: Vec<(Nanos, Nanos)>,
    /// What reading one took where others waited, without these.
    #[serde(rename = "read_ns")]
    pub read: Nanos,
}

/// A slot of time: what became of the datagrams that were sent in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimeSlot {
    /// How many arrived.
    pub arrived: u64,
    /// How many were lost.
    pub lost: u64,
    /// The longest delay of one that arrived; by how much it exceeds the shortest of all where the clocks of both ends
    /// need not agree.
    #[serde(rename = "delay_max_ns")]
    pub delay_max: Nanos,
}
