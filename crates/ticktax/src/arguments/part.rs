//! Which part of a recording is looked at.

use std::str::FromStr;

use clap::Args;
use ticktax_model::Nanos;

use super::seconds_or_units;

/// Where a part of a recording begins and ends.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartArguments {
    /// Leave out what was before this time after the recording's begin, such as 12 or 12.5s
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<Moment>,

    /// Leave out what was after this time
    ///
    /// What runs at an edge is cut there. What the kernel counted from the recording's begin to its end
    /// is left out, because nobody read it in between.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<Moment>,
}

impl PartArguments {
    /// Which part of the recording is asked for, where not all of it.
    pub(crate) fn part(self) -> Option<(Option<Nanos>, Option<Nanos>)> {
        let named = self.from.is_some() || self.to.is_some();
        named.then(|| (self.from.map(|at| at.0), self.to.map(|at| at.0)))
    }
}

/// A time after a recording's begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment(Nanos);

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        seconds_or_units(text).map(Self)
    }
}
