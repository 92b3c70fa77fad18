//! `ticktax lab run`: runs a verb in a guest, and reports the guest's recording on the host.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ticktax_lab::kernel::{Kernel, find_for};
use ticktax_lab::qemu::{GuestSettings, Outcome};
use ticktax_lab::wire::Frame;
use ticktax_lab::{Arch, GuestRun, LabError, Program, guest};
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

/// File in the guest for the text that the verb prints. It is not sent to the host, because the
/// host renders the recording itself.
const PAGE: &str = "/tmp/page";

/// Arguments that make the verb save its recording in the guest directory whose files are sent to
/// the host.
const RESULTS: [&str; 4] = ["--save", guest::RECORDING, "--output", PAGE];

/// Settings shared by all guests that a command boots.
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
        let which = GuestVerb::parse(verb)?;
        let words = verb.iter().map(|word| word.to_string_lossy().into_owned());
        let results = RESULTS.map(str::to_owned);
        Ok(Self {
            typed,
            verb: which,
            arguments: words.chain(results).collect(),
            interrupt,
        })
    }

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

    pub(super) fn typed_verb(&self) -> String {
        self.arguments[..self.arguments.len() - RESULTS.len()].join(" ")
    }
}

pub(super) struct Guest<'a> {
    pub(super) typed: &'a GuestArguments,
    pub(super) arguments: &'a [String],
    /// Whether the guest's clock counts its instructions (QEMU's `-icount`).
    pub(super) counted: bool,
    /// Nonzero exit codes with which a guest still returns a result. For example, an audit whose
    /// accounts do not balance still writes a recording.
    pub(super) accepted: &'static [u8],
    pub(super) interrupt: &'a Interrupt,
}

impl Guest<'_> {
    /// Boots the guest, waits until it exits, and returns the files it wrote. Stops the guest on
    /// Ctrl-C, or once `is_over` returns true.
    pub(super) fn boot(
        &self,
        kernel: &Kernel,
        cmdline: &str,
        console: Option<&Path>,
        is_over: &dyn Fn() -> bool,
        progress: &Progress,
    ) -> Result<Outcome, Failure> {
        let program = program(kernel.arch, self.typed.binary.as_deref())?;
        let (programs, beside) = programs_beside(&self.typed.beside)?;
        let run = GuestRun {
            kernel,
            program: &program,
            arguments: self.arguments,
            programs: &programs,
            files: &[],
            beside: &beside,
            accepted: self.accepted,
            settings: GuestSettings {
                cmdline,
                cpus: self.typed.smp,
                memory: self.typed.memory,
                clock: self.typed.clock(),
                limit: Duration::from_nanos(self.typed.limit.0.0.unsigned_abs()),
                count: self.counted,
                debugger: None,
                disk: None,
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

pub(super) fn run(typed: &RunArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    for file in [&typed.save, &typed.output, &typed.console]
        .into_iter()
        .flatten()
    {
        require_writable(file)?;
    }
    // Fail now if the HTML page cannot be created. It is created again when the recording is
    // reported.
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
    if let Some(folder) = &typed.guest_files {
        write_files(folder, &outcome.files)?;
    }
    let showing = Showing {
        audit: false,
        fleet_of: None,
        format: typed.print.format,
        output: typed.output.as_deref(),
        files: &FileArguments::of_page(typed.html.as_deref()),
        threads: crate::beats::threads(),
        profiles_waits: false,
        selection: Selection::default(),
    };
    report::show(
        outcome.recording()?,
        showing,
        &terminal.grouping(&typed.print.view),
    )
}

/// Returns the additional programs to copy to the guest, and the command lines to start there.
fn programs_beside(typed: &[String]) -> Result<(Vec<Program>, Vec<Vec<String>>), Failure> {
    let mut programs: Vec<Program> = Vec::new();
    let mut jobs = Vec::new();
    for line in typed {
        let mut words = line.split_whitespace();
        let file = PathBuf::from(words.next().unwrap_or_default());
        let Some(name) = file.file_name().and_then(|name| name.to_str()) else {
            let why = format!("--beside '{line}' does not name a program: put its file first");
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

/// Writes all of the guest's files to the directory `path`. The guest chose the file names, so a
/// name that contains a path is rejected.
fn write_files(path: &Path, files: &[Frame]) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| cannot("create", path, &error))?;
    let folder = Folder::open(path).map_err(|error| cannot("open", path, &error))?;
    for file in files {
        put(&folder, file).map_err(|error| cannot("write", &path.join(&file.name), &error))?;
    }
    Ok(())
}

fn put(folder: &Folder, file: &Frame) -> io::Result<()> {
    let temporary = Temporary::in_folder(folder.try_clone()?, OsStr::new(&file.name), 0o666)?;
    temporary.handle()?.write_all(&file.contents)?;
    temporary.appear()
}

/// Returns the path of the ticktax binary for a guest with this architecture: the one given by the
/// user or, by default, the one that is running. If the guest's architecture differs from the
/// host's, the default is the binary last built for it.
fn program(arch: Arch, given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let own = std::env::current_exe()
        .map_err(|error| cannot("find", Path::new("ticktax's own binary"), &error))?;
    if arch == Arch::HOST {
        return Ok(own);
    }
    // From `target/PROFILE/ticktax` to `target/TRIPLE/PROFILE/ticktax`.
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
            "no ticktax binary for {arch} guests: build it with `cargo xtask cross {arch}` in the \
             source directory, or give one with --binary FILE"
        );
        Failure::Arguments(why)
    })
}

pub(super) fn cannot(what: &'static str, file: &Path, error: &std::io::Error) -> Failure {
    LabError::of_file(what, file, error).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_guest_cannot_write_outside_its_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("kept");
        let victim = place.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        fs::create_dir(&folder).unwrap();
        symlink(&victim, folder.join("console")).unwrap();
        let frame = |name: &str| Frame::new(name, b"guest".to_vec());
        write_files(&folder, &[frame("console")]).unwrap();
        assert_eq!(fs::read(folder.join("console")).unwrap(), b"guest");
        let absolute = victim.display().to_string();
        for name in ["../victim", &absolute, "..", ""] {
            let refused = write_files(&folder, &[frame(name)])
                .unwrap_err()
                .to_string();
            assert!(refused.contains("not allowed"), "{refused}");
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }
}
