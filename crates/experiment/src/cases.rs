//! The cases, a file each: what the simulator makes of a published investigation.

mod frame_rate;
mod idle_cost;
mod rtc;
mod slices;
mod tcp;
mod walk;

use ticktax_model::case::Remark;
use ticktax_sim::TaskSpec;

use crate::file::{CaseError, CaseFile, Values};
use crate::judge::Modelled;

/// A published investigation with its model.
pub trait Case {
    /// The text of its file, `cases/NAME.toml`: the only copy of what was published.
    fn text(&self) -> &'static str;

    /// Its name.
    fn name(&self) -> &'static str;

    /// What the model gives with these constants, for the rows of the file that it has something
    /// for.
    fn model(&self, file: &CaseFile, values: &Values) -> Modelled;

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

    /// Its file, read.
    fn file(&self) -> Result<CaseFile, CaseError> {
        CaseFile::parse(&format!("cases/{}.toml", self.name()), self.text())
    }
}

/// All cases.
pub fn all() -> [&'static dyn Case; 6] {
    [
        &frame_rate::FrameRate,
        &idle_cost::IdleCost,
        &walk::Walk,
        &slices::Slices,
        &tcp::Tcp,
        &rtc::Rtc,
    ]
}

/// The case of this name.
pub fn find(name: &str) -> Option<&'static dyn Case> {
    all().into_iter().find(|case| case.name() == name)
}

/// Ticks that wake a program up, a second, where programs wake up `wakeups` times a second together.
pub(crate) fn woken(hz: u64, wakeups: f64) -> f64 {
    idle_cost::counts(hz, wakeups).1
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
