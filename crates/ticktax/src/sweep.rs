//! `ticktax sweep`: simulates a scenario once for every arm in a grid of settings.

use std::process::ExitCode;

use ticktax_model::Nanos;
use ticktax_predict::sweep::{Begun, Ended, Plan, PlanError, Ran, Sweep, begin, summarize};
use ticktax_store::text;

use crate::arguments::SweepArguments;
use crate::failure::{FAILED_POINTS, Failure};
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::Extent;
use crate::terminal::Terminal;

/// Runs the arms missing from the results, writes the results and prints a summary.
pub(crate) fn run(typed: &SweepArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let html = output::begin_page(typed.html.as_deref())?;
    let plan = plan(typed)?;
    let mut ran = Ran {
        found: plan.grid().len() as u64,
        damaged: 0,
        events: 0,
        took: Nanos::ZERO,
    };
    if let Begun::Ready(mut sweep) = begin(plan.clone(), &typed.results)? {
        ran.found = sweep.found() as u64;
        ran.damaged = sweep.damaged();
        if let Some(code) = arms(&mut sweep, typed, terminal, &mut ran)? {
            return Ok(code);
        }
        sweep.finish()?;
    }
    let summary = summarize(&plan, &typed.results, typed.best.as_deref(), ran)?;
    let failed = summary.arms.iter().any(|arm| arm.excluded.is_some());
    output::put(
        &summary.into(),
        html,
        Output::to_stdout(typed.format),
        terminal,
    )?;
    Ok(if failed {
        ExitCode::from(FAILED_POINTS)
    } else {
        ExitCode::SUCCESS
    })
}

fn plan(typed: &SweepArguments) -> Result<Plan, Failure> {
    let senseless = |error: PlanError| Failure::Arguments(error.to_string());
    let file = typed.scenario.display().to_string();
    let text = text::read(&typed.scenario, "scenario")?;
    let plan = Plan::new(&file, &text, &typed.vary, typed.repeat).map_err(senseless)?;
    if let Some(best) = &typed.best {
        plan.require_numbers(best).map_err(senseless)?;
    }
    Ok(plan)
}

/// Runs the missing arms. Returns `None` when all have run, or an exit code if the sweep was
/// interrupted.
fn arms(
    sweep: &mut Sweep,
    typed: &SweepArguments,
    terminal: &Terminal,
    ran: &mut Ran,
) -> Result<Option<ExitCode>, Failure> {
    let interrupt = Interrupt::listen()?;
    let jobs = typed.jobs.map_or_else(crate::beats::threads, usize::from);
    let arms = sweep.plan().grid().len() as u64;
    let bar = terminal.progress(
        Extent::Arms {
            all: arms,
            done: ran.found,
        },
        "",
    );
    // If the model panics, the results list the arm as failed, so do not print a backtrace.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let ended = sweep.run(jobs, &mut |progress| {
        bar.reach(progress.done as u64);
        interrupt.signal().is_none()
    });
    std::panic::set_hook(print);
    bar.done();
    match ended? {
        Ended::Complete(progress) => {
            ran.events = progress.events;
            ran.took = progress.took;
            Ok(None)
        }
        Ended::Stopped(progress) => {
            terminal.remark(&format!(
                "ticktax: stopped after {} of {arms} arms, which are kept in {}.journal; run \
                 the same command again to resume",
                progress.done,
                typed.results.display()
            ));
            let code = 128 + interrupt.signal().unwrap_or(2);
            Ok(Some(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))))
        }
    }
}
