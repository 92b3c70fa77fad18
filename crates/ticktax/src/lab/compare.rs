//! `ticktax lab compare`: the same loop on many kernels, and in the model of each.

use std::fs;
use std::process::ExitCode;

use ticktax_experiment::conformance;
use ticktax_experiment::matrix::{Cell, Matrix};
use ticktax_lab::LabError;
use ticktax_lab::kernel::{Kernel, Wanted, find};
use ticktax_model::machine::Machine;
use ticktax_model::pace::{PaceComparison, PaceStatement, PaceVariant, Subject};
use ticktax_report::Format;

use super::run::{GuestVerb, Guests, STATEMENT, missing, read};
use super::turns::{in_turns, jobs};
use super::{cache, cases};
use crate::arguments::CompareArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::{Progress, Terminal, require_writable};

/// Boots every kernel with every set of parameters; ends with 1 where the model differs.
pub(super) fn run(typed: &CompareArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    if let Some(file) = &typed.output {
        require_writable(file)?;
    }
    let variants = typed.variants()?;
    let interrupt = Interrupt::listen()?;
    if let Some(case) = &typed.case {
        return cases::run(case, typed, variants, &interrupt, terminal);
    }
    if typed.format != Format::default() {
        let why = "--format is for --case: what else lab compare prints is a page";
        return Err(Failure::Arguments(why.to_owned()));
    }
    let guests = Guests::new(&typed.guest, &typed.verb, &interrupt)?;
    if guests.verb == GuestVerb::Audit {
        let why = "lab compare compares paced loops: give it pace, or pace --vary";
        return Err(Failure::Arguments(why.to_owned()));
    }
    let wanted = variants.rates.iter().map(|&hz| Wanted::Built(hz));
    let wanted: Vec<Wanted> = wanted.chain(variants.kernels).collect();
    // Without any the kernels' own.
    let cmdlines = match variants.cmdlines {
        none if none.is_empty() => vec![String::new()],
        sets => sets,
    };
    let progress = terminal.task("looking for the kernels".to_owned());
    let kernels = found(&wanted, &progress)?;
    let with = |kernel| cmdlines.iter().map(move |cmdline| (kernel, cmdline));
    let places: Vec<(&Kernel, &String)> = kernels.iter().flat_map(with).collect();
    let cells = in_turns(&places, jobs(typed), |&(kernel, cmdline), is_over| {
        let outcome = guests
            .guest()
            .boot(kernel, cmdline, None, is_over, &progress)?;
        let bytes = outcome.file(STATEMENT).ok_or_else(|| missing(STATEMENT))?;
        let (machine, rows) = rows(guests.verb, bytes)?;
        let cells = rows
            .iter()
            .filter_map(|row| cell(&kernel.name, cmdline, &machine, (&rows, row)));
        Ok::<Vec<Cell>, Failure>(cells.collect())
    });
    progress.done();
    let cells = cells?.into_iter().flatten().collect();
    let matrix = Matrix {
        verb: guests.typed_verb(),
        clock: typed.guest.clock().word(),
        cells,
    };
    let page = matrix.page();
    match &typed.output {
        Some(file) => fs::write(file, page).map_err(|error| LabError::File {
            what: "write",
            path: file.clone(),
            why: error.kind().to_string(),
        })?,
        None => terminal.print(&page)?,
    }
    Ok(if matrix.agrees() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// All kernels, before the first is booted: one that is not there should not cost the others' time.
pub(super) fn found(wanted: &[Wanted], progress: &Progress) -> Result<Vec<Kernel>, Failure> {
    let cache = cache()?;
    let mut tell = |words: &str| progress.tell(words.to_owned());
    let found = wanted.iter().map(|one| find(one, &cache, &mut tell));
    let found: Result<Vec<Kernel>, LabError> = found.collect();
    Ok(found?)
}

/// The ways in which a guest paced a loop, and its machine.
fn rows(verb: GuestVerb, bytes: &[u8]) -> Result<(Machine, Vec<PaceVariant>), Failure> {
    if verb == GuestVerb::Comparison {
        let statement: PaceComparison = read(bytes)?;
        return Ok((statement.machine, statement.rows));
    }
    let statement: PaceStatement = read(bytes)?;
    let Subject::Loop(report) = statement.subject else {
        return Ok((statement.machine, Vec::new()));
    };
    let own = statement.cpu.readings.first();
    let row = PaceVariant {
        rate: report.rate,
        work: report.work,
        sleep: report.sleep,
        rule: report.rule,
        turns: 1,
        figures: statement.figures,
        cpu_time: own.map_or(ticktax_model::Nanos::ZERO, |it| it.time),
        elapsed: own.map_or(statement.elapsed, |it| it.elapsed),
        readings: statement.cpu.readings,
        margin: report.margin,
    };
    Ok((statement.machine, vec![row]))
}

/// One loop on one kernel, measured and modelled.
fn cell(
    kernel: &str,
    cmdline: &str,
    machine: &Machine,
    (rows, row): (&[PaceVariant], &PaceVariant),
) -> Option<Cell> {
    let (loops, measured) = conformance::measured(rows, row)?;
    let facts = conformance::Kernel::of(machine);
    Some(Cell {
        kernel: kernel.to_owned(),
        hz: machine.hz_configured,
        cmdline: cmdline.to_owned(),
        loops,
        measured,
        predicted: facts.and_then(|facts| conformance::predict(facts, &loops)),
    })
}
