//! Cases on real kernels: what to run in each, and what to make of it, beside what was published
//! and what the models give.
//!
//! The kernels are not those of the publications, and neither is their clock. What can agree is the
//! mechanism: what a case says of ticks and sleeps has to hold on any kernel that is told to tick
//! and to sleep that way.

use std::collections::BTreeSet;

use ticktax_model::Nanos;
use ticktax_model::kernels::{GuestClock, KernelsStatement};
use ticktax_model::recording::Header;

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

    /// What to make of it. `clock` is what the guests' time was.
    fn statement(&self, file: &CaseFile, clock: GuestClock, trials: &[Trial]) -> KernelsStatement;
}

/// Why kernels cannot be put beside what was published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelsError {
    /// A case has a row for each tick rate.
    #[error(
        "two of the kernels tick at {0} Hz, but the case has one row per rate: give kernels \
        with different rates"
    )]
    SameRate(u32),
    /// Neither its configuration nor the guest tells the tick rate.
    #[error("cannot find the tick rate of {0} in its configuration or in the guest")]
    NoRate(String),
    /// What came from the guest is of something else.
    #[error("the guest's recording does not contain the case's programs")]
    NoReplay,
}

impl Trial {
    /// What `kernel` made of a job, by the recording's header; `hz` is its tick rate, where its configuration is known and the
    /// guest may not tell it.
    ///
    /// # Errors
    /// The tick rate is not known, or the recording is of something else.
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

/// Refuses two kernels with one tick rate.
///
/// # Errors
/// There are two.
pub fn require_one_a_rate(rates: impl IntoIterator<Item = u32>) -> Result<(), KernelsError> {
    let mut seen = BTreeSet::new();
    match rates.into_iter().find(|hz| !seen.insert(*hz)) {
        Some(hz) => Err(KernelsError::SameRate(hz)),
        None => Ok(()),
    }
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

/// What was published of a rate, or follows from that, and what the case's own model gives.
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
