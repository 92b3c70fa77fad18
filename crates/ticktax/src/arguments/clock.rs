//! Arguments of `ticktax clock`.

use std::path::PathBuf;

use clap::Args;
use ticktax_model::Nanos;
use ticktax_model::document::DocumentKind;
use ticktax_report::Format;

use super::files::HTML;
use super::{formats, seconds_or_units};
use crate::files::HtmlFile;

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax clock                           watch the clocks for 5 seconds
  ticktax clock --for 12m --interval 10s  see whether the kernel sets the hardware clock
  ticktax clock --for 0s --format json    read the state of the clocks once";

#[derive(Args, Debug)]
pub(crate) struct ClockArguments {
    /// Watch for this long
    #[arg(long = "for", value_name = "TIME", value_parser = seconds_or_units, default_value = "5s")]
    pub(crate) length: Nanos,

    /// Take a sample at this interval
    #[arg(long, value_name = "TIME", value_parser = seconds_or_units, default_value = "1s")]
    pub(crate) interval: Nanos,

    /// Keep readings of the hardware clocks in this file, to measure their drift over hours
    ///
    /// By default, it is clock/readings.jsonl in the state directory: /var/lib/ticktax for root,
    /// ~/.local/state/ticktax for other users.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,

    #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
    pub(crate) html: Option<PathBuf>,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::Timekeeping), default_value = "text")]
    pub(crate) format: Format,
}
