//! Checks the verb that a lab guest will run, as typed after `--`.

use std::ffi::OsString;

use clap::Parser;
use clap::error::ErrorKind;
use ticktax_report::Format;

use super::{Arguments, PageArguments, Verb, ViewArguments};
use crate::failure::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestVerb {
    Audit,
    Pace,
}

impl GuestVerb {
    /// Parses the verb and rejects arguments that don't work in a guest. Call this before a guest
    /// boots.
    pub(crate) fn parse(typed: &[OsString]) -> Result<Self, Failure> {
        let invalid = |why: &str| Err(Failure::Arguments(why.to_owned()));
        let program = [OsString::from("ticktax")];
        let parsed = Arguments::try_parse_from(program.iter().chain(typed));
        let parsed = parsed.map_err(|error| {
            if error.kind() == ErrorKind::DisplayHelp {
                let why =
                    "cannot run --help in the guest: use `ticktax help` or `ticktax pace --help`";
                return Failure::Arguments(why.to_owned());
            }
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            let line = line.trim_start_matches("error: ");
            let hint = match error.kind() {
                ErrorKind::InvalidSubcommand => "; choose audit or pace",
                _ => "",
            };
            Failure::Arguments(format!("cannot run this in the guest: {line}{hint}"))
        })?;
        let output_option = "the guest cannot write files: put --save, --output, --html, --format, \
             --section and --full before `--`";
        let no_programs = "cannot watch a program in the guest, which runs no other programs: drop \
             --pid, --comm, --cgroup or the \
             command";
        match parsed.verb {
            Verb::Audit(audit) if !audit.files.is_empty() || audit.output.is_some() => {
                invalid(output_option)
            }
            Verb::Audit(audit)
                if audit.statement.print.format != Format::default()
                    || audit.statement.print.view != ViewArguments::default() =>
            {
                invalid(output_option)
            }
            Verb::Audit(audit) if audit.watches_a_program() => invalid(no_programs),
            Verb::Audit(_) => Ok(Self::Audit),
            Verb::Pace(pace)
                if !pace.files.is_empty()
                    || pace.output.is_some()
                    || pace.format != Format::default()
                    || pace.page != PageArguments::default() =>
            {
                invalid(output_option)
            }
            Verb::Pace(pace) if pace.pid.is_some() || pace.comm.is_some() => invalid(no_programs),
            Verb::Pace(pace) => pace.arms().map(|_| Self::Pace),
            _ => invalid("the guest can only run `audit` and `pace`"),
        }
    }
}
