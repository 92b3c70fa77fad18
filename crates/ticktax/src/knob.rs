//! `ticktax knob` and `ticktax undo`: read this machine's settings, and restore those that a killed
//! `try` left changed.

use std::process::ExitCode;

use ticktax_knobs::{Knob, KnobError, System, Target, of_what, registry};
use ticktax_model::document::Document;
use ticktax_model::knob::{KnobLine, KnobList, KnobReadings};

use crate::arguments::{KnobQuestion, TargetArguments, UndoArguments};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::state;
use crate::terminal::Terminal;

pub(crate) fn run(question: &KnobQuestion, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let html = output::begin_page(question.html())?;
    let document: Document = match question {
        KnobQuestion::List { of, .. } => list(of.as_deref()).into(),
        KnobQuestion::Show { id, .. } => registry::find(id)?.sheet().into(),
        KnobQuestion::Get { id, target, .. } => get(id, target)?.into(),
    };
    output::put(
        &document,
        html,
        Output::to_stdout(question.format()),
        terminal,
    )?;
    Ok(ExitCode::SUCCESS)
}

fn list(of: Option<&str>) -> KnobList {
    let knobs: Vec<KnobLine> = match of {
        Some(word) => registry::matching(word).map(Knob::line).collect(),
        None => registry::all().map(Knob::line).collect(),
    };
    KnobList {
        search: of.map(str::to_owned),
        total: registry::all().count() as u64,
        knobs,
    }
}

/// Reads a setting for the object that the user named, or for all objects. Returns an error if no
/// value could be read.
fn get(id: &str, typed: &TargetArguments) -> Result<KnobReadings, Failure> {
    let knob = registry::find(id)?;
    let system = System::default();
    let targets = match typed.target() {
        Some(target) => vec![target],
        None => Target::all(knob.scope(), &system).ok_or_else(|| KnobError::Scope {
            id: id.to_owned(),
            of: of_what(knob.scope()).to_owned(),
            hint: format!("choose one with {}", TargetArguments::option(knob.scope())),
        })?,
    };
    let readings = knob.readings(&system, &targets);
    if readings
        .readings
        .iter()
        .all(|reading| reading.value.is_none())
        && let Some(first) = targets.first()
    {
        knob.read(&system, first)?;
    }
    Ok(readings)
}

/// Restores the settings that killed trials left changed. The exit code is 0 if everything has been
/// restored and every line of the journal was readable.
pub(crate) fn undo(typed: &UndoArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let html = output::begin_page(typed.html.as_deref())?;
    let journal = state::knob_journal(typed.journal.as_ref())?;
    let statement = ticktax_knobs::undo(&System::default(), &journal)?;
    let code = if statement.is_certain() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    };
    output::put(
        &statement.into(),
        html,
        Output::to_stdout(typed.format),
        terminal,
    )?;
    Ok(code)
}
