//! What was typed for `ticktax sim`.

use std::path::PathBuf;

use clap::Args;
use ticktax_experiment::vary::{LoopVariants, Vary};
use ticktax_model::document::DocumentKind;
use ticktax_model::pace::FrameRate;
use ticktax_report::{Format, HtmlFile};

use super::{Length, formats};
use crate::failure::Failure;

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo ticktax audit --save game.parquet --pid 4121    record a game server, then ask
  ticktax sim --load game.parquet --vary hz=1000,250,100
                                          what another tick would do to its frames
  ticktax sim --load game.parquet --vary highres=off --vary tick=periodic,nohz-idle
  ticktax sim --load game.parquet --vary rate=60,100 --vary rule=deadline,remaining
  ticktax sim --load game.toml --vary policy=o1,eevdf
                                          the same of a scenario that you wrote

Lists multiply: each value of one with each value of the others.";

#[derive(Debug, Args)]
pub(crate) struct SimArguments {
    /// The work: a recording that `audit --save` made as root, or a scenario (.toml)
    #[arg(long, value_name = "FILE", add = super::complete::loads())]
    pub(crate) load: PathBuf,

    /// The program of the recording, or the task of the scenario, that is asked about [default: the
    /// one that was followed, or the one with the surest rhythm]
    #[arg(long, value_name = "NAME")]
    pub(crate) program: Option<String>,

    /// The rate that the recorded loop was asked for, where it is known
    ///
    /// What all its frames are late by cannot be seen from outside. With it, the loop under another
    /// rate or rule is predicted better.
    #[arg(long, value_name = "FRAMES")]
    pub(crate) asked: Option<FrameRate>,

    /// What to vary: a setting (docs/reference/settings.md), task.NAME.FIELD and the like, or
    /// rate, rule and sleep of the recorded loop; again for several
    ///
    /// Of a way to sleep, what it counts in and whether it spins is modelled.
    #[arg(long, value_name = "NAME=LIST")]
    pub(crate) vary: Vec<Vary>,

    /// How long each run is [default: as long as the recording, or as the scenario says]
    #[arg(long = "for", visible_alias = "duration", value_name = "TIME")]
    pub(crate) length: Option<Length>,

    /// How many runs each setting gets: 39 make an interval of 95 %
    #[arg(long, value_name = "N", default_value_t = ticktax_experiment::whatif::RUNS, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) resample: u32,

    /// Predict other settings even where the model does not give what was measured
    ///
    /// Without it, a control that fails is all that is predicted, and the exit code is 5.
    #[arg(long)]
    pub(crate) force: bool,

    /// The seed of the first run; the same seed gives the same prediction
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Save the first run of the last setting as a recording, for `report` and `beats`
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,

    #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// How to print the prediction
    #[arg(long, value_parser = formats(DocumentKind::Prediction), default_value = "text")]
    pub(crate) format: Format,

    /// Write the prediction to a file in place of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

impl SimArguments {
    /// What is varied of the recorded loop, and the rest: of the machine.
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
