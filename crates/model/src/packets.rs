//! Numbered datagrams at a pace: which were lost, where, and what kept the receiver from reading meanwhile.

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

/// What `ticktax pace --udp` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketStatement {
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// The name of this host.
    pub host: String,
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
    /// The CPU that the receiver was kept on.
    pub receiver_cpu: Option<u32>,
    /// The receiving socket's buffer; `None` at the sender's host.
    pub buffer: Option<SocketBuffer>,
    /// Of the lost datagrams, where; `None` where it is not known how many were sent.
    pub places: Option<PacketPlaces>,
    /// Why the kernel of this host dropped datagrams of this stream, the most first; `None` where that was not watched.
    #[serde(default)]
    pub drop_reasons: Option<Vec<DropReason>>,
    /// Each burst of losses, in order; `None` at the sender's host.
    pub bursts: Option<Vec<Burst>>,
    /// How many were lost in bursts for which there was no room.
    pub lost_in_no_burst: u64,
    /// What held up the receiver while its buffer filled, by who or what did, the costliest first.
    pub causes: Vec<BurstCause>,
    /// The period of the bursts, where they have one.
    pub beat: Option<Periodicity>,
    /// The smallest buffer that would have lost nothing, where the buffer is where datagrams were lost.
    pub needed: Option<NeededBuffer>,
    /// From when a datagram was sent to when it was read, by one clock; `None` between hosts, whose clocks need not
    /// agree. The median and p99 are right to ±11 %.
    pub delays: Option<Lengths>,
    /// Losses and delays by time, in slots of equal length.
    pub by_time: Vec<TimeSlot>,
    /// The length of a slot.
    #[serde(rename = "slot_ns")]
    pub slot: Nanos,
    /// Why nothing is known of who held up the receiver.
    pub no_trace: Option<String>,
    /// Events of the trace that found no room: a hold-up may be missing.
    pub events_lost: u64,
}

/// Where datagrams were lost. The places sum to all that were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketPlaces {
    /// All of them: the gaps in the sequence.
    pub lost: u64,
    /// The sender's queueing discipline was full (`SndbufErrors` of its network namespace, or the discipline's own
    /// counter).
    pub send_queue: u64,
    /// The receiving socket's buffer was full (the socket's own counter).
    pub socket_buffer: u64,
    /// All of UDP had used up its memory (`MemErrors`, `net.ipv4.udp_mem`).
    pub udp_memory: u64,
    /// They were in the socket's buffer when the receiver ended.
    pub never_read: u64,
    /// The kernel dropped them for a reason that no counter here tells (`skb:kfree_skb`).
    #[serde(default)]
    pub other_reason: u64,
    /// A CPU's backlog was full (`/proc/net/softnet_stat`, of the whole machine).
    pub backlog: u64,
    /// A network card's ring was full, or the card had no room (`rx_missed_errors`, `rx_fifo_errors`).
    pub ring: u64,
    /// A device dropped them (`/proc/net/dev`).
    pub device: u64,
    /// No counter tells.
    pub not_placed: u64,
}

/// A burst of losses: the datagrams that were lost before the receiver had read all that were waiting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Burst {
    /// When the first of them was sent, since the first of all.
    #[serde(rename = "time_ns")]
    pub at: Nanos,
    /// The number of the first of them.
    pub first: u64,
    /// How many.
    pub lost: u64,
    /// Of these, how many the socket says that it dropped.
    pub in_socket: u64,
    /// For how long the receiver read nothing around the moment when the first was lost; `None` where it read all the
    /// time, or that is not known.
    #[serde(rename = "read_pause_ns")]
    pub read_pause: Option<Nanos>,
    /// How many were sent from the first that waited until the receiver read again; `None` where that is not known.
    #[serde(default)]
    pub sent_in_pause: Option<u64>,
    /// Of these, how many were waiting when the first was lost: fewer than the buffer holds, where what had been read
    /// was still charged.
    #[serde(default)]
    pub queued: Option<u64>,
    /// What held it up in that time; `None` where it was seen to be neither off its CPU nor interrupted.
    pub stall: Option<Stall>,
    /// How many would be lost by the stall, the rate and the buffer: max(0, r·S − B) + 1.
    pub predicted: Option<u64>,
}

/// A time in which the receiver could not run while its buffer filled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// From when it was first held up to when it read again.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Who or what held it up, whoever took most first.
    pub held_by: Vec<HeldBy>,
}

/// Who or what kept the receiver from running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldBy {
    /// What kind of delay.
    pub kind: HoldUp,
    /// Who had the CPU meanwhile; empty where that is nobody.
    pub name: String,
    /// What that is.
    pub source_kind: Kind,
    /// The process, where it is a program.
    pub pid: Option<i32>,
    /// For how long.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// What held up the receiver during bursts of losses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BurstCause {
    /// What took most of each of these stalls; `None`: no hold-up was seen.
    pub held_by: Option<HeldBy>,
    /// How many bursts.
    pub bursts: u64,
    /// How many datagrams were lost in them.
    pub lost: u64,
    /// The longest of the stalls.
    #[serde(rename = "longest_ns")]
    pub longest: Nanos,
}

/// A buffer that would have lost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NeededBuffer {
    /// How many datagrams it has to hold.
    pub datagrams: u64,
    /// How many of these are for another pause while it is read: for what comes in the longest in which nothing was lost.
    #[serde(default)]
    pub spare_datagrams: u64,
    /// How long that pause was.
    #[serde(rename = "spare_pause_ns", default)]
    pub spare_pause: Nanos,
    /// Bytes as the kernel counts them: what `getsockopt(SO_RCVBUF)` returns.
    pub bytes: u64,
    /// Bytes to ask for with `setsockopt(SO_RCVBUF)`, which doubles them.
    pub ask_bytes: u64,
}

impl PacketStatement {
    /// Datagrams a second that were asked for; `None`: as many as there is room for.
    pub fn asked_hz(&self) -> Option<f64> {
        Some(self.spec.rate? / 8.0 / f64::from(self.spec.call_bytes))
    }

    /// Datagrams a second that were sent.
    pub fn sent_hz(&self) -> Option<f64> {
        let sender = self.sender.as_ref()?;
        let elapsed = sender.elapsed();
        (elapsed > Nanos::ZERO).then(|| sender.calls as f64 / elapsed.as_secs_f64())
    }

    /// What was reached of the rate, 0 to 1, where it fell short by more than 3 %.
    pub fn shortfall(&self) -> Option<f64> {
        let reached = self.sent_hz()? / self.asked_hz()?;
        (reached < 0.97).then_some(reached)
    }

    /// How many were lost in bursts of which the stall is known, and how many its length predicts.
    pub fn predicted(&self) -> Option<(u64, u64)> {
        let bursts = self.bursts.iter().flatten();
        let both = bursts.filter_map(|burst| Some((burst.lost, burst.predicted?)));
        both.reduce(|sum, it| (sum.0 + it.0, sum.1 + it.1))
    }
}
