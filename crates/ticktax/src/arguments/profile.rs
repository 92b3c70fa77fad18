//! Options for profiles.

use std::path::PathBuf;

use clap::Args;
use ticktax_model::profile::{DEFAULT_HZ, MAX_HZ};

/// Options for recording a profile.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ProfileArguments {
    /// Sample the running code, to divide CPU time by function
    ///
    /// HZ is the number of samples per second and CPU, from 1 to 10000 [default: 99]. Idle CPUs are
    /// interrupted too. `--section profile` prints the functions, `--html` draws a flame graph, and
    /// `--profile-out` writes a file for other viewers.
    #[arg(long, value_name = "HZ", num_args = 0..=1, require_equals = true,
          default_missing_value = DEFAULT, hide_short_help = true,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_HZ)))]
    profile: Option<u32>,

    #[command(flatten)]
    pub(crate) waits: WaitProfileArguments,
}

const DEFAULT: &str = "99";

/// Options for the scope and the file of a profile.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct WaitProfileArguments {
    /// Profile the code that ran while the program waited for a CPU
    #[arg(long, hide_short_help = true)]
    pub(crate) while_waiting: bool,

    /// Also write the profile to this file
    ///
    /// The name selects the format: .folded for folded stacks, or .pb.gz for pprof.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) profile_out: Option<PathBuf>,
}

impl ProfileArguments {
    /// Returns the number of samples per second and CPU, or `None` if no profile was requested.
    pub(crate) fn hz(&self) -> Option<u32> {
        let is_implied = self.waits.profile_out.is_some() || self.waits.while_waiting;
        self.profile.or(is_implied.then_some(DEFAULT_HZ))
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::profile::DEFAULT_HZ;

    #[test]
    fn the_help_names_the_default_rate() {
        assert_eq!(super::DEFAULT, DEFAULT_HZ.to_string());
    }
}
