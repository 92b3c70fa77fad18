//! `ticktax compare`: differences between two recordings or two lists of numbers.

use std::process::ExitCode;

use ticktax_model::comparison::Experiment;
use ticktax_model::document::Document;
use ticktax_trial::changes;
use ticktax_trial::numbers::NumberFiles;

use crate::arguments::ChangesArguments;
use crate::budget::Budget;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::terminal::{Terminal, UNVERIFIED};

pub(crate) fn run(typed: &ChangesArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let html = output::begin_page(typed.html.as_deref())?;
    let (first, second) = (&typed.first, &typed.second);
    let budget = Budget::begin(&[first, second], terminal);
    let document: Document = if let Some(files) = NumberFiles::open(first, second)? {
        files.compare(&typed.numbers.question(), version)?.into()
    } else {
        if let Some(option) = typed.numbers.typed() {
            let why = format!("{option} applies only to lists of numbers, not recordings: omit it");
            return Err(Failure::Arguments(why));
        }
        let compared = changes::compare(first, second, budget.threads(), version)?;
        if let Experiment::Recordings(record) = &compared.experiment {
            for side in [&record.first, &record.second] {
                if side.not_verified {
                    terminal.complain(&format_args!("{}: {UNVERIFIED}", side.file));
                }
            }
        }
        compared.into()
    };
    let terminal = terminal.viewing(&typed.page);
    let output = Output::new(typed.format, typed.output.as_deref());
    output::put(&document, html, output, &terminal)?;
    Ok(ExitCode::SUCCESS)
}
