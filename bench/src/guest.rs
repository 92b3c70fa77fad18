//! A guest of the lab in which a verb of this program runs.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ticktax_lab::kernel::{Cache, Wanted, find};
use ticktax_lab::qemu::{Clock, GuestSettings, Outcome, Stage};
use ticktax_lab::{LabError, Program, Run};

/// Virtual CPUs of a guest: what is measured there takes turns on one.
const CPUS: u32 = 1;
/// Memory of a guest, in MiB.
const MEMORY: u32 = 512;
/// How long a guest may take on the host's clock.
const LIMIT: Duration = Duration::from_mins(30);

/// What may be typed of any guest.
#[derive(Clone, Debug, Args)]
pub struct GuestArguments {
    /// Parameters for the kernel
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub cmdline: String,

    /// Keep what the guest's kernel said
    #[arg(long, value_name = "FILE")]
    pub console: Option<PathBuf>,
}

/// What is to run in a guest.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The kernel that it boots.
    pub kernel: &'a Wanted,
    /// What else was typed.
    pub typed: &'a GuestArguments,
    /// A verb of this program, and its arguments.
    pub arguments: &'a [String],
    /// Other programs that it has.
    pub programs: &'a [Program],
    /// How its clock runs.
    pub clock: Clock,
}

/// The cache that `ticktax lab` keeps kernels in (XDG Base Directory Specification).
///
/// # Errors
/// Neither variable of the environment says where a user's files are.
pub fn cache() -> Result<Cache, LabError> {
    Cache::of_user(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))
}

/// This program's file.
///
/// # Errors
/// It cannot be found.
pub fn own_program() -> Result<PathBuf, LabError> {
    let link = Path::new("/proc/self/exe");
    env::current_exe().map_err(|error| LabError::of_file("find", link, &error))
}

/// Boots the guest, and brings back what the verb wrote. `stop` is asked whether to give up; `tell` hears what takes a
/// while.
///
/// # Errors
/// There is no kernel, the guest fails, or its verb does.
pub fn run(
    job: &Job<'_>,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&str),
) -> Result<Outcome, LabError> {
    let kernel = find(job.kernel, &cache()?, tell)?;
    let run = Run {
        kernel: &kernel,
        program: &own_program()?,
        arguments: job.arguments,
        programs: job.programs,
        beside: &[],
        accepted: &[],
        settings: GuestSettings {
            cmdline: &job.typed.cmdline,
            cpus: CPUS,
            memory: MEMORY,
            clock: job.clock,
            limit: LIMIT,
            count: false,
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
