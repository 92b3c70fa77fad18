//! Cases on real kernels: what to run in each, and what to make of it, beside what was published
//! and what the models give.
//!
//! The kernels are not those of the publications, and neither is their clock. What can agree is the
//! mechanism: what a case says of ticks and sleeps has to hold on any kernel that is told to tick
//! and to sleep that way.

use ticktax_model::Nanos;
use ticktax_model::kernels::KernelsStatement;

use crate::cases;
use crate::file::CaseFile;
use crate::judge::Modelled;
use crate::replay::Replay;

/// Something to run in a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestJob {
    /// The kernel's parameters.
    pub cmdline: &'static str,
    /// For how long, on the guest's clock.
    pub length: Nanos,
    /// Whether the case's programs run, or nothing.
    pub programs: bool,
    /// Whether the guest's instructions are counted.
    pub counted: bool,
}

/// What came of an order on a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The kernel's tick rate, in Hz.
    pub hz: u32,
    /// The order.
    pub job: GuestJob,
    /// What the guest's programs did.
    pub replay: Replay,
    /// The instructions that the guest executed in all, where they were counted.
    pub instructions: Option<u64>,
}

/// What real kernels do of a case.
pub trait KernelCase: Sync {
    /// What to run in each kernel.
    fn jobs(&self) -> Vec<GuestJob>;

    /// The tick rates of what was published, in Hz.
    fn rates(&self, file: &CaseFile) -> Vec<u32>;

    /// What to make of it. `clock` is what the guests' time was, in words.
    fn statement(&self, file: &CaseFile, clock: &str, trials: &[Trial]) -> KernelsStatement;
}

/// The names of the cases that have one.
pub fn names() -> Vec<&'static str> {
    let on_kernels = cases::all().filter(|case| case.kernels().is_some());
    on_kernels.map(cases::Case::name).collect()
}

/// The rates of a series, as its rows have them.
pub(crate) fn rates(file: &CaseFile, series: &str) -> Vec<u32> {
    let rows = file.series(series).map_or(&[][..], |series| &series.rows);
    rows.iter().filter_map(|row| row.at.parse().ok()).collect()
}

/// What was published of a rate, and what the case's own model gives.
pub(crate) fn published(
    file: &CaseFile,
    modelled: &Modelled,
    series: &str,
    hz: u32,
) -> (Option<(f64, f64)>, Option<f64>) {
    let at = hz.to_string();
    let rows = file.series(series).map_or(&[][..], |series| &series.rows);
    let row = rows.iter().find(|row| row.at == at);
    let range = row.map(|row| {
        let [low, high] = row.range.unwrap_or([row.middle(); 2]);
        (low, high)
    });
    (range, modelled.get(&(series.to_owned(), at)).copied())
}

/// A case's own model, by series and row.
pub(crate) fn modelled(file: &CaseFile) -> Modelled {
    let case = cases::find(&file.name);
    case.map_or_else(Modelled::new, |case| case.model(file, &file.values()))
}

/// The release of the kernels, where they are all of one.
pub(crate) fn release(trials: &[Trial]) -> Option<String> {
    let mut releases = trials.iter().map(|trial| &trial.replay.machine.kernel);
    let first = releases.next()?;
    releases.all(|other| other == first).then(|| first.clone())
}
