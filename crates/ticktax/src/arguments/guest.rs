//! What was typed after `--` for a guest.

use std::ffi::OsString;

use clap::Parser;
use clap::error::ErrorKind;
use ticktax_report::Format;

use super::{Arguments, PageArguments, Verb, ViewArguments};
use crate::failure::Failure;

/// A verb that a guest can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestVerb {
    Audit,
    Pace,
}

impl GuestVerb {
    /// What was typed, checked before anything is booted.
    pub(crate) fn of(typed: &[OsString]) -> Result<Self, Failure> {
        let wrong = |why: &str| Err(Failure::Arguments(why.to_owned()));
        let whole = [OsString::from("ticktax")];
        let parsed = Arguments::try_parse_from(whole.iter().chain(typed));
        let parsed = parsed.map_err(|error| {
            if error.kind() == ErrorKind::DisplayHelp {
                let why =
                    "help is not the guest's to give: ask `ticktax help`, or `ticktax pace --help`";
                return Failure::Arguments(why.to_owned());
            }
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            Failure::Arguments(format!(
                "for the guest: {}",
                line.trim_start_matches("error: ")
            ))
        })?;
        let outside = "--save, --output, --html, --format, --section and --full belong before the --: the guest has \
             no files";
        let alone = "the guest has no other programs to watch";
        match parsed.verb {
            Verb::Audit(audit) if !audit.files.is_empty() || audit.output.is_some() => {
                wrong(outside)
            }
            Verb::Audit(audit)
                if audit.statement.print.format != Format::default()
                    || audit.statement.print.view != ViewArguments::default() =>
            {
                wrong(outside)
            }
            Verb::Audit(audit) if audit.watches_a_program() => wrong(alone),
            Verb::Audit(_) => Ok(Self::Audit),
            Verb::Pace(pace)
                if !pace.files.is_empty()
                    || pace.output.is_some()
                    || pace.format != Format::default()
                    || pace.page != PageArguments::default() =>
            {
                wrong(outside)
            }
            Verb::Pace(pace) if pace.pid.is_some() => wrong(alone),
            Verb::Pace(pace) => pace.variants().map(|_| Self::Pace),
            _ => wrong("a guest can run audit and pace"),
        }
    }
}
