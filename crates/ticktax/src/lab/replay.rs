//! A case's programs in a guest: each a thread, for as long as it was told.

use std::fs;
use std::process::ExitCode;

use ticktax_experiment::replay::replay_here;
use ticktax_host::Proc;
use ticktax_model::recording::World;

use super::run::cannot;
use crate::arguments::ReplayArguments;
use crate::case;
use crate::failure::Failure;

/// Performs, and leaves what came of it in a file.
pub(crate) fn run(typed: &ReplayArguments) -> Result<ExitCode, Failure> {
    if ticktax_host::world(&Proc::default().machine()).0 != World::Lab {
        let why = "lab-replay is for a lab's guests alone; see `ticktax lab compare --help`";
        return Err(Failure::Arguments(why.to_owned()));
    }
    let case = case::named(&typed.case)?;
    let tasks = if typed.idle {
        Vec::new()
    } else {
        case.programs(&case::read(case)?.values())
    };
    let replay = replay_here(&tasks, typed.length.0)
        .map_err(|why| Failure::Case(format!("a program cannot be performed: {why}")))?;
    let text = serde_json::to_string(&replay).map_err(|error| {
        Failure::Case(format!("the replay's result cannot be written: {error}"))
    })?;
    fs::write(&typed.output, text).map_err(|error| cannot("write", &typed.output, &error))?;
    Ok(ExitCode::SUCCESS)
}
