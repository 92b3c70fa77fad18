//! `ticktax lab run`: a verb in a guest, and what it recorded there reported as if it had been here.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ticktax_lab::kernel::{Kernel, find};
use ticktax_lab::qemu::{GuestSettings, Outcome};
use ticktax_lab::{LabError, Run, guest};

use super::cache;
use crate::arguments::{FileArguments, GuestArguments, GuestVerb, RunArguments};
use crate::failure::{Failure, UNBALANCED};
use crate::interrupt::Interrupt;
use crate::output;
use crate::progress::{Extent, Progress};
use crate::report::{self, Showing};
use crate::terminal::{Terminal, require_writable};

/// Where the guest's own page goes, which is not sent: it is made here.
const PAGE: &str = "/tmp/page";

/// What is to be added so that a verb leaves its recording in the guest's folder.
const RESULTS: [&str; 4] = ["--save", guest::RECORDING, "--output", PAGE];

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
        let program = std::env::current_exe()
            .map_err(|error| cannot("find", Path::new("ticktax's own binary"), &error))?;
        let run = Run {
            kernel,
            program: &program,
            arguments: self.arguments,
            programs: &[],
            accepted: self.accepted,
            settings: GuestSettings {
                cmdline,
                cpus: self.typed.smp,
                memory: self.typed.memory,
                clock: self.typed.clock(),
                limit: Duration::from_nanos(self.typed.limit.0.0.unsigned_abs()),
                count: self.counted,
            },
            scratch: &std::env::temp_dir(),
            console,
        };
        let stop = || self.interrupt.signal().is_some() || is_over();
        let guest = format!("{} {cmdline}", kernel.name);
        let mut tell = |stage| progress.tell(format!("{}: {stage}", guest.trim_end()));
        Ok(run.start(&stop, &mut tell)?)
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
    // A page that cannot be made should not cost a guest's time; it is begun anew below.
    drop(output::begin_page(typed.html.as_deref())?);
    let interrupt = Interrupt::listen()?;
    let guests = Guests::new(&typed.guest, &typed.verb, &interrupt)?;
    let progress = terminal.progress(Extent::Unknown, "looking for the kernel");
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
    if let (Some(file), Some(recorded)) = (&typed.save, outcome.file(guest::RECORDING)) {
        fs::write(file, recorded).map_err(|error| cannot("write", file, &error))?;
    }
    let showing = Showing {
        audit: false,
        fleet_of: None,
        format: typed.print.format,
        output: typed.output.as_deref(),
        files: &FileArguments::of_page(typed.html.as_deref()),
        part: None,
    };
    report::show(
        outcome.recording()?,
        &showing,
        &terminal.grouping(&typed.print.view),
    )
}

/// The failure to do `what` with a file.
pub(super) fn cannot(what: &'static str, file: &Path, error: &std::io::Error) -> Failure {
    LabError::of_file(what, file, error).into()
}
