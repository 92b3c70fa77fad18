//! Arguments of `ticktax sweep`.

use std::path::PathBuf;

use clap::Args;
use ticktax_experiment::vary::Vary;
use ticktax_model::document::DocumentKind;
use ticktax_report::Format;
use ticktax_sim::settings;

use super::files::HTML;
use super::formats;
use crate::files::HtmlFile;

pub(crate) fn examples() -> String {
    format!(
        "\
Examples:
  ticktax sweep scenarios/game-server.toml --vary hz=100,250,500,1000 --results game.parquet
  ticktax sweep game.toml --vary hz=100..1000/50 --vary task.game.work=1ms..9ms/500us \\
      --repeat 10 --results game.parquet --best task.game.fps

Values are separated by commas; FIRST..LAST/STEP is a range. Settings that can be varied:
{},
  task.NAME.FIELD, interrupt.NAME.FIELD, link.N.FIELD, group.N.FIELD

To resume an interrupted or killed sweep, run the same command again.",
        wrapped(&settings::names())
    )
}

fn wrapped(names: &str) -> String {
    let mut text = String::new();
    let mut line = String::from(" ");
    for name in names.split(' ') {
        if line.len() + 1 + name.len() > 78 {
            text.push_str(&line);
            text.push('\n');
            line = String::from(" ");
        }
        line.push(' ');
        line.push_str(name);
    }
    text + &line
}

#[derive(Debug, Args)]
pub(crate) struct SweepArguments {
    /// Scenario to simulate
    #[arg(add = super::complete::scenarios())]
    pub(crate) scenario: PathBuf,

    /// Vary a setting, for example hz=100,1000 or task.game.work=1ms..5ms/500us; repeatable
    #[arg(long, value_name = "NAME=LIST")]
    pub(crate) vary: Vec<Vary>,

    /// Write the results to this Parquet file, one row per arm
    #[arg(long, value_name = "FILE")]
    pub(crate) results: PathBuf,

    /// Simulate this many arms in parallel [default: one per CPU]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) jobs: Option<u16>,

    /// Run each arm with N seeds, starting from the scenario's seed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: Option<u32>,

    /// Also print the arms with the highest and lowest values in this column
    #[arg(long, value_name = "COLUMN")]
    pub(crate) best: Option<String>,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::Comparison), default_value = "text")]
    pub(crate) format: Format,
}
