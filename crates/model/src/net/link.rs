//! What traffic goes over.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// How a pair of virtual devices is to be narrowed, each way; what is not named is as the devices have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkSpec {
    /// Bits a second, of whole Ethernet frames.
    #[serde(rename = "rate_bits_hz")]
    pub rate: Option<f64>,
    /// How long each packet is held up.
    #[serde(rename = "delay_ns")]
    pub delay: Option<Nanos>,
    /// The share of packets that are lost, at random.
    #[serde(rename = "loss_share")]
    pub loss: Option<f64>,
}

impl LinkSpec {
    /// Whether nothing is asked for.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a rate is all that is asked for.
    pub fn is_rate_alone(&self) -> bool {
        self.rate.is_some() && self.delay.is_none() && self.loss.is_none()
    }
}

/// Which of the kernel's queueing disciplines narrows a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shaper {
    /// A bucket of bytes that fills at the rate, and a queue before it.
    Tbf,
    /// A rate, a delay and losses.
    Netem,
}

impl Shaper {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Tbf, Self::Netem];

    /// Its name, as `tc` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tbf => "tbf",
            Self::Netem => "netem",
        }
    }
}

/// What a link was narrowed to, each way, as the kernel says after it was done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shaping {
    /// By what.
    pub shaper: Shaper,
    /// What was asked for.
    pub asked: LinkSpec,
    /// What is in effect.
    pub effective: LinkSpec,
    /// How much passes at once, at more than the rate (tbf).
    pub burst_bytes: Option<u64>,
    /// How much waits at most before packets are dropped (tbf), the bucket included.
    pub queue_bytes: Option<u64>,
    /// How many packets are held or wait at most before packets are dropped (netem).
    pub queue_packets: Option<u32>,
}

/// What the traffic went over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Link {
    /// A pair of virtual Ethernet devices between two network namespaces of their own.
    Veth {
        /// The largest packet, in bytes.
        mtu: u32,
        /// What it was narrowed to, where that was asked for.
        #[serde(default)]
        shaping: Option<Shaping>,
    },
    /// The loopback device, where no namespaces could be made.
    Loopback {
        /// Why not.
        why: String,
    },
    /// Whatever is between this host and another address.
    Network {
        /// The other end's address.
        peer: String,
    },
}
