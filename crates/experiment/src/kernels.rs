//! Runs cases on real kernels and compares the results with published and modelled figures.
//!
//! These kernels and their clocks differ from those of the publications, so the figures can differ.
//! The mechanism must agree: a case's claims about ticks and sleeps must hold on any kernel
//! configured to tick and sleep that way.

use std::collections::BTreeSet;

use ticktax_model::Nanos;
use ticktax_model::kernels::{GuestClock, KernelsStatement};
use ticktax_model::recording::Header;

use crate::cases;
use crate::file::CaseFile;
use crate::judge::Modelled;
use crate::replay::Replay;

/// A run in a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestJob {
    /// Kernel command line.
    pub cmdline: &'static str,
    /// Duration on the guest's clock.
    pub length: Nanos,
    /// Whether the case's programs run. Otherwise the guest is idle.
    pub programs: bool,
    /// Whether the guest's instructions are counted.
    pub counted: bool,
}

/// Result of a job on one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Tick rate, in Hz.
    pub hz: u32,
    /// The job.
    pub job: GuestJob,
    /// Figures of the guest's programs.
    pub replay: Replay,
    /// Total instructions that the guest executed, if counted.
    pub instructions: Option<u64>,
}

/// A case that can run on real kernels.
pub trait KernelCase: Sync {
    /// The jobs to run on each kernel.
    fn jobs(&self) -> Vec<GuestJob>;

    /// Published tick rates, in Hz.
    fn rates(&self, file: &CaseFile) -> Vec<u32>;

    /// Reports the results. `clock` is the clock of the guests.
    fn statement(&self, file: &CaseFile, clock: GuestClock, trials: &[Trial]) -> KernelsStatement;
}

/// Reasons why kernels cannot be compared with published figures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelsError {
    /// Two kernels have the same tick rate, and a case has one row per rate.
    #[error(
        "two of the kernels tick at {0} Hz, but the case has one row per rate: give kernels \
        with different rates"
    )]
    SameRate(u32),
    /// Neither the configuration nor the guest shows the tick rate.
    #[error("cannot find the tick rate of {0} in its configuration or in the guest")]
    NoRate(String),
    /// The guest's recording contains something else.
    #[error("the guest's recording does not contain the case's programs")]
    NoReplay,
}

impl Trial {
    /// Reads the result of a job on `kernel` from the recording's header. `hz` is the tick rate in
    /// the kernel's configuration, used if the guest does not report one.
    ///
    /// # Errors
    /// The tick rate is unknown, or the recording contains something else.
    pub fn new(
        (kernel, hz): (&str, Option<u32>),
        job: GuestJob,
        header: &Header,
        instructions: Option<u64>,
    ) -> Result<Self, KernelsError> {
        let replay = Replay::of(header).ok_or(KernelsError::NoReplay)?;
        let hz = replay.machine.hz_configured.or(hz);
        Ok(Self {
            hz: hz.ok_or_else(|| KernelsError::NoRate(kernel.to_owned()))?,
            job,
            replay,
            instructions,
        })
    }
}

/// Rejects two kernels with the same tick rate.
///
/// # Errors
/// [`KernelsError::SameRate`].
pub fn require_one_a_rate(rates: impl IntoIterator<Item = u32>) -> Result<(), KernelsError> {
    let mut seen = BTreeSet::new();
    match rates.into_iter().find(|hz| !seen.insert(*hz)) {
        Some(hz) => Err(KernelsError::SameRate(hz)),
        None => Ok(()),
    }
}

/// Names of the cases that can run on real kernels.
pub fn names() -> Vec<&'static str> {
    let on_kernels = cases::all().filter(|case| case.kernels().is_some());
    on_kernels.map(cases::Case::name).collect()
}

/// Tick rates of a series.
pub(crate) fn rates(file: &CaseFile, series: &str) -> Vec<u32> {
    let rows = file.series(series).map_or(&[][..], |series| &series.rows);
    rows.iter().filter_map(|row| row.at.parse().ok()).collect()
}

/// The target range and the modelled figure of a row, given its tick rate.
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

/// Runs the case's own model.
pub(crate) fn modelled(file: &CaseFile) -> Modelled {
    let case = cases::find(&file.name);
    case.map_or_else(Modelled::new, |case| case.model(file, &file.values()))
}

/// Kernel release, if it is the same for all trials.
pub(crate) fn release(trials: &[Trial]) -> Option<String> {
    let mut releases = trials.iter().map(|trial| &trial.replay.machine.kernel);
    let first = releases.next()?;
    releases.all(|other| other == first).then(|| first.clone())
}
