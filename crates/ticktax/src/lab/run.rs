//! `ticktax lab run`: a verb in a guest, and what it recorded there reported as if it had been here.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ticktax_lab::kernel::{Kernel, find_for};
use ticktax_lab::qemu::{GuestSettings, Outcome};
use ticktax_lab::wire::Frame;
use ticktax_lab::{Arch, LabError, Program, Run, guest};
use ticktax_store::disk::{Folder, Temporary, write_output};

use super::cache;
use crate::arguments::{FileArguments, GuestArguments, GuestVerb, RunArguments};
use crate::failure::{Failure, UNBALANCED};
use crate::interrupt::Interrupt;
use crate::output;
use crate::part::Selection;
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
        let program = program(kernel.arch, self.typed.binary.as_deref())?;
        let (programs, beside) = beside(&self.typed.beside)?;
        let run = Run {
            kernel,
            program: &program,
            arguments: self.arguments,
            programs: &programs,
            beside: &beside,
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
        let mut tell = |stage| progress.tell(&format!("{}: {stage}", guest.trim_end()));
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
    let mut tell = |words: &str| progress.tell(words);
    let kernel = find_for(&typed.kernel, typed.guest.arch, &cache, &mut tell)?;
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
        write_output(file, recorded).map_err(|error| cannot("write", file, &error))?;
    }
    if let Some(folder) = &typed.keep {
        keep(folder, &outcome.files)?;
    }
    let showing = Showing {
        audit: false,
        fleet_of: None,
        format: typed.print.format,
        output: typed.output.as_deref(),
        files: &FileArguments::of_page(typed.html.as_deref()),
        threads: crate::beats::threads(),
        selection: Selection::default(),
    };
    report::show(
        outcome.recording()?,
        showing,
        &terminal.grouping(&typed.print.view),
    )
}

/// The programs that were typed, as the guest has them, and what runs there.
fn beside(typed: &[String]) -> Result<(Vec<Program>, Vec<Vec<String>>), Failure> {
    let mut programs: Vec<Program> = Vec::new();
    let mut jobs = Vec::new();
    for line in typed {
        let mut words = line.split_whitespace();
        let file = PathBuf::from(words.next().unwrap_or_default());
        let Some(name) = file.file_name().and_then(|name| name.to_str()) else {
            let why = format!("--beside '{line}' names no program: give its file first");
            return Err(Failure::Arguments(why));
        };
        let arguments = words.map(str::to_owned);
        jobs.push([name.to_owned()].into_iter().chain(arguments).collect());
        if programs.iter().all(|program| program.name != name) {
            programs.push(Program {
                name: name.to_owned(),
                file,
                libraries: None,
            });
        }
    }
    Ok((programs, jobs))
}

/// Writes all files of the guest into a folder. The guest chose their names: one that is a path is
/// refused.
fn keep(path: &Path, files: &[Frame]) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| cannot("make", path, &error))?;
    let folder = Folder::open(path).map_err(|error| cannot("open", path, &error))?;
    for file in files {
        put(&folder, file).map_err(|error| cannot("write", &path.join(&file.name), &error))?;
    }
    Ok(())
}

/// Writes a file of the guest. It replaces a file of the same name.
fn put(folder: &Folder, file: &Frame) -> io::Result<()> {
    let temporary = Temporary::in_folder(folder.try_clone()?, OsStr::new(&file.name), 0o666)?;
    temporary.handle()?.write_all(&file.contents)?;
    temporary.appear()
}

/// The command for a guest of `arch`: this one, or, for another architecture, what was given or built.
fn program(arch: Arch, given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let own = std::env::current_exe()
        .map_err(|error| cannot("find", Path::new("ticktax's own binary"), &error))?;
    if arch == Arch::HOST {
        return Ok(own);
    }
    // `target/PROFILE/ticktax`, and `target/TRIPLE/PROFILE/ticktax`.
    let built = own
        .ancestors()
        .nth(2)
        .map(|target| target.join(arch.target()));
    let profiles = ["dist", "release", "debug"];
    let all = built
        .iter()
        .flat_map(|folder| profiles.map(|profile| folder.join(profile)));
    let newest = all.map(|folder| folder.join("ticktax")).max_by_key(|file| {
        let metadata = fs::metadata(file);
        metadata.and_then(|found| found.modified()).ok()
    });
    newest.filter(|file| file.is_file()).ok_or_else(|| {
        let why = format!(
            "no ticktax for guests of {arch} beside this one: build it by `cargo xtask cross \
             {arch}` in the project's folder, or give one with --binary FILE"
        );
        Failure::Arguments(why)
    })
}

/// The failure to do `what` with a file.
pub(super) fn cannot(what: &'static str, file: &Path, error: &std::io::Error) -> Failure {
    LabError::of_file(what, file, error).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_of_a_guest_stay_in_their_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("kept");
        let victim = place.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        fs::create_dir(&folder).unwrap();
        symlink(&victim, folder.join("console")).unwrap();
        let frame = |name: &str| Frame::new(name, b"guest".to_vec());
        keep(&folder, &[frame("console")]).unwrap();
        assert_eq!(fs::read(folder.join("console")).unwrap(), b"guest");
        let absolute = victim.display().to_string();
        for name in ["../victim", &absolute, "..", ""] {
            let refused = keep(&folder, &[frame(name)]).unwrap_err().to_string();
            assert!(refused.contains("not allowed"), "{refused}");
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }
}
