//! Runs the programs in a case in a lab guest for a given time, with one thread per program.

use std::process::ExitCode;

use ticktax_casebook::replay::replay_here;
use ticktax_host::Proc;
use ticktax_model::recording::World;
use ticktax_store::recording::RecordingWriter;

use crate::arguments::ReplayArguments;
use crate::case;
use crate::failure::Failure;

pub(crate) fn run(typed: &ReplayArguments) -> Result<ExitCode, Failure> {
    if ticktax_host::world(&Proc::default().machine()).0 != World::Lab {
        let why = "lab-replay only runs in lab guests: see `ticktax lab compare --help`";
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
        .map_err(|why| Failure::Case(format!("cannot run a program of the case: {why}")))?;
    file.finish(&header)?;
    Ok(ExitCode::SUCCESS)
}
