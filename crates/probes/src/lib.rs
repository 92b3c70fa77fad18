//! Probes measure lost CPU time by needing the CPU themselves.
//!
//! - [`spin`] never yields its CPU. Every interruption shows as a gap between two readings of the
//!   CPU's counter, the method of sysjitter and oslat.
//! - [`sleep`] wakes at set times. Every delay on the way back to a CPU shows as a late wakeup, the
//!   method of cyclictest.
//! - [`gaps`] runs either of these loops and reports only the gaps that last too long.
//! - [`soak`] counts the work done with otherwise unused cycles.
//! - [`sampler`] samples from the timer interrupt, as profilers do.
//! - [`pace`] is a program rather than a probe: it works at a set rate and records when each frame
//!   was due and when it was done.
//! - [`tcp`] measures the CPU cost of a byte over the loopback device.
//! - [`net`] sends packets at a set rate, between namespaces or hosts, and counts losses.
//! - [`clock`] maps their timestamps to the recording's time, `CLOCK_MONOTONIC`, and bounds the
//!   error.
//!
//! A probe is started on a list of CPUs, drained by one collector thread, and stopped. Its threads
//! do not allocate, lock or print while they measure. Their reports include their own cost and
//! losses.

pub mod clock;
mod cpus;
mod error;
pub mod gaps;
pub mod net;
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

pub use cpus::{allowed as allowed_cpus, online_cpus};
pub use error::ProbeError;
pub use ticktax_model::policy::{PolicyGrant, SchedulingPolicy};
