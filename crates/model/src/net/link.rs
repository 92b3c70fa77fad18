//! Links that carry traffic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Restrictions on a pair of virtual devices, in each direction. Unset values keep the devices'
/// defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkSpec {
    /// Rate in bits per second, counting entire Ethernet frames.
    #[serde(rename = "rate_bps", alias = "rate_bits_hz")]
    pub rate: Option<f64>,
    /// Delay of each packet.
    #[serde(rename = "delay_ns")]
    pub delay: Option<Nanos>,
    /// Share of packets lost at random.
    #[serde(rename = "loss_share")]
    pub loss: Option<f64>,
}

impl LinkSpec {
    /// Whether the link is unrestricted.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the rate is the only restriction.
    pub fn is_rate_alone(&self) -> bool {
        self.rate.is_some() && self.delay.is_none() && self.loss.is_none()
    }
}

/// A kernel queueing discipline that restricts a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shaper {
    /// Token bucket filter: a bucket that fills at the rate, with a queue in front of it.
    Tbf,
    /// Network emulator: rate, delay and losses.
    Netem,
}

impl Shaper {
    /// All queueing disciplines.
    pub const ALL: [Self; 2] = [Self::Tbf, Self::Netem];

    /// Name in `tc`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tbf => "tbf",
            Self::Netem => "netem",
        }
    }
}

/// A link's restrictions in each direction, as read back from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shaping {
    /// Queueing discipline.
    pub shaper: Shaper,
    /// Requested restrictions.
    #[serde(alias = "asked")]
    pub requested: LinkSpec,
    /// Restrictions in effect.
    pub effective: LinkSpec,
    /// Size of a burst that can exceed the rate (tbf), in bytes.
    pub burst_bytes: Option<u64>,
    /// Maximum queue length, including the bucket, in bytes (tbf). Packets beyond it are dropped.
    pub queue_bytes: Option<u64>,
    /// Maximum number of delayed or queued packets (netem). Packets beyond it are dropped.
    pub queue_packets: Option<u32>,
}

/// The link that carried the traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Link {
    /// A pair of virtual Ethernet devices between two dedicated network namespaces.
    Veth {
        /// Largest packet, in bytes.
        mtu: u32,
        /// Restrictions, if any were requested.
        #[serde(default)]
        shaping: Option<Shaping>,
    },
    /// The loopback device, because namespaces could not be created.
    Loopback {
        /// Why namespaces could not be created.
        #[serde(alias = "why")]
        reason: String,
    },
    /// The network between this host and another address.
    Network {
        /// Address of the other end.
        peer: String,
    },
}
