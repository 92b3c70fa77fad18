//! Arguments of `ticktax compare`.

use std::path::PathBuf;

use crate::files::HtmlFile;
use clap::Args;
use ticktax_experiment::DIFFERENCE;
use ticktax_model::comparison::Better;
use ticktax_model::document::DocumentKind;
use ticktax_report::Format;
use ticktax_trial::numbers::Question;

use super::files::HTML;
use super::percent::percentage;
use super::{PageArguments, complete, formats, one_of};

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax compare before.parquet after.parquet
                                          list what changed, with 95 % intervals
  ticktax compare before.parquet after.parquet --section repeats
                                          list periodic activity that appeared, stopped or changed
  ticktax compare here.json there.json    compare two JSON statements, without intervals
  ticktax compare stock.txt patched.txt --better lower
                                          compare two lists of numbers, one per line
  ticktax compare runs.csv runs.csv --column old --column new
                                          compare two columns of a table
  ticktax compare times.json times.json --result 1 --result 2
                                          compare two commands timed by hyperfine
  ticktax compare before.txt after.txt    compare two histograms of cyclictest";

#[derive(Debug, Args)]
pub(crate) struct ChangesArguments {
    /// Recording, JSON statement, list of numbers, or distribution
    ///
    /// A list of numbers is a text file with one number per line, a CSV column, or a JSON file
    /// exported by hyperfine. A distribution is output of cyclictest, rtla hist, fio, wrk or k6, or
    /// an HDR histogram. ticktax recognizes it by its contents.
    #[arg(add = complete::comparable())]
    pub(crate) first: PathBuf,

    /// Second file, of the same kind, from this or another machine
    #[arg(add = complete::comparable())]
    pub(crate) second: PathBuf,

    #[command(flatten)]
    pub(crate) numbers: NumberArguments,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::Comparison), default_value = "text")]
    pub(crate) format: Format,

    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) page: PageArguments,
}

/// Options that apply to lists of numbers and distributions only.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lists of numbers and distributions")]
pub(crate) struct NumberArguments {
    /// Read this CSV column from both files; repeatable
    ///
    /// Takes a name or a number. To read a different column from each file, give the option twice.
    /// [default: the only numeric column]
    #[arg(long = "column", value_name = "NAME")]
    columns: Vec<String>,

    /// Read this result or distribution from both files; repeatable
    ///
    /// Takes a number, or a name such as hyperfine's command or a distribution's name. To read a
    /// different result from each file, give the option twice. [default: the only result, or all
    /// distributions that both files have]
    #[arg(long = "result", value_name = "NAME")]
    results: Vec<String>,

    /// Say which values are better: lower, higher or unknown
    ///
    /// [default: lower for hyperfine times and for latencies, otherwise unknown]
    #[arg(long, value_parser = one_of(&Better::ALL, Better::name, Better::about))]
    better: Option<Better>,

    /// Ignore differences up to this [default: 5%]
    #[arg(long, value_name = "SHARE", value_parser = percentage)]
    difference: Option<f64>,
}

impl NumberArguments {
    pub(crate) fn question(&self) -> Question {
        Question {
            columns: self.columns.clone(),
            results: self.results.clone(),
            better: self.better,
            difference: self.difference.unwrap_or(DIFFERENCE),
        }
    }

    /// Returns the first of these options that the user typed, or `None`. If the files are not
    /// lists of numbers, the error message names this option.
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
