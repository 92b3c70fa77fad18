//! A case's programs in a guest: each a thread, for as long as it was told.

use std::process::ExitCode;

use ticktax_experiment::replay::replay_here;
use ticktax_host::Proc;
use ticktax_model::recording::World;
use ticktax_store::recording::RecordingWriter;

use crate::arguments::ReplayArguments;
use crate::case;
use crate::failure::Failure;

/// Performs, and leaves a recording.
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
    let file = RecordingWriter::create(&typed.save)?;
    let header = replay_here(&tasks, typed.length.0)
        .map_err(|why| Failure::Case(format!("a program cannot be performed: {why}")))?;
    file.finish(&header)?;
    Ok(ExitCode::SUCCESS)
}
