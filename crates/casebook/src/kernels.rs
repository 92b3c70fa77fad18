//! Runs cases on real kernels, and compares the results with published and modelled figures.
//!
//! These kernels and their clocks differ from the published ones, so the figures can differ too.
//! The mechanism, however, must be the same. A case's claims about ticks and sleeps must hold for
//! any kernel that is configured to tick and sleep in that way.

use std::collections::BTreeSet;

use ticktax_model::Nanos;
use ticktax_model::kernels::{GuestClock, KernelsStatement};
use ticktax_model::recording::Header;

use crate::cases;
use crate::file::CaseFile;
use crate::judge::Modelled;
use crate::replay::Replay;

/// A job to run in a guest: how to boot it, how long to run, and what to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestJob {
    /// Kernel command line.
    pub cmdline: &'static str,
    /// Run time, by the guest's clock.
    pub length: Nanos,
    /// Whether to run the case's programs. If not, the guest is idle.
    pub programs: bool,
    /// Whether to count the guest's instructions.
    pub counted: bool,
}

/// Result of running a job in a guest with one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The kernel's tick rate, in Hz.
    pub hz: u32,
    /// The job that was run.
    pub job: GuestJob,
    /// Figures measured by the programs in the guest.
    pub replay: Replay,
    /// Total number of instructions that the guest executed, if they were counted.
    pub instructions: Option<u64>,
}

/// A case that can be run on real kernels.
pub trait KernelCase: Sync {
    /// Returns the jobs to run on each kernel.
    fn jobs(&self) -> Vec<GuestJob>;

    /// Returns the tick rates, in Hz, for which figures were published.
    fn rates(&self, file: &CaseFile) -> Vec<u32>;

    /// Compares the results with the case's figures. `clock` is the clock that the guests used.
    fn statement(&self, file: &CaseFile, clock: GuestClock, trials: &[Trial]) -> KernelsStatement;
}

/// Why real kernels cannot be compared with published figures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelsError {
    /// Two kernels have the same tick rate, but a case has only one row per rate.
    #[error(
        "two of the kernels tick at {0} Hz, but the case compares one kernel per rate: choose \
        kernels with different rates"
    )]
    SameRate(u32),
    /// The tick rate is neither in the kernel's configuration nor reported by the guest.
    #[error("cannot find the tick rate of {0} in its configuration or in the guest")]
    NoRate(String),
    /// The guest's recording does not contain the case's programs.
    #[error("the guest's recording does not contain the case's programs")]
    NoReplay,
}

impl Trial {
    /// Reads a job's result from the header of the recording made on `kernel`. `hz` is the tick
    /// rate in the kernel's configuration. It is used if the guest does not report a rate.
    ///
    /// # Errors
    /// Returns an error if the tick rate is unknown, or if the recording does not contain the
    /// case's programs.
    pub fn new(
        kernel: &str,
        hz: Option<u32>,
        job: GuestJob,
        header: &Header,
        instructions: Option<u64>,
    ) -> Result<Self, KernelsError> {
        let replay = Replay::from_header(header).ok_or(KernelsError::NoReplay)?;
        let hz = replay.machine.hz_configured.or(hz);
        Ok(Self {
            hz: hz.ok_or_else(|| KernelsError::NoRate(kernel.to_owned()))?,
            job,
            replay,
            instructions,
        })
    }
}

/// Checks that all kernels have different tick rates.
///
/// # Errors
/// Returns [`KernelsError::SameRate`] if two rates are equal.
pub fn require_one_a_rate(rates: impl IntoIterator<Item = u32>) -> Result<(), KernelsError> {
    let mut seen = BTreeSet::new();
    match rates.into_iter().find(|hz| !seen.insert(*hz)) {
        Some(hz) => Err(KernelsError::SameRate(hz)),
        None => Ok(()),
    }
}

/// Returns the names of the cases that can run on real kernels.
pub fn names() -> Vec<&'static str> {
    let on_kernels = cases::all().filter(|case| case.kernels().is_some());
    on_kernels.map(cases::Case::name).collect()
}

/// Returns the tick rates in the rows of a series.
pub(crate) fn rates(file: &CaseFile, series: &str) -> Vec<u32> {
    let rows = file.series(series).map_or(&[][..], |series| &series.rows);
    rows.iter().filter_map(|row| row.at.parse().ok()).collect()
}

/// Returns the target range and the modelled figure in the row for a tick rate.
pub(crate) fn published(
    file: &CaseFile,
    modelled: &Modelled,
    series: &str,
    hz: u32,
) -> (Option<(f64, f64)>, Option<f64>) {
    let at = hz.to_string();
    let row = file.row(series, &at);
    let range = row.and_then(crate::file::Published::target);
    (
        range.map(|[low, high]| (low, high)),
        modelled.get(&(series.to_owned(), at)).copied(),
    )
}

/// Runs the case's model with the constants in its file.
pub(crate) fn modelled(file: &CaseFile) -> Modelled {
    let case = cases::find(&file.name);
    case.map_or_else(Modelled::new, |case| case.model(file, &file.values()))
}

/// Returns the kernel release if all trials ran on the same one, otherwise `None`.
pub(crate) fn release(trials: &[Trial]) -> Option<String> {
    let mut releases = trials.iter().map(|trial| &trial.replay.machine.kernel);
    let first = releases.next()?;
    releases.all(|other| other == first).then(|| first.clone())
}
