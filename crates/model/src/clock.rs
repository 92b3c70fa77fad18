//! The counter that a probe reads as its clock, and whether it can be trusted.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A counter that a measurement can be made with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CounterSource {
    /// The time-stamp counter of x86-64.
    #[serde(rename = "TSC")]
    Tsc,
    /// The virtual counter of the generic timer of aarch64.
    #[serde(rename = "CNTVCT_EL0")]
    Cntvct,
    /// No counter of the CPU: `CLOCK_MONOTONIC` through the C library. One tick is 1 ns.
    #[default]
    #[serde(rename = "CLOCK_MONOTONIC")]
    Monotonic,
}

impl fmt::Display for CounterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tsc => "TSC",
            Self::Cntvct => "CNTVCT_EL0",
            Self::Monotonic => "CLOCK_MONOTONIC",
        })
    }
}

/// Whether a counter can be used as a clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CounterVerdict {
    /// Nothing speaks against it.
    #[default]
    Trusted,
    /// It cannot, for these reasons, at least one.
    Untrusted(Vec<Distrust>),
}

/// A reason not to use a counter as a clock. Its `id` is stable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Distrust {
    /// This architecture has no counter that the tool can read.
    NoCounter,
    /// The counter may change its rate or stop in power-saving states.
    NotInvariant,
    /// The kernel keeps time by another source and does not offer this counter.
    RefusedByKernel {
        /// What the kernel uses.
        clocksource: String,
    },
    /// Readings went back in time from one CPU to another.
    StepsBackwards {
        /// How many did.
        steps: u32,
        /// Of how many.
        comparisons: u32,
    },
    /// The rate changed within the 50 ms of the measurement.
    Drifts {
        /// By so many parts per million.
        #[serde(rename = "change_ppm")]
        ppm: f64,
    },
    /// The rate is not the declared one.
    OffNominal {
        /// Measured against nominal, in parts per million.
        #[serde(rename = "off_ppm")]
        ppm: f64,
    },
    /// Anything else.
    Other {
        /// All reasons, in words.
        reasons: String,
    },
}
