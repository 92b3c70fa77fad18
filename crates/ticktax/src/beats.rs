//! `ticktax beats`: lists the periodic activity in a saved recording.

use std::process::ExitCode;

use ticktax_analysis::BeatFinder;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::RowSink;

use crate::arguments::BeatsArguments;
use crate::budget::Budget;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::part::Selection;
use crate::terminal::Terminal;

pub(crate) fn run(typed: &BeatsArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let html = output::begin_page(typed.html.as_deref())?;
    let budget = Budget::begin(&[&typed.file], terminal);
    let mut recording = ticktax_import::open(&typed.file)?;
    let mut finder = BeatFinder::new().with_halves();
    let selection = Selection {
        part: typed.part.part(),
        ..Selection::default()
    };
    let selected = selection.apply(&mut recording)?;
    let (_, header) = selected.replay(&mut |sources, row| finder.row(sources, row))?;
    let mut beats = finder.finish(&header, budget.threads());
    let unverified = Limitation::NotVerified;
    if header.coverage.limitations.contains(&unverified) {
        beats.limitations.push(unverified);
    }
    terminal.warn_unverified(&header);
    let terminal = terminal.viewing(&typed.page);
    output::put(
        &beats.into(),
        html,
        Output::to_stdout(typed.format),
        &terminal,
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the number of threads for work that may use all CPUs, such as a search for periodic
/// activity after the recording has ended.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
