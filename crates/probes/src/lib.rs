//! Probes that measure lost CPU time from the inside: their own threads need the CPU and notice
//! when they don't run.
//!
//! - [`spin`] never yields its CPU. Every interruption appears as a gap between two readings of the
//!   CPU's counter, as in sysjitter and oslat.
//! - [`sleep`] wakes up at regular times. The delay until it runs appears as wake-up latency, as in
//!   cyclictest.
//! - [`gaps`] runs one of these two loops and reports only gaps above a limit.
//! - [`soak`] counts how much work gets done in cycles that would otherwise be idle.
//! - [`sampler`] samples from a timer interrupt, as profilers do.
//! - [`pace`] is a workload rather than a probe. It works at a fixed rate and records when each
//!   frame was due and when it was finished.
//! - [`tcp`] measures the CPU cost per byte on the loopback device.
//! - [`clock`] converts readings of the CPU's counter to `CLOCK_MONOTONIC`, the clock of
//!   recordings, with a bound on the error.
//!
//! A probe is started on a list of CPUs, drained by a single collector thread, and stopped. While
//! its threads measure, they do not allocate, lock or print. The reports include the probe's own
//! cost and how much data it lost.

pub mod clock;
mod cpus;
mod error;
pub mod gaps;
pub mod memory {
    //! Memory whose latency is measured, and loops that load from it.

    pub use crate::sys::memory::{Mapping, Objects, Request, Ring};
}
pub mod pace;
mod pinned;
mod policy;
mod ring;
pub mod sampler;
pub mod sleep;
pub mod soak;
pub mod spin;
mod sys;
pub mod tcp;
pub mod timekeeping;

pub use cpus::{allowed as allowed_cpus, online_cpus, pin as pin_to_cpu};
pub use error::ProbeError;
pub use ticktax_model::policy::{PolicyGrant, SchedulingPolicy};
