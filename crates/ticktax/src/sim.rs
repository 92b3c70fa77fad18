//! `ticktax sim`: what a recorded machine, or a scenario, would do under other settings.

mod judge;
mod load;

use std::process::ExitCode;

use ticktax_experiment::whatif::{self, Pacing, Plan, WhatIfError};
use ticktax_model::Nanos;
use ticktax_model::pace::{PaceRule, SleepMethod};
use ticktax_model::prediction::PredictionStatement;
use ticktax_model::recording::RecordingWriter;
use ticktax_sim::{Setup, TaskId};

use self::load::Loaded;
use crate::arguments::{LoopVariants, Rate, SimArguments};
use crate::failure::Failure;
use crate::terminal::{self, Terminal};

/// What the model has no part for, and may matter to a prediction.
const LEFT_OUT: [&str; 5] = [
    "getting into and out of the kernel around a handler, which in a virtual machine can take \
     longer than the handler",
    "what it costs to wake a task on another CPU, and balancing beyond taking from the longest queue",
    "ticks that a kernel lets go on in short idling, because stopping them would not pay",
    "caches, frequencies and idle states: a burst takes as long as it did",
    "ticktax's own threads",
];

/// Runs the verb.
pub(crate) fn run(typed: &SimArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    // Before anything is run: a file that cannot be made should not cost a minute's wait.
    if let Some(output) = &typed.output {
        terminal::require_writable(output)?;
    }
    let file = typed
        .save
        .as_ref()
        .map(RecordingWriter::create)
        .transpose()?;
    let loaded = load::load(typed)?;
    let plan = plan(typed, &loaded)?;
    let progress = terminal.progress(Some(plan.length), "Predicting".to_owned(), false);
    let mut last: Option<(usize, Setup, Option<TaskId>)> = None;
    let mut judge = |run: &whatif::Run<'_>| {
        if file.is_some() && last.as_ref().is_none_or(|last| last.0 != run.place.0) {
            last = Some((run.place.0, run.setup.clone(), run.task));
        }
        judge::judge(run, loaded.asked_for)
    };
    let mut rows = plan
        .predict(&mut judge, &mut |done, all| {
            let share = done as f64 / all.max(1) as f64;
            #[expect(clippy::cast_possible_truncation, reason = "a part of a time")]
            progress.at(Nanos((plan.length.0 as f64 * share) as i64));
        })
        .map_err(|error| refused(&error))?;
    progress.done();
    rows.splice(0..0, loaded.row);
    let statement = PredictionStatement {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        load: typed.load.display().to_string(),
        recorded: loaded.machine.is_some(),
        machine: loaded.machine,
        program: loaded.program,
        length: plan.length,
        runs: plan.runs,
        coverage: whatif::coverage(plan.runs),
        seed: plan.seed,
        rows,
        taken: loaded.taken,
        assumed: loaded.assumed,
        left_out: LEFT_OUT.map(str::to_owned).to_vec(),
    };
    terminal.put(&statement.into(), typed.format, typed.output.as_deref())?;
    if let (Some(file), Some(path), Some((_, setup, task))) = (file, &typed.save, &last) {
        judge::save(setup, *task, file)?;
        terminal.remark(&format!(
            "Saved as {0}; `ticktax report {0}` prints what the model did.",
            path.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// What is to be run.
fn plan(typed: &SimArguments, loaded: &Loaded) -> Result<Plan, Failure> {
    let (variants, vary) = typed.varied()?;
    let pacings = pacings(&variants);
    if !pacings.is_empty() && !loaded.is_paced {
        return Err(Failure::Arguments(if loaded.machine.is_some() {
            "rate, rule and sleep need a program with a rhythm, and this recording has none"
                .to_owned()
        } else {
            "rate, rule and sleep are for recordings: in a scenario, vary the task's own steps, \
             task.NAME.…"
                .to_owned()
        }));
    }
    Ok(Plan {
        load: loaded.load.clone(),
        vary,
        pacings,
        runs: typed.resample,
        seed: typed.seed,
        length: typed.length.map_or(loaded.length, |length| length.0),
    })
}

/// All combinations of the ways of pacing that were asked for.
fn pacings(variants: &LoopVariants) -> Vec<Pacing> {
    if variants.is_empty() {
        return Vec::new();
    }
    let rates = or_none(&variants.rates);
    let (rules, sleeps) = (or_none(&variants.rules), or_none(&variants.sleeps));
    let all = |rate: &Option<Rate>| -> Vec<Pacing> {
        let rate = rate.map(|rate| rate.0);
        let with = |rule: &Option<PaceRule>| -> Vec<Pacing> {
            let way = |sleep: &Option<SleepMethod>| Pacing {
                rate,
                rule: *rule,
                sleep: *sleep,
            };
            sleeps.iter().map(way).collect()
        };
        rules.iter().flat_map(with).collect()
    };
    rates.iter().flat_map(all).collect()
}

/// The values of a list; of an empty one, what it was.
fn or_none<T: Copy>(list: &[T]) -> Vec<Option<T>> {
    if list.is_empty() {
        return vec![None];
    }
    list.iter().copied().map(Some).collect()
}

/// A line for what was refused: what was typed, or what the file holds.
fn refused(error: &WhatIfError) -> Failure {
    match error {
        WhatIfError::Axis(_) | WhatIfError::Point(_) => Failure::Arguments(error.to_string()),
        WhatIfError::Setup(_) => Failure::Prediction(error.to_string()),
    }
}
