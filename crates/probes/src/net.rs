//! Test traffic and its cost to its two threads. A sender sends a stream or numbered datagrams to a
//! receiver. They are in two network namespaces of this machine, on its loopback device, or on two
//! hosts.
//!
//! A [`Traffic`] is prepared (connected but sending nothing), started, observed while it runs, and
//! finished. Its threads have names and known ids before they start, so that an observer can
//! separate their time from other work. The two ends also have a control connection, separate from
//! the data. Over it they exchange their protocol version, the receiver's readiness, how much was
//! sent, and how much arrived.

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

/// Default port of a receiver.
pub const PORT: u16 = 7117;

/// Default number of bytes per TCP call.
pub const TCP_CALL: u32 = 128 << 10;

/// Allowed number of bytes per TCP call.
pub const TCP_CALLS: RangeInclusive<u32> = 1..=16 << 20;

/// Allowed size of a datagram in bytes: from its number and time alone up to UDP's maximum over
/// IPv4.
pub const UDP_CALLS: RangeInclusive<u32> = datagrams::HEADER..=65_507;

/// Bytes of headers before the data of a UDP packet over IPv4.
pub const UDP_HEADERS: u32 = 28;

/// Allowed link rates of a pair in bits per second. At lower rates, the kernel's queues take too
/// long to drain.
pub const LINK_RATES: RangeInclusive<f64> = 1e6..=1e11;

/// Allowed extra delay per packet of a pair. With a longer one, its ends would time out before they
/// connect.
pub const LINK_DELAYS: RangeInclusive<Nanos> = Nanos::ZERO..=Nanos::from_millis(300);

/// Allowed share of packets that a pair loses. With more, its ends could hardly connect.
pub const LINK_LOSSES: RangeInclusive<f64> = 0.0..=0.2;

/// Silence after which the other end counts as lost.
const SILENCE: Nanos = Nanos::from_secs(10);

/// Interval at which a waiting thread checks whether to stop.
const LOOK: Nanos = Nanos::from_millis(50);
