//! The cases: what the simulator makes of a published investigation, and, for some, what real
//! kernels do.
//!
//! A case is its file `cases/NAME.toml` and its module here, named like it, with a constant `CASE`. Nothing
//! lists them: the build declares a module for each file of this folder (`build.rs`).

use ticktax_model::case::{MeasuredRow, Remark};
use ticktax_model::net::NetStatement;
use ticktax_probes::ProbeError;
use ticktax_sim::TaskSpec;

use crate::file::{CaseError, CaseFile, Values};
use crate::judge::Modelled;
use crate::kernels::KernelCase;

include!(concat!(env!("OUT_DIR"), "/cases.rs"));
list_cases!();

/// A published investigation with its model.
pub trait Case: Sync {
    /// The text of its file: the only copy of what was published.
    fn text(&self) -> &str;

    /// Its name.
    fn name(&self) -> &str;

    /// What the model gives with these constants, for the rows of the file that it has something
    /// for.
    fn model(&self, file: &CaseFile, values: &Values) -> Modelled;

    /// The same from a shorter run, where that is near enough for fits and sweeps.
    fn sample(&self, file: &CaseFile, values: &Values) -> Modelled {
        self.model(file, values)
    }

    /// The programs of its machine, where real threads can perform them too.
    fn programs(&self, _values: &Values) -> Vec<TaskSpec> {
        Vec::new()
    }

    /// What there is to say beside the rows.
    fn remarks(&self, _file: &CaseFile, _values: &Values, _modelled: &Modelled) -> Vec<Remark> {
        Vec::new()
    }

    /// How well the model does on rows that it was not fitted to, where that can be tried.
    fn hold_out(&self, _file: &CaseFile) -> Vec<Remark> {
        Vec::new()
    }

    /// What a measurement on this machine gives beside what was published, where there is one to make.
    fn measure_here(&self) -> Option<Result<Vec<Remark>, ProbeError>> {
        None
    }

    /// The rows that traffic which was measured adds to its tables, and what it was; why it cannot, in words.
    /// `None` where the case is not about traffic.
    fn measured(&self, _: &NetStatement) -> Option<Result<(Vec<MeasuredRow>, Remark), String>> {
        None
    }

    /// How to run it on real kernels, where they can be asked.
    fn kernels(&self) -> Option<&'static dyn KernelCase> {
        None
    }

    /// Its file, read.
    fn file(&self) -> Result<CaseFile, CaseError> {
        CaseFile::parse(&format!("cases/{}.toml", self.name()), self.text())
    }
}

/// All cases.
pub fn all() -> impl Iterator<Item = &'static dyn Case> {
    CASES.iter().copied()
}

/// The case of this name.
pub fn find(name: &str) -> Option<&'static dyn Case> {
    all().find(|case| case.name() == name)
}

/// Ticks that wake a program up, a second, where programs wake up `wakeups` times a second together.
pub(crate) fn woken(hz: u64, wakeups: f64) -> f64 {
    idle_cost_vs_hz::counts(hz, wakeups).woken
}

/// A remark.
pub(crate) fn remark(what: &str, why: String) -> Remark {
    Remark {
        what: what.to_owned(),
        why,
    }
}

/// A number of ms as a time.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a case's constants are times of some ms, and integers far below 2^53"
)]
fn millis(ms: f64) -> ticktax_model::Nanos {
    ticktax_model::Nanos((ms * 1e6).round() as i64)
}

/// The rate that a row is for, `1000` or `1000, …`.
fn rate(at: &str) -> Option<u64> {
    at.split(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::CASES;

    #[test]
    fn a_case_is_named_like_its_module() {
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
