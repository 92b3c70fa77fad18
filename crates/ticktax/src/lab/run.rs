//! `ticktax lab run`: a verb in a guest, and what it recorded there reported as if it had been here.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use ticktax_analysis::RecordingAnalysis;
use ticktax_lab::kernel::{Kernel, find};
use ticktax_lab::qemu::{Outcome, Stage};
use ticktax_lab::{LabError, Run};
use ticktax_model::document::Document;
use ticktax_model::recording::{Header, RecordingReader, RowSink};
use ticktax_report::Format;

use super::cache;
use crate::arguments::{
    Arguments, FileArguments, GuestArguments, PageArguments, RunArguments, Verb, ViewArguments,
};
use crate::failure::{Failure, UNBALANCED};
use crate::interrupt::Interrupt;
use crate::report::{self, Showing};
use crate::terminal::{Progress, Terminal, require_writable};

/// What a verb leaves behind in the guest.
pub(super) const RECORDING: &str = "recording.parquet";
/// Where the guest's own page goes, which is not sent: it is made here.
const PAGE: &str = "/tmp/page";

/// A verb that a guest can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GuestVerb {
    Audit,
    Pace,
}

impl GuestVerb {
    /// What was typed, checked before anything is booted.
    pub(super) fn of(typed: &[OsString]) -> Result<Self, Failure> {
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
        let outside = "--save, --output, --format, --section and --full belong before the --: the guest has no \
             files";
        let alone = "the guest has no other programs to watch";
        match parsed.verb {
            Verb::Audit(audit) if !audit.files.is_empty() || audit.output.is_some() => {
                wrong(outside)
            }
            Verb::Audit(audit)
                if audit.format != Format::default() || audit.view != ViewArguments::default() =>
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

/// What is to be added so that a verb leaves its recording in the guest's folder.
const RESULTS: [&str; 4] = ["--save", RECORDING, "--output", PAGE];

/// The recording that a guest left behind.
pub(super) fn recording(outcome: &Outcome) -> Result<&[u8], Failure> {
    let missing = || LabError::NoResult(format!("it wrote no {RECORDING}"));
    Ok(outcome.file(RECORDING).ok_or_else(missing)?)
}

/// What the guests of one command have in common.
pub(super) struct Guests<'a> {
    pub(super) typed: &'a GuestArguments,
    pub(super) verb: GuestVerb,
    pub(super) arguments: Vec<String>,
    pub(super) interrupt: &'a Interrupt,
}

impl<'a> Guests<'a> {
    pub(super) fn new(
        typed: &'a GuestArguments,
        verb: &[OsString],
        interrupt: &'a Interrupt,
    ) -> Result<Self, Failure> {
        let which = GuestVerb::of(verb)?;
        let words = verb.iter().map(|word| word.to_string_lossy().into_owned());
        let results = RESULTS.map(str::to_owned);
        Ok(Self {
            typed,
            verb: which,
            arguments: words.chain(results).collect(),
            interrupt,
        })
    }

    /// One of them.
    pub(super) fn guest(&self) -> Guest<'_> {
        Guest {
            typed: self.typed,
            arguments: &self.arguments,
            counted: false,
            accepted: match self.verb {
                GuestVerb::Audit => &[UNBALANCED],
                GuestVerb::Pace => &[],
            },
            interrupt: self.interrupt,
        }
    }

    /// What was typed after `--`.
    pub(super) fn typed_verb(&self) -> String {
        self.arguments[..self.arguments.len() - RESULTS.len()].join(" ")
    }
}

/// One guest, whatever runs in it.
pub(super) struct Guest<'a> {
    pub(super) typed: &'a GuestArguments,
    /// For ticktax in the guest.
    pub(super) arguments: &'a [String],
    /// Whether its instructions are counted.
    pub(super) counted: bool,
    /// Exit codes with a result beside 0: an audit whose books do not balance has one all the same.
    pub(super) accepted: &'static [u8],
    pub(super) interrupt: &'a Interrupt,
}

impl Guest<'_> {
    /// Boots it, and brings back what it wrote. It is ended where `is_over` says so, as it is by
    /// Ctrl-C.
    pub(super) fn boot(
        &self,
        kernel: &Kernel,
        cmdline: &str,
        console: Option<&Path>,
        is_over: &dyn Fn() -> bool,
        progress: &Progress,
    ) -> Result<Outcome, Failure> {
        let program = std::env::current_exe().map_err(|error| LabError::File {
            what: "find",
            path: "ticktax's own binary".into(),
            why: error.kind().to_string(),
        })?;
        let run = Run {
            kernel,
            program: &program,
            arguments: self.arguments,
            programs: &[],
            cmdline,
            cpus: self.typed.smp,
            memory: self.typed.memory,
            clock: self.typed.clock(),
            limit: Duration::from_nanos(self.typed.limit.0.0.unsigned_abs()),
            scratch: &std::env::temp_dir(),
            count: self.counted,
            console,
        };
        let stop = || self.interrupt.signal().is_some() || is_over();
        let words = |stage| match stage {
            Stage::Boots => "boots".to_owned(),
            Stage::Runs => "runs".to_owned(),
            Stage::Sends(bytes) => format!("{bytes} bytes have come"),
        };
        let mut tell = |stage| {
            let guest = format!("{} {cmdline}", kernel.name);
            progress.tell(format!("{}: {}", guest.trim_end(), words(stage)));
        };
        let outcome = run.start(&stop, &mut tell)?;
        let accepted = u8::try_from(outcome.exit).is_ok_and(|code| self.accepted.contains(&code));
        if outcome.exit != 0 && !accepted {
            let complaint = outcome.complaint();
            let why = complaint.trim_start_matches("ticktax: ").to_owned();
            return Err(LabError::NoResult(why).into());
        }
        Ok(outcome)
    }
}

/// Runs the verb in a guest, and prints what came of it.
pub(super) fn run(typed: &RunArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    for file in [&typed.save, &typed.output, &typed.console]
        .into_iter()
        .flatten()
    {
        require_writable(file)?;
    }
    let interrupt = Interrupt::listen()?;
    let guests = Guests::new(&typed.guest, &typed.verb, &interrupt)?;
    let progress = terminal.task("looking for the kernel".to_owned());
    let cache = cache()?;
    let mut tell = |words: &str| progress.tell(words.to_owned());
    let kernel = find(&typed.kernel, &cache, &mut tell)?;
    let outcome = guests.guest().boot(
        &kernel,
        &typed.cmdline,
        typed.console.as_deref(),
        &|| false,
        &progress,
    );
    progress.done();
    let outcome = outcome?;
    let result = recording(&outcome)?;
    if let Some(file) = &typed.save {
        fs::write(file, result).map_err(|error| cannot("write", file, &error))?;
    }
    show_recording(result, typed, terminal)
}

/// The statement of a recording that came from a guest.
fn show_recording(
    bytes: &[u8],
    typed: &RunArguments,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
    let showing = Showing {
        audit: false,
        fleet_of: None,
        format: typed.format,
        output: typed.output.as_deref(),
        files: &FileArguments::default(),
    };
    let terminal = terminal.grouping(&typed.view);
    with_file(bytes, |file| report::show(file, &showing, &terminal))
}

/// The document of a recording that came from a guest.
pub(super) fn document(bytes: &[u8]) -> Result<Document, Failure> {
    with_file(bytes, |file| {
        let mut recording = RecordingReader::open(file)?;
        let mut analysis = RecordingAnalysis::new(recording.header());
        let sources = recording.replay(&mut |sources, row| analysis.row(sources, row))?;
        Ok(analysis.finish(recording.header(), &sources, 1))
    })
}

/// Does something with a recording that came as bytes.
fn with_file<T>(
    bytes: &[u8],
    what: impl FnOnce(&Path) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let file = tempfile::Builder::new()
        .prefix("ticktax-lab-")
        .suffix(".parquet")
        .tempfile()
        .map_err(|error| cannot("make a file in", &std::env::temp_dir(), &error))?;
    fs::write(file.path(), bytes).map_err(|error| cannot("write", file.path(), &error))?;
    what(file.path())
}

/// The header of a recording that came from a guest.
pub(super) fn header(bytes: &[u8]) -> Result<Header, Failure> {
    with_file(bytes, |file| {
        Ok(RecordingReader::open(file)?.header().clone())
    })
}

/// The failure to do `what` with a file.
pub(super) fn cannot(what: &'static str, file: &Path, error: &std::io::Error) -> Failure {
    LabError::of_file(what, file, error).into()
}
