//! Arguments of `ticktax sim`.

use std::path::PathBuf;

use crate::files::HtmlFile;
use clap::Args;
use ticktax_experiment::vary::{LoopVariants, Vary};
use ticktax_model::document::DocumentKind;
use ticktax_model::pace::FrameRate;
use ticktax_report::Format;

use super::files::HTML;
use super::{Length, formats};
use crate::failure::Failure;

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo ticktax audit --save game.parquet --pid 4121
                                          record a game server first
  ticktax sim --load game.parquet --vary hz=1000,250,100
                                          predict its frames under other tick rates
  ticktax sim --load game.parquet --vary highres=off --vary tick=periodic,nohz-idle
                                          predict them without high-resolution timers
  ticktax sim --load game.parquet --vary rate=60,100 --vary rule=deadline,remaining
                                          predict them at other frame rates and rules
  ticktax sim --load game.toml --vary policy=o1,eevdf
                                          predict a scenario that you wrote yourself

Lists multiply: every combination of values is predicted.";

#[derive(Debug, Args)]
pub(crate) struct SimArguments {
    /// Simulate this recording or scenario (.toml)
    ///
    /// A recording must have been saved by root.
    #[arg(long, value_name = "FILE", add = super::complete::loads())]
    pub(crate) load: PathBuf,

    /// Predict this program or task
    ///
    /// [default: the followed or most periodic one]
    #[arg(long, value_name = "NAME")]
    pub(crate) program: Option<String>,

    /// Give the frame rate that the recorded loop was set to, if you know it
    ///
    /// A delay that all frames share is invisible in a recording. With the configured rate, other
    /// rates and rules are predicted better.
    #[arg(long, value_name = "FRAMES", hide_short_help = true)]
    pub(crate) asked: Option<FrameRate>,

    /// Vary a setting, such as hz=100,1000; repeatable
    ///
    /// Settings are listed in docs/reference/settings.md. You can also vary task.NAME.FIELD and the
    /// like, and the rate, rule and sleep of the recorded loop. For a way to sleep, the model knows
    /// its timer's resolution and whether it spins.
    #[arg(long, value_name = "NAME=LIST")]
    pub(crate) vary: Vec<Vary>,

    /// Simulate this long per run [default: as in the load]
    #[arg(long = "for", alias = "duration", value_name = "TIME")]
    pub(crate) length: Option<Length>,

    /// Run each setting this many times; 39 give a 95 % interval
    #[arg(long, value_name = "N", default_value_t = ticktax_experiment::whatif::RUNS,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) resample: u32,

    /// Predict even if the model does not reproduce the measurement
    ///
    /// Without it, a failed control run is the only result, and the exit code is 5.
    #[arg(long)]
    pub(crate) force: bool,

    /// Set the seed of the first run; the same seed repeats the prediction
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Save a recording of the last setting's first run
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Print in this format
    #[arg(long, value_parser = formats(DocumentKind::Prediction), default_value = "text")]
    pub(crate) format: Format,

    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

impl SimArguments {
    /// Splits `--vary` into variants of the recorded loop, and settings of the machine.
    pub(crate) fn varied(&self) -> Result<(LoopVariants, Vec<Vary>), Failure> {
        let mut variants = LoopVariants::default();
        let mut rest = Vec::new();
        for vary in &self.vary {
            let is_of_loop = matches!(vary.name(), "rate" | "rule" | "sleep");
            let taken = is_of_loop.then(|| variants.take(vary)).transpose();
            if taken.map_err(|error| Failure::Arguments(error.to_string()))? != Some(true) {
                rest.push(vary.clone());
            }
        }
        Ok((variants, rest))
    }
}
