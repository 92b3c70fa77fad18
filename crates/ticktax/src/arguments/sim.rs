//! Arguments of `ticktax sim`.

use std::path::PathBuf;

use crate::files::HtmlFile;
use clap::Args;
use ticktax_experiment::vary::Vary;
use ticktax_model::document::DocumentKind;
use ticktax_model::pace::FrameRate;
use ticktax_report::Format;

use super::files::HTML;
use super::{Length, formats};

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo ticktax audit --save game.parquet --pid 4121
                                          record a game server first
  ticktax sim --load game.parquet --vary hz=1000,250,100
                                          predict its frames at other tick rates
  ticktax sim --load game.parquet --vary highres=off --vary tick=periodic,nohz-idle
                                          predict them without high-resolution timers
  ticktax sim --load game.parquet --vary rate=60,100 --vary rule=deadline,remaining
                                          predict them at other frame rates and rules
  ticktax sim --load game.toml --vary policy=o1,eevdf
                                          predict a scenario that you wrote

Every combination of the listed values is predicted.";

#[derive(Debug, Args)]
pub(crate) struct SimArguments {
    /// Simulate this recording or scenario (.toml)
    ///
    /// Only recordings saved by root contain enough detail.
    #[arg(long, value_name = "FILE", add = super::complete::loads())]
    pub(crate) load: PathBuf,

    /// Predict this program or task
    ///
    /// [default: the program that the recording followed, or the most periodic one]
    #[arg(long, value_name = "NAME")]
    pub(crate) program: Option<String>,

    /// Assume that the recorded loop was configured for this frame rate
    ///
    /// A recording does not show a delay that affects all frames equally. The configured rate
    /// improves predictions for other rates and rules.
    #[arg(long, value_name = "FRAMES", hide_short_help = true)]
    pub(crate) asked: Option<FrameRate>,

    /// Vary a setting, for example hz=100,1000; repeatable
    ///
    /// docs/reference/settings.md lists the settings. You can also vary scenario fields, for
    /// example task.NAME.FIELD, and the rate, rule and sleep method of the recorded loop. For each
    /// sleep method, the model simulates its timer resolution and whether it spins.
    #[arg(long, value_name = "NAME=LIST")]
    pub(crate) vary: Vec<Vary>,

    /// Simulate this much time per run [default: the length of the load]
    #[arg(long = "for", alias = "duration", value_name = "TIME")]
    pub(crate) length: Option<Length>,

    /// Run each arm this many times; 39 runs give a 95 % interval
    #[arg(long, value_name = "N", default_value_t = ticktax_predict::whatif::RUNS,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) resample: u32,

    /// Predict even if the model does not reproduce the measurement
    ///
    /// Without --force, ticktax prints only the failed control run and exits with code 5.
    #[arg(long)]
    pub(crate) force: bool,

    /// Seed for the first run; the same seed gives the same prediction
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Save a recording of the first run of the last arm
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::Comparison), default_value = "text")]
    pub(crate) format: Format,

    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
