//! Probes: threads that find lost CPU time by needing it.
//!
//! Two probes look at time from two sides. The [`spin`] probe never gives its CPU away, so every
//! interruption shows as a gap between two readings of the CPU's counter (the method of sysjitter
//! and oslat). The [`sleep`] probe is woken at set times, so every delay on the way back to a CPU
//! shows as a late wakeup (the method of cyclictest). The [`clock`] puts both on the recording's
//! time, `CLOCK_MONOTONIC`, and says how far that can be trusted. The [`soak`]er looks at work instead:
//! it counts what it gets done with unused cycles; the [`sampler`] looks from the timer's interrupt, as profilers do.
//! [`gaps`] has the first two wait for what lasts too long. The [`pace`]d loop is a program
//! rather than a probe: it works at a set rate, and every frame says when it was due and when done. [`tcp`]
//! says what a byte over the loopback device costs; [`net`] sends at a rate, between namespaces and hosts, and counts what is lost.
//!
//! A probe is started on a list of CPUs, drained by one collector thread, and stopped. Its threads
//! allocate, lock and print nothing while they measure; what they cost and what they lost is in
//! their reports.

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
