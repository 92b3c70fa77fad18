//! Links that carry traffic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Restrictions on each direction of a pair of virtual devices. Where a value is `None`, the
/// devices keep their default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkSpec {
    /// Maximum rate in bits per second, counting entire Ethernet frames.
    #[serde(rename = "rate_bps", alias = "rate_bits_hz")]
    pub rate: Option<f64>,
    /// Delay added to each packet.
    #[serde(rename = "delay_ns")]
    pub delay: Option<Nanos>,
    /// Share of packets dropped at random, 0 to 1.
    #[serde(rename = "loss_share")]
    pub loss: Option<f64>,
}

impl LinkSpec {
    /// Returns whether the link has no restrictions.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the rate is the only restriction.
    pub fn is_rate_alone(&self) -> bool {
        self.rate.is_some() && self.delay.is_none() && self.loss.is_none()
    }
}

/// A kernel queueing discipline that restricts a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shaper {
    /// Token bucket filter. Tokens fill a bucket at the permitted rate, and packets wait in a queue
    /// until there are enough tokens.
    Tbf,
    /// Network emulator, which limits the rate, delays packets and drops some of them.
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

/// Restrictions in effect in each direction of a link, as read back from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shaping {
    /// Queueing discipline.
    pub shaper: Shaper,
    /// Requested restrictions.
    #[serde(alias = "asked")]
    pub requested: LinkSpec,
    /// Restrictions in effect.
    pub effective: LinkSpec,
    /// Size of a burst that may exceed the rate, in bytes (tbf only).
    pub burst_bytes: Option<u64>,
    /// Maximum length of the queue including the bucket, in bytes (tbf only). Packets that do not
    /// fit are dropped.
    pub queue_bytes: Option<u64>,
    /// Maximum number of delayed or queued packets (netem only). Further packets are dropped.
    pub queue_packets: Option<u32>,
}

/// The link that carried the traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Link {
    /// A pair of virtual Ethernet devices that connects two network namespaces created for the
    /// traffic.
    Veth {
        /// Size of the largest packet, in bytes.
        mtu: u32,
        /// Restrictions of the link; `None` if none were requested.
        #[serde(default)]
        shaping: Option<Shaping>,
    },
    /// The loopback device, which is used if network namespaces could not be created.
    Loopback {
        /// Why network namespaces could not be created.
        #[serde(alias = "why")]
        reason: String,
    },
    /// The network between this host and another address.
    Network {
        /// Address of the other end.
        peer: String,
    },
}
