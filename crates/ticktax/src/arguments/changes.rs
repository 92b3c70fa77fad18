//! What was typed for `ticktax compare`.

use std::path::PathBuf;

use clap::Args;
use ticktax_model::document::DocumentKind;
use ticktax_report::Format;

use super::{PageArguments, complete, formats};

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax compare before.parquet after.parquet     what changed, with 95 % intervals
  ticktax compare before.parquet after.parquet --section repeats
                                                   which beats came, went or moved
  ticktax compare here.json there.json             two statements: sums only, no intervals";

#[derive(Debug, Args)]
pub(crate) struct ChangesArguments {
    /// A recording of an audit, or its statement in JSON
    #[arg(add = complete::comparable())]
    pub(crate) first: PathBuf,

    /// Another one, of the same machine or of another
    #[arg(add = complete::comparable())]
    pub(crate) second: PathBuf,

    /// How to print what changed
    #[arg(long, value_parser = formats(DocumentKind::Changes), default_value = "text")]
    pub(crate) format: Format,

    #[command(flatten)]
    pub(crate) page: PageArguments,

    /// Write it to a file in place of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
