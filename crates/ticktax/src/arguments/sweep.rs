//! What `ticktax sweep` is told.

use std::path::PathBuf;

use clap::Args;
use ticktax_experiment::vary::Vary;
use ticktax_model::document::DocumentKind;
use ticktax_report::Format;
use ticktax_sim::settings;

use super::formats;
use crate::files::HtmlFile;

/// Shown below the options.
pub(crate) fn examples() -> String {
    format!(
        "\
Examples:
  ticktax sweep scenarios/game-server.toml --vary hz=100,250,500,1000 --results game.parquet
  ticktax sweep game.toml --vary hz=100..1000/50 --vary task.game.work=1ms..9ms/500us \\
      --repeat 10 --results game.parquet --best task.game.fps

Values are separated by commas, and FIRST..LAST/STEP is a range. What can be varied:
  {};
  task.NAME.FIELD, interrupt.NAME.FIELD, link.N.FIELD, group.N.FIELD

A sweep that is interrupted, or killed, goes on when the same command is given again.",
        settings::names()
    )
}

#[derive(Debug, Args)]
pub(crate) struct SweepArguments {
    /// The scenario
    #[arg(add = super::complete::scenarios())]
    pub(crate) scenario: PathBuf,

    /// What to vary, such as hz=100,250,1000 or task.game.work=1ms..5ms/500us; again for several
    #[arg(long, value_name = "NAME=LIST")]
    pub(crate) vary: Vec<Vary>,

    /// The Parquet file to write, a row for each point
    #[arg(long, value_name = "FILE")]
    pub(crate) results: PathBuf,

    /// How many points to run at once [default: one a CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) jobs: Option<u16>,

    /// Run each point with N seeds, from the scenario's own on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: Option<u32>,

    /// Also print the points that are highest and lowest in this column, such as task.game.fps
    #[arg(long, value_name = "COLUMN")]
    pub(crate) best: Option<String>,

    #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// How to print what came of it
    #[arg(long, value_parser = formats(DocumentKind::Sweep), default_value = "text")]
    pub(crate) format: Format,
}
