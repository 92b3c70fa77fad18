//! Arguments of `ticktax case`.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use ticktax_model::document::DocumentKind;
use ticktax_report::Format;

use super::files::HTML;
use super::{complete, formats};
use crate::files::HtmlFile;

const CODES: &str = "\
Exit codes:
  0    every row matches within its tolerance, or deviates as the case file expects
  1    a row does not match, or the case does not exist; one line explains why";

#[derive(Debug, Subcommand)]
pub(crate) enum CaseQuestion {
    /// List all cases
    List {
        #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// Choose the output format
        #[arg(long, value_parser = formats(DocumentKind::Cases), default_value = "text")]
        format: Format,
    },
    /// Print the published figures, their source, and which figures calibrate the model
    Show {
        /// Name of a case, or your own case file (docs/reference/case.md)
        #[arg(value_name = "NAME|FILE", add = complete::cases())]
        name: String,

        #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// Choose the output format
        #[arg(long, value_parser = formats(DocumentKind::CaseSheet), default_value = "text")]
        format: Format,
    },
    /// Run the model and compare it with the published figures, row by row
    #[command(after_long_help = CODES)]
    Run {
        /// Name of a case, or your own case file (docs/reference/case.md)
        #[arg(value_name = "NAME|FILE", add = complete::cases())]
        name: String,

        /// Also measure on this machine for one second, if the case supports it
        ///
        /// The case `tcp-cpu-cost` measures the cycles per byte over loopback.
        #[arg(long)]
        here: bool,

        /// Also compare with the traffic measurement in this file
        ///
        /// Create it with `ticktax net pair --format json --output FILE`. The case `tcp-cpu-cost`
        /// uses the measured cycles per byte.
        #[arg(long, value_name = "FILE")]
        traffic: Option<PathBuf>,

        #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// Choose the output format
        #[arg(long, value_parser = formats(DocumentKind::Case), default_value = "text")]
        format: Format,
    },
    /// Fit the model's constants, and print how well they predict the other rows
    Fit {
        /// Name of a case, or your own case file (docs/reference/case.md)
        #[arg(value_name = "NAME|FILE", add = complete::cases())]
        name: String,

        #[arg(long, value_name = "FILE", help = HTML, long_help = HtmlFile::ABOUT)]
        html: Option<PathBuf>,

        /// Choose the output format
        #[arg(long, value_parser = formats(DocumentKind::CaseFit), default_value = "text")]
        format: Format,
    },
}

impl CaseQuestion {
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::List { format, .. }
            | Self::Show { format, .. }
            | Self::Run { format, .. }
            | Self::Fit { format, .. } => *format,
        }
    }

    pub(crate) fn html(&self) -> Option<&Path> {
        match self {
            Self::List { html, .. }
            | Self::Show { html, .. }
            | Self::Run { html, .. }
            | Self::Fit { html, .. } => html.as_deref(),
        }
    }
}
