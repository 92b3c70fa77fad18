//! `ticktax`: audits CPU time on Linux.
//!
//! Arguments are processed in two stages: [`arguments`] parses the command line, and then each verb
//! turns the arguments into a plan before anything starts. Only this crate prints, uses colours and
//! sets exit codes.

mod agent;
mod arguments;
mod audit;
mod beats;
mod budget;
mod case;
mod changes;
mod clock;
mod failure;
mod files;
mod incidents;
mod interrupt;
mod knob;
mod lab;
mod manual;
mod mem;
mod net;
mod output;
mod pace;
mod part;
mod process_limits;
mod progress;
mod record;
mod report;
mod sim;
mod socket;
mod state;
mod storage;
mod sweep;
mod terminal;
mod trial;
mod wall_clock;
mod watch;

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Parser;
use ticktax_observe::HeadStart;

use crate::arguments::{Arguments, Verb};
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Prints the requested help, or an error about the arguments. The error quotes what the user
/// typed, so it is escaped like any other untrusted text.
fn report_usage(error: &clap::Error, terminal: &Terminal) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    let styled = error.render();
    let is_coloured = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let text = if is_coloured {
        styled.ansi().to_string()
    } else {
        styled.to_string()
    };
    terminal.usage(text.trim_end());
    ExitCode::from(2)
}

/// Raises this thread's priority before it parses the arguments, if the verb traces from the start.
/// The priority must not be raised for verbs that measure with this thread.
fn head_start() -> HeadStart {
    match std::env::args_os()
        .nth(1)
        .as_deref()
        .and_then(OsStr::to_str)
    {
        Some("agent" | "audit" | "record") => HeadStart::take(),
        _ => HeadStart::default(),
    }
}

fn main() -> ExitCode {
    let head_start = head_start();
    // A shell requests completions through the environment.
    clap_complete::CompleteEnv::with_factory(Arguments::completable).complete();
    process_limits::exit_on_abort();
    failure::hide_caught_panics();
    let terminal = Terminal::detect();
    if let Err(failure) = process_limits::require_stack() {
        terminal.complain(&failure);
        return failure.exit_code();
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return report_usage(&error, &terminal),
    };
    if let Err(failure) = process_limits::prepare(&arguments.verb) {
        terminal.complain(&failure);
        return failure.exit_code();
    }
    let result = match arguments.verb {
        Verb::Agent(typed) => agent::run(&typed, head_start, &terminal),
        Verb::Audit(typed) => audit::run(&typed, head_start, &terminal),
        Verb::Beats(typed) => beats::run(&typed, &terminal),
        Verb::Compare(typed) => changes::run(&typed, &terminal),
        Verb::Case { question } => case::run(&question, &terminal),
        Verb::Clock(typed) => clock::run(&typed, &terminal),
        Verb::Record(typed) => record::run(&typed, head_start, &terminal),
        Verb::Report(typed) => report::run(&typed, &terminal),
        Verb::Incidents(typed) => incidents::run(&typed, &terminal),
        Verb::Mark(typed) => incidents::mark(&typed),
        Verb::Storage(typed) => storage::run(&typed, &terminal),
        Verb::Mem(typed) => mem::run(&typed, &terminal),
        Verb::Net { task } => net::run(&task, &terminal),
        Verb::Pace(typed) => pace::run(&typed, &terminal),
        Verb::Sweep(typed) => sweep::run(&typed, &terminal),
        Verb::Sim(typed) => sim::run(&typed, &terminal),
        Verb::Knob { question } => knob::run(&question, &terminal),
        Verb::Undo(typed) => knob::undo(&typed, &terminal),
        Verb::Try(typed) => trial::run(&typed, &terminal),
        Verb::TryStart(typed) => trial::start(&typed),
        Verb::TryWatchdog(typed) => trial::stand_by(&typed, &terminal),
        Verb::Lab { task } => lab::run(&task, &terminal),
        Verb::LabGuest => lab::guest(),
        Verb::LabReplay(typed) => lab::replay(&typed),
        Verb::Schema { of } => terminal
            .print(&manual::schema(of))
            .map(|()| ExitCode::SUCCESS),
        Verb::Man { verb, folder } => manual::put(&verb, folder.as_deref(), &terminal),
        Verb::Completions { shell } => terminal
            .print(&manual::completions(shell))
            .map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|failure: Failure| {
        terminal.complain(&failure);
        failure.exit_code()
    })
}
