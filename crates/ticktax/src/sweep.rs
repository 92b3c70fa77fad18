//! `ticktax sweep`: a scenario at every point of a grid.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::thread::available_parallelism;

use ticktax_experiment::sweep::{Begun, Ended, Plan, Progress, Sweep, SweepError, begin, read};
use ticktax_model::Nanos;
use ticktax_model::disk;
use ticktax_model::sweep::GridStatement;
use ticktax_model::table::Values;
use ticktax_probes::clock::now;

use crate::arguments::SweepArguments;
use crate::failure::{FAILED_POINTS, Failure};
use crate::interrupt::Interrupt;
use crate::terminal::Terminal;

/// Runs what is not finished, writes the results, and says what came of it.
pub(crate) fn run(typed: &SweepArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let plan = plan(typed)?;
    let mut statement = GridStatement {
        scenario: plan.file().to_owned(),
        axes: axes(&plan),
        points: plan.grid().len() as u64,
        found: plan.grid().len() as u64,
        damaged: 0,
        failed: 0,
        failures: Vec::new(),
        events: 0,
        took: Nanos::ZERO,
        results: typed.results.display().to_string(),
        ranking: None,
    };
    let again = plan.clone();
    if let Begun::Ready(mut sweep) = begin(plan, &typed.results)? {
        statement.found = sweep.found() as u64;
        statement.damaged = sweep.damaged();
        if let Some(code) = points(&mut sweep, typed, terminal, &mut statement)? {
            return Ok(code);
        }
        sweep.finish()?;
    }
    let found = read(&typed.results, &again, typed.best.as_deref()).map_err(SweepError::from)?;
    statement.failed = found.failed;
    statement.failures = found.failures;
    statement.ranking = found.ranking;
    let failed = statement.failed > 0;
    terminal.put(&statement.into(), typed.format, None)?;
    Ok(if failed {
        ExitCode::from(FAILED_POINTS)
    } else {
        ExitCode::SUCCESS
    })
}

fn plan(typed: &SweepArguments) -> Result<Plan, Failure> {
    let file = typed.scenario.display().to_string();
    let text = text(&typed.scenario)?;
    let plan = Plan::new(&file, &text, &typed.vary, typed.repeat)
        .map_err(|error| Failure::Arguments(error.to_string()))?;
    let Some(best) = &typed.best else {
        return Ok(plan);
    };
    let mut numbers = plan
        .columns()
        .iter()
        .filter(|it| it.values != Values::Texts);
    if numbers.clone().any(|column| column.name == *best) {
        return Ok(plan);
    }
    let names: Vec<&str> = numbers.by_ref().map(|it| it.name.as_str()).collect();
    Err(Failure::Arguments(format!(
        "no numeric column `{best}`; known: {}",
        names.join(", ")
    )))
}

fn text(scenario: &Path) -> Result<String, Failure> {
    fs::read_to_string(scenario).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
            kind => disk::words(kind),
        };
        Failure::Scenario(format!(
            "cannot read the scenario {}: {why}",
            scenario.display()
        ))
    })
}

fn axes(plan: &Plan) -> Vec<(String, u64)> {
    let axes = plan.grid().axes().iter();
    let count = |len| u64::try_from(len).unwrap_or(u64::MAX);
    axes.map(|axis| (axis.name().to_owned(), count(axis.len())))
        .collect()
}

/// Runs the points; the code to end with, where it was interrupted.
fn points(
    sweep: &mut Sweep,
    typed: &SweepArguments,
    terminal: &Terminal,
    statement: &mut GridStatement,
) -> Result<Option<ExitCode>, Failure> {
    let interrupt = Interrupt::listen()?;
    let jobs = match typed.jobs {
        Some(jobs) => jobs.into(),
        None => available_parallelism().map_or(1, std::num::NonZero::get),
    };
    let bar = terminal.count(statement.points, statement.found);
    // A point that breaks the model is told with the others; its trace is for nobody.
    std::panic::set_hook(Box::new(|_| {}));
    let began = now();
    let ended = sweep.run(jobs, &mut |Progress { done, .. }| {
        bar.reach(done as u64);
        interrupt.signal().is_none()
    });
    drop(std::panic::take_hook());
    bar.done();
    match ended? {
        Ended::Complete(progress) => {
            statement.events = progress.events;
            statement.took = now() - began;
            Ok(None)
        }
        Ended::Stopped(progress) => {
            let signal = interrupt.signal().unwrap_or(2);
            terminal.remark(&format!(
                "ticktax: stopped with {} of {} points finished; they are kept in {}.journal, and \
                 the same command goes on from there",
                progress.done, statement.points, statement.results
            ));
            let code = u8::try_from(128 + signal).unwrap_or(u8::MAX);
            Ok(Some(ExitCode::from(code)))
        }
    }
}
