//! Runs a subcommand of this program in a lab guest.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ticktax_lab::kernel::{Cache, Wanted, find};
use ticktax_lab::qemu::{Clock, GuestSettings, Outcome, Stage};
use ticktax_lab::{GuestRun, LabError, Program};

/// Number of virtual CPUs. One is enough, because measurements are made one at a time.
const CPUS: u32 = 1;
/// A guest's memory, in MiB.
const MEMORY: u32 = 512;
/// Maximum run time of a guest, by the host's clock.
const LIMIT: Duration = Duration::from_mins(30);

/// Options for every guest.
#[derive(Clone, Debug, Args)]
pub struct GuestArguments {
    /// Add parameters to the kernel's command line
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub cmdline: String,

    /// Keep the kernel's console output
    #[arg(long, value_name = "FILE")]
    pub console: Option<PathBuf>,
}

/// A job to run in a guest.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The kernel to boot.
    pub kernel: &'a Wanted,
    /// The user's options for guests.
    pub typed: &'a GuestArguments,
    /// The subcommand of this program to run, and its arguments.
    pub arguments: &'a [String],
    /// Additional programs to copy into the guest.
    pub programs: &'a [Program],
    /// The kind of clock that the guest gets.
    pub clock: Clock,
}

/// Returns the cache in which `ticktax lab` keeps its kernels (XDG Base Directory Specification).
///
/// # Errors
/// Returns an error if no environment variable contains the user's directory.
pub fn cache() -> Result<Cache, LabError> {
    Cache::of_user(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))
}

/// Returns the path of this program.
///
/// # Errors
/// Returns an error if the path cannot be determined.
pub fn own_program() -> Result<PathBuf, LabError> {
    let link = Path::new("/proc/self/exe");
    env::current_exe().map_err(|error| LabError::of_file("find", link, &error))
}

/// Boots the guest, runs the subcommand in it, and returns the files that the subcommand wrote.
/// Gives up when `stop` returns true. Calls `tell` with a message before each slow step.
///
/// # Errors
/// Returns an error if the kernel does not exist, or if the guest or its subcommand fails.
pub fn run(
    job: &Job<'_>,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&str),
) -> Result<Outcome, LabError> {
    let kernel = find(job.kernel, &cache()?, tell)?;
    let run = GuestRun {
        kernel: &kernel,
        program: &own_program()?,
        arguments: job.arguments,
        programs: job.programs,
        files: &[],
        beside: &[],
        accepted: &[],
        settings: GuestSettings {
            cmdline: &job.typed.cmdline,
            cpus: CPUS,
            memory: MEMORY,
            clock: job.clock,
            limit: LIMIT,
            count: false,
            debugger: None,
            disk: None,
        },
        scratch: &env::temp_dir(),
        console: job.typed.console.as_deref(),
    };
    let mut tell = |stage| match stage {
        Stage::Boots => tell("the guest boots"),
        Stage::Runs => tell("the guest runs"),
        Stage::Sends(_) => {}
    };
    run.start(stop, &mut tell)
}
