//! Test traffic, and the CPU time of the two threads that send and receive it. The traffic is
//! either a stream or numbered datagrams. The two ends are in two network namespaces on this
//! machine, on its loopback device, or on two hosts.
//!
//! [`Traffic`] is prepared (connected without sending anything), started, observed while it runs,
//! and finished. Its threads have names and known IDs before they start, so that an observer can
//! attribute CPU time to them. The two ends also have a control connection, separate from the data.
//! Over it, they exchange their protocol version, whether the receiver is ready, how much was sent,
//! and how much arrived.
//!
//! [`experiment`] plans and judges factorial experiments with such traffic.

mod clocks;
mod counters;
mod datagrams;
mod departures;
mod devices;
mod error;
pub mod experiment;
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
pub use traffic::{EndCpus, LocalLink, Outcome, Prepared, Traffic};
pub use tuning::{Offload, SysctlError, Tuning, has_sysctl};

use std::ops::RangeInclusive;

use ticktax_model::Nanos;

/// Receivers' default port.
pub const PORT: u16 = 7117;

/// Default number of bytes per TCP read or write.
pub const TCP_CALL: u32 = 128 << 10;

/// Allowed number of bytes per TCP read or write.
pub const TCP_CALLS: RangeInclusive<u32> = 1..=16 << 20;

/// Allowed size of datagrams, in bytes. The minimum is the size of the header with the number and
/// the time. The maximum is the limit of UDP over IPv4.
pub const UDP_CALLS: RangeInclusive<u32> = datagrams::HEADER..=65_507;

/// Size of the IPv4 and UDP headers in each packet, in bytes.
pub const UDP_HEADERS: u32 = 28;

/// Allowed rate of the link between two namespaces, in bits per second. At lower rates, the
/// kernel's queues would take too long to drain.
pub const LINK_RATES: RangeInclusive<f64> = 1e6..=1e11;

/// Allowed delay that the link between two namespaces adds to each packet. Any longer, and
/// connecting would time out.
pub const LINK_DELAYS: RangeInclusive<Nanos> = Nanos::ZERO..=Nanos::from_millis(300);

/// Allowed share of packets lost on the link between two namespaces. With heavier losses, the ends
/// might not be able to connect.
pub const LINK_LOSSES: RangeInclusive<f64> = 0.0..=0.2;

/// Time after which the other end considers a silent end gone.
const SILENCE: Nanos = Nanos::from_secs(10);

/// Interval at which a waiting thread checks whether it should stop.
const LOOK: Nanos = Nanos::from_millis(50);
