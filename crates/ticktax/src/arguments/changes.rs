//! What was typed for `ticktax compare`.

use std::path::PathBuf;

use crate::files::HtmlFile;
use clap::Args;
use ticktax_experiment::numbers::Question;
use ticktax_experiment::trial::DIFFERENCE;
use ticktax_model::document::DocumentKind;
use ticktax_model::trial::Better;
use ticktax_report::Format;

use super::percent::percentage;
use super::{PageArguments, complete, formats, one_of};

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax compare before.parquet after.parquet     what changed, with 95 % intervals
  ticktax compare before.parquet after.parquet --section repeats
                                                   which beats came, went or moved
  ticktax compare here.json there.json             two statements: sums only, no intervals
  ticktax compare stock.txt patched.txt --better lower
                                                   two lists of numbers, one a line
  ticktax compare runs.csv runs.csv --column old --column new
                                                   two columns of a table
  ticktax compare times.json times.json --result 1 --result 2
                                                   two commands that hyperfine timed";

#[derive(Debug, Args)]
pub(crate) struct ChangesArguments {
    /// A recording of an audit, or its statement in JSON; or numbers: one a line, a column of a CSV, or
    /// what hyperfine exported as JSON
    #[arg(add = complete::comparable())]
    pub(crate) first: PathBuf,

    /// Another one of the same kind, of the same machine or of another
    #[arg(add = complete::comparable())]
    pub(crate) second: PathBuf,

    #[command(flatten)]
    pub(crate) numbers: NumberArguments,

    #[arg(long, value_name = "FILE", help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// How to print what changed
    #[arg(long, value_parser = formats(DocumentKind::Changes), default_value = "text")]
    pub(crate) format: Format,

    #[command(flatten)]
    pub(crate) page: PageArguments,

    /// Write it to a file in place of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// What is asked of two lists of numbers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lists of numbers")]
pub(crate) struct NumberArguments {
    /// The column of a CSV, by name or by number; given twice, one for each file [default: the only one
    /// with nothing but numbers]
    #[arg(long = "column", value_name = "NAME")]
    columns: Vec<String>,

    /// The result of a hyperfine export, by command or by number; given twice, one for each file
    /// [default: the only one]
    #[arg(long = "result", value_name = "NAME")]
    results: Vec<String>,

    /// Which way is better [default: lower for times that hyperfine took, else unknown]
    #[arg(long, value_parser = one_of(&Better::ALL, Better::name, Better::about))]
    better: Option<Better>,

    /// The largest difference that counts as none [default: 5%]
    #[arg(long, value_name = "SHARE", value_parser = percentage)]
    difference: Option<f64>,
}

impl NumberArguments {
    /// What they mean.
    pub(crate) fn question(&self) -> Question {
        Question {
            columns: self.columns.clone(),
            results: self.results.clone(),
            better: self.better,
            difference: self.difference.unwrap_or(DIFFERENCE),
        }
    }

    /// The first of them that was typed, which only lists of numbers have.
    pub(crate) fn typed(&self) -> Option<&'static str> {
        let all = [
            ("--column", !self.columns.is_empty()),
            ("--result", !self.results.is_empty()),
            ("--better", self.better.is_some()),
            ("--difference", self.difference.is_some()),
        ];
        all.into_iter()
            .find(|(_, typed)| *typed)
            .map(|(name, _)| name)
    }
}
