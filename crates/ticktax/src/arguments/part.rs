//! Options that select a time range of a recording.

use std::str::FromStr;

use clap::Args;
use ticktax_model::Nanos;

use super::seconds_or_units;

/// Start and end of the time range to report.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartArguments {
    /// Start the report this far into the recording, for example 12.5s
    ///
    /// Earlier activity is left out. A number without a unit is in seconds.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<Moment>,

    /// End the report this far into the recording
    ///
    /// Spans that cross either end are cut there. Kernel counters are omitted if they were read
    /// only at the start and end of the recording.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<Moment>,
}

impl PartArguments {
    /// Returns the start and end of the requested time range. Returns `None` if the whole recording
    /// was requested.
    pub(crate) fn part(self) -> Option<(Option<Nanos>, Option<Nanos>)> {
        let named = self.from.is_some() || self.to.is_some();
        named.then(|| (self.from.map(|at| at.0), self.to.map(|at| at.0)))
    }
}

/// Time since the start of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment(Nanos);

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        seconds_or_units(text).map(Self)
    }
}
