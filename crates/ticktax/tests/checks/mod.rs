//! Checks that compare a recording of one disturbance with its `Truth`, which is what the injector
//! itself measured. The live tests apply them to this machine, and the scenario to a lab guest.

#![allow(dead_code, reason = "each test binary uses a part of this")]

pub(crate) mod accounting;
pub(crate) mod attached;
pub(crate) mod beats;
pub(crate) mod counters;
pub(crate) mod coverage;
pub(crate) mod disturbances;
pub(crate) mod gaps;
mod grid;
pub(crate) mod incidents;
pub(crate) mod recorded;
pub(crate) mod victims;

use std::fs;
use std::path::Path;
use std::process::Output;

use libtest_mimic::Failed;
use ticktax_model::Nanos;
use ticktax_model::statement::Statement;

pub(crate) use grid::{Grid, Reading};
pub(crate) use recorded::Recorded;

/// The method that measures the CPU time of all of the injecting process's threads over its
/// lifetime.
pub(crate) const WHOLE_PROCESS: &str = "CLOCK_PROCESS_CPUTIME_ID at the end";

/// Allowed difference between a reported figure and the `Truth`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    /// Allowed error in times, as a fraction of the true time.
    pub(crate) time_share: f64,
    /// Allowed error in counts, as a fraction of the true count.
    pub(crate) count_share: f64,
    /// Allowed error in counts, as a number of events. It covers events at the two ends of a
    /// disturbance.
    pub(crate) events: f64,
}

impl Tolerance {
    /// Tolerance for a machine that also does other work.
    pub(crate) const LIVE: Self = Self {
        time_share: 0.05,
        count_share: 0.05,
        events: 3.0,
    };
    /// Tolerance for a guest whose clock counts instructions.
    pub(crate) const GUEST: Self = Self {
        time_share: 0.01,
        count_share: 0.0,
        events: 0.0,
    };

    pub(crate) fn time(self, what: &str, found: Nanos, truth: Nanos) -> Result<(), Failed> {
        let allowed = self.time_share * truth.0 as f64;
        check((found - truth).0.abs() as f64 <= allowed, || {
            format!("{what}: {found} found, {truth} in truth")
        })
    }

    pub(crate) fn count(self, what: &str, found: u64, truth: u64) -> Result<(), Failed> {
        let allowed = (self.count_share * truth as f64).max(self.events);
        check(found.abs_diff(truth) as f64 <= allowed, || {
            format!("{what}: {found} found, {truth} in truth")
        })
    }
}

/// Parses the statement that an audit printed as JSON. If the audit failed, fails with the audit's
/// error message.
pub(crate) fn statement(output: &Output) -> Result<Statement, Failed> {
    let complaint = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{}: {complaint}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Reads the statement that the audit called `name` left in the directory `folder` in a guest.
pub(crate) fn statement_in(folder: &Path, name: &str) -> Result<Statement, Failed> {
    let json = fs::read(folder.join(format!("{name}.json")))?;
    Ok(serde_json::from_slice(&json)?)
}

pub(crate) fn check(holds: bool, why: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(why().into()) }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
