//! Published investigations, each with a model that runs in the simulator. Some can also be run on
//! real kernels.
//!
//! A case consists of the file `cases/NAME.toml` and a module of the same name in this directory,
//! which defines a constant `CASE`. `build.rs` declares one module per file in this directory.

use ticktax_model::case::{MeasuredRow, Remark};
use ticktax_model::net::NetStatement;
use ticktax_probes::ProbeError;
use ticktax_sim::TaskSpec;

use crate::file::{CaseError, CaseFile, Values};
use crate::judge::Modelled;
use crate::kernels::KernelCase;

include!(concat!(env!("OUT_DIR"), "/cases.rs"));
list_cases!();

/// A published investigation and its model.
pub trait Case: Sync {
    /// Returns the contents of the case file, which is the only copy of the published figures.
    fn text(&self) -> &str;

    /// Returns the case's name on the command line.
    fn name(&self) -> &str;

    /// Runs the model with the constants in `values`. Returns a figure for each row of `file` that
    /// the model can reproduce.
    fn model(&self, file: &CaseFile, values: &Values) -> Modelled;

    /// Same as [`model`](Self::model), but simulates fewer seconds. The results are still accurate
    /// enough for fits and sweeps.
    fn sample(&self, file: &CaseFile, values: &Values) -> Modelled {
        self.model(file, values)
    }

    /// Returns whether the model's figure for a row depends only on that row and the constants.
    /// Fits can then stop at the first rows that the constants miss by too much.
    fn has_independent_rows(&self) -> bool {
        true
    }

    /// Returns the programs of the modelled machine. The list is empty if real threads cannot run
    /// them.
    fn programs(&self, _values: &Values) -> Vec<TaskSpec> {
        Vec::new()
    }

    /// Returns remarks on the results, to be printed after the rows.
    fn remarks(&self, _file: &CaseFile, _values: &Values, _modelled: &Modelled) -> Vec<Remark> {
        Vec::new()
    }

    /// Reports how accurate the model is on rows that it was not fitted to. Returns an empty list
    /// if there are too few rows to test this.
    fn hold_out(&self, _file: &CaseFile) -> Vec<Remark> {
        Vec::new()
    }

    /// Repeats a measurement on this machine and compares it with the published figures. Returns
    /// `None` if the case has nothing to measure here.
    fn measure_here(&self) -> Option<Result<Vec<Remark>, ProbeError>> {
        None
    }

    /// Converts measured traffic to table rows, with a remark about the measurement. If the traffic
    /// does not fit the case, returns an error that explains why. Returns `None` if the case is not
    /// about traffic.
    fn measured(
        &self,
        _: &NetStatement,
    ) -> Option<Result<(Vec<MeasuredRow>, Remark), WrongTraffic>> {
        None
    }

    /// Returns how to run the case on real kernels, or `None` if that is impossible.
    fn kernels(&self) -> Option<&'static dyn KernelCase> {
        None
    }

    /// Parses the case file.
    fn file(&self) -> Result<CaseFile, CaseError> {
        CaseFile::parse(&format!("cases/{}.toml", self.name()), self.text())
    }
}

/// Why measured traffic does not fit a case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongTraffic {
    /// The traffic is UDP.
    #[error("the traffic is UDP, but the case needs TCP: omit --udp")]
    Udp,
    /// The CPU time of the traffic was not measured.
    #[error(
        "the recording has no accounts: {}",
        why.as_deref().unwrap_or("nothing was traced")
    )]
    NoAccounts {
        /// Why the time was not measured, if known.
        why: Option<String>,
    },
    /// The recording does not contain the number of CPU cycles per byte.
    #[error("the recording has no cycles: the CPU's counter was not reliable, or nothing arrived")]
    NoCycles,
}

/// Returns all published cases.
pub fn all() -> impl Iterator<Item = &'static dyn Case> {
    CASES.iter().copied()
}

/// Returns the case called `name`, or `None` if there is no such case.
pub fn find(name: &str) -> Option<&'static dyn Case> {
    all().find(|case| case.name() == name)
}

/// Returns how many ticks per second wake at least one program, if all programs together wake up
/// `wakeups` times per second.
pub(crate) fn woken(hz: u64, wakeups: f64) -> f64 {
    idle_cost_vs_hz::counts(hz, wakeups).woken
}

pub(crate) fn remark(what: &str, why: String) -> Remark {
    Remark {
        topic: what.to_owned(),
        reason: why,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a case's times are a few ms, and its integers are far below 2^53"
)]
fn millis(ms: f64) -> ticktax_model::Nanos {
    ticktax_model::Nanos((ms * 1e6).round() as i64)
}

/// Parses the tick rate at the start of a row's label, such as `1000` or `1000, 20`. Returns `None`
/// if the label does not start with a number.
fn rate(at: &str) -> Option<u64> {
    at.split(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::CASES;

    #[test]
    fn cases_have_the_names_of_their_modules() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cases");
        let entries = std::fs::read_dir(folder).unwrap();
        let files = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let modules: BTreeSet<String> = files
            .map(|file| file.trim_end_matches(".rs").to_owned())
            .collect();
        let names = CASES
            .iter()
            .map(|case| case.name().replace(['-', '.'], "_"));
        assert_eq!(modules, names.collect());
        assert_eq!(modules.len(), CASES.len(), "two cases have one name");
    }
}
