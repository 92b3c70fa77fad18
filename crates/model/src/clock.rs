//! The counter that a probe reads as its clock, and the checks that decide whether it can be
//! trusted.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A counter that a probe can read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CounterSource {
    /// Time-stamp counter of x86-64.
    #[serde(rename = "TSC")]
    Tsc,
    /// Virtual counter of the aarch64 generic timer.
    #[serde(rename = "CNTVCT_EL0")]
    Cntvct,
    /// No CPU counter. The probe reads `CLOCK_MONOTONIC` through the C library, and one count is 1
    /// ns.
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

/// Whether a probe can use a counter as its clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CounterVerdict {
    /// No check found a problem.
    #[default]
    Trusted,
    /// The counter cannot be used, for at least one reason.
    Untrusted(Vec<Distrust>),
}

/// A reason not to use a counter as a clock. Each kind of reason has a stable `id`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Distrust {
    /// The architecture has no counter that ticktax can read.
    NoCounter,
    /// The counter can change its rate or stop in power-saving states.
    NotInvariant,
    /// The kernel uses a different clocksource and does not list this counter among the available
    /// ones.
    RefusedByKernel {
        /// Clocksource that the kernel uses.
        clocksource: String,
    },
    /// A reading on one CPU was lower than an earlier reading on another CPU.
    StepsBackwards {
        /// Number of readings that were lower than an earlier reading on another CPU.
        steps: u32,
        /// Number of comparisons.
        comparisons: u32,
    },
    /// The counter's rate changed during the 50 ms over which it was measured.
    Drifts {
        /// Change in the rate, in parts per million.
        #[serde(rename = "change_ppm")]
        ppm: f64,
    },
    /// The counter's measured rate differs from its declared rate.
    OffNominal {
        /// Deviation from the declared rate, in parts per million.
        #[serde(alias = "off_ppm")]
        deviation_ppm: f64,
    },
    /// Other reasons, as text.
    Other {
        /// All reasons, as text.
        reasons: String,
    },
}
