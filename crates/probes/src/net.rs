//! Traffic of our own, and what it costs its two threads: a stream or numbered datagrams from a sender to a receiver,
//! between two network namespaces of this machine, over its loopback device, or between hosts.
//!
//! A [`Traffic`] is prepared (connected, nothing sent yet), told to go, looked at while it goes, and finished. Its
//! threads are named, and their numbers are known before they begin, so that an observer can tell their time from
//! others'. The two ends speak over a connection of their own beside the data: which version they are of, when the
//! receiver is ready, how much was sent, and what arrived.

mod clocks;
mod counters;
mod datagrams;
mod departures;
mod devices;
mod error;
mod fill;
mod log;
mod namespaces;
mod pacer;
mod qdisc;
mod receive;
mod send;
mod sys;
mod traffic;
mod tuning;
mod wire;

pub use error::NetError;
pub use fill::{BUFFERS, BufferAsk};
pub use namespaces::MTU;
use namespaces::Namespace;
pub use traffic::{Outcome, Place, Prepared, Traffic};
pub use tuning::{Offload, SysctlError, Tuning, has_sysctl};

use std::ops::RangeInclusive;

use ticktax_model::Nanos;

/// The port that a receiver listens on, without other wishes.
pub const PORT: u16 = 7117;

/// Bytes of a call of TCP, without other wishes.
pub const TCP_CALL: u32 = 128 << 10;

/// Bytes that a call may move, over TCP.
pub const TCP_CALLS: RangeInclusive<u32> = 1..=16 << 20;

/// Bytes that a datagram may have: at least its number and its time, at most what UDP over IPv4 takes.
pub const UDP_CALLS: RangeInclusive<u32> = datagrams::HEADER..=65_507;

/// Bytes of headers before the data of a UDP packet over IPv4.
pub const UDP_HEADERS: u32 = 28;

/// Bits a second that a pair can be narrowed to: with fewer, what is in the kernel takes very long to drain.
pub const LINK_RATES: RangeInclusive<f64> = 1e6..=1e11;

/// How long a pair can hold up each packet: with more, its ends would give each other up before they spoke.
pub const LINK_DELAYS: RangeInclusive<Nanos> = Nanos::ZERO..=Nanos::from_millis(300);

/// The share of packets that a pair can lose: with more, its ends would hardly reach each other.
pub const LINK_LOSSES: RangeInclusive<f64> = 0.0..=0.2;

/// For how long nothing at all may come before the other end counts as gone.
const SILENCE: Nanos = Nanos::from_secs(10);

/// How often a thread that waits looks whether it is to stop.
const LOOK: Nanos = Nanos::from_millis(50);
