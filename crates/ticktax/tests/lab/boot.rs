//! Boots a guest that runs this test binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use libtest_mimic::Failed;
use ticktax_lab::guest::STANDARD_ERROR;
use ticktax_lab::kernel::{Cache, find};
use ticktax_lab::qemu::{Clock, Disk, GuestSettings, Outcome};
use ticktax_lab::{GuestFile, GuestRun, Program};

use crate::fixture::CLOUD;
use crate::inside::COMMAND;

/// Time limit for a guest. A guest takes up to a minute of CPU time. On a host with a load average
/// of 16, it gets an eighth of a CPU, so it can need 8 minutes.
const LIMIT: Duration = Duration::from_mins(15);
/// Number of console lines shown in an error message.
const LAST_LINES: usize = 12;

pub(crate) const COUNTED: Clock = Clock::Icount { shift: 2 };

pub(crate) struct Guest<'a> {
    pub(crate) kernel: &'a str,
    /// The argument that tells the guest what to do.
    pub(crate) verb: &'a str,
    pub(crate) cmdline: &'a str,
    pub(crate) cpus: u32,
    pub(crate) clock: Clock,
    /// Path of the socket on which QEMU serves a debugger.
    pub(crate) debugger: Option<&'a Path>,
    /// The guest's disk.
    pub(crate) disk: Option<Disk<'a>>,
    /// Files for the guest.
    pub(crate) files: &'a [GuestFile],
}

/// The directory with the files that a guest returned. It is deleted when this value is dropped,
/// unless it is to be kept.
pub(crate) struct Returned {
    pub(crate) folder: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

/// Returns the results of a guest that several tests share. The first call boots it with `make`. If
/// that fails, the first call returns the reason, and later calls refer to it. `tests` is the name
/// of the tests.
pub(crate) fn once<T>(
    results: &'static OnceLock<Option<T>>,
    tests: &str,
    make: impl FnOnce() -> Result<T, Failed>,
) -> Result<&'static T, Failed> {
    let mut reason = None;
    let results = results.get_or_init(|| make().map_err(|failed| reason = Some(failed)).ok());
    let elsewhere = || format!("the guest failed; another {tests} test has the reason").into();
    results
        .as_ref()
        .ok_or_else(|| reason.unwrap_or_else(elsewhere))
}

impl<'a> Guest<'a> {
    /// Creates a guest with one CPU and a clock that counts instructions. Huge pages are disabled,
    /// because their daemon would run for as long as a stall.
    pub(crate) fn counting(verb: &'a str) -> Self {
        Self {
            kernel: CLOUD,
            verb,
            cmdline: "transparent_hugepage=never",
            cpus: 1,
            clock: COUNTED,
            debugger: None,
            disk: None,
            files: &[],
        }
    }

    /// Boots the guest. The environment variable `keep` can name a directory for its files. If
    /// `file` is already there, no guest boots, so that a changed check can be rerun within
    /// seconds.
    pub(crate) fn returned(&self, keep: &str, file: &str) -> Result<Returned, Failed> {
        let returned = if let Some(folder) = std::env::var_os(keep) {
            Returned {
                folder: folder.into(),
                _temporary: None,
            }
        } else {
            let temporary = tempfile::tempdir()?;
            Returned {
                folder: temporary.path().to_owned(),
                _temporary: Some(temporary),
            }
        };
        if !returned.folder.join(file).exists() {
            self.boot(&returned.folder)?;
        }
        Ok(returned)
    }

    /// Boots the guest, and writes all files that it returns to `folder`. If the guest fails,
    /// panics or hangs, the error message shows its last output.
    pub(crate) fn boot(&self, folder: &Path) -> Result<Outcome, Failed> {
        let variable = std::env::var_os;
        let cache = Cache::of_user(variable("XDG_CACHE_HOME"), variable("HOME"))?;
        let kernel = find(&self.kernel.parse()?, &cache, &mut |_| {})?;
        let own = std::env::current_exe()?;
        let command = Program {
            name: COMMAND.to_owned(),
            file: env!("CARGO_BIN_EXE_ticktax").into(),
            libraries: None,
        };
        fs::create_dir_all(folder)?;
        let console = folder.join("console");
        let run = GuestRun {
            kernel: &kernel,
            program: &own,
            arguments: &[self.verb.to_owned()],
            programs: &[command],
            files: self.files,
            beside: &[],
            // Accept a failure in the guest: its standard error contains the reason.
            accepted: &[1],
            settings: GuestSettings {
                cmdline: self.cmdline,
                cpus: self.cpus,
                memory: 1_024,
                clock: self.clock,
                limit: LIMIT,
                count: false,
                debugger: self.debugger,
                disk: self.disk,
            },
            scratch: &std::env::temp_dir(),
            console: Some(&console),
        };
        let outcome = run.start(&|| false, &mut |_| {});
        let outcome = outcome.map_err(|error| format!("{error}{}", last_lines(&console)))?;
        if outcome.exit != 0 {
            let errors = outcome.file(STANDARD_ERROR).unwrap_or_default();
            let errors = String::from_utf8_lossy(errors);
            return Err(format!("the guest failed: {errors}{}", last_lines(&console)).into());
        }
        for file in &outcome.files {
            fs::write(folder.join(&file.name), &file.contents)?;
        }
        Ok(outcome)
    }
}

fn last_lines(console: &Path) -> String {
    let text = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    format!("\nits console ended with:\n  {}", last.join("\n  "))
}
