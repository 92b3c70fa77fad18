//! Models of the published investigations: in the simulator, and for some cases on real kernels.
//!
//! A case consists of the file `cases/NAME.toml` and a module here with the same name and a
//! constant `CASE`. `build.rs` declares a module for each file of
//! this folder.

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
    /// Text of the case file. It is the only copy of the published figures.
    fn text(&self) -> &str;

    /// Name of the case.
    fn name(&self) -> &str;

    /// Runs the model with these constants. Returns the rows of the file that it can reproduce.
    fn model(&self, file: &CaseFile, values: &Values) -> Modelled;

    /// Like [`model`](Self::model), from a shorter run that is accurate enough for fits and sweeps.
    fn sample(&self, file: &CaseFile, values: &Values) -> Modelled {
        self.model(file, values)
    }

    /// The machine's programs, if real threads can run them too.
    fn programs(&self, _values: &Values) -> Vec<TaskSpec> {
        Vec::new()
    }

    /// Remarks in addition to the rows.
    fn remarks(&self, _file: &CaseFile, _values: &Values, _modelled: &Modelled) -> Vec<Remark> {
        Vec::new()
    }

    /// Accuracy of the model on rows that it was not fitted to, if this can be tested.
    fn hold_out(&self, _file: &CaseFile) -> Vec<Remark> {
        Vec::new()
    }

    /// Compares a measurement on this machine with the published figures, if the case has one.
    fn measure_here(&self) -> Option<Result<Vec<Remark>, ProbeError>> {
        None
    }

    /// Rows that measured traffic adds to the tables, and a remark about it, or the reason why it
    /// does not fit. `None` if the case is not about traffic.
    fn measured(&self, _: &NetStatement) -> Option<Result<(Vec<MeasuredRow>, Remark), String>> {
        None
    }

    /// How to run the case on real kernels, if it can.
    fn kernels(&self) -> Option<&'static dyn KernelCase> {
        None
    }

    /// The parsed case file.
    fn file(&self) -> Result<CaseFile, CaseError> {
        CaseFile::parse(&format!("cases/{}.toml", self.name()), self.text())
    }
}

/// All cases.
pub fn all() -> impl Iterator<Item = &'static dyn Case> {
    CASES.iter().copied()
}

/// Finds a case by name.
pub fn find(name: &str) -> Option<&'static dyn Case> {
    all().find(|case| case.name() == name)
}

/// Ticks per second that wake programs, given their total `wakeups` per second.
pub(crate) fn woken(hz: u64, wakeups: f64) -> f64 {
    idle_cost_vs_hz::counts(hz, wakeups).woken
}

pub(crate) fn remark(what: &str, why: String) -> Remark {
    Remark {
        what: what.to_owned(),
        why,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a case's times are a few ms, and its integers are far below 2^53"
)]
fn millis(ms: f64) -> ticktax_model::Nanos {
    ticktax_model::Nanos((ms * 1e6).round() as i64)
}

/// Parses the tick rate of a row, such as `1000` or `1000, …`.
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
