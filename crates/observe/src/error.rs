//! Reasons why observation fails.

use std::io;
use std::path::PathBuf;

use ticktax_model::{CpuList, Nanos};
use ticktax_probes::ProbeError;
use ticktax_trace::TraceError;

/// Why a session cannot start. Each message is one line for a person.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// `/sys` does not list the CPUs.
    #[error("cannot read the list of online CPUs: mount /sys")]
    OnlineUnknown,
    /// The list of CPUs is empty.
    #[error("no CPU given: choose from {online}")]
    NoCpu {
        /// The online CPUs.
        online: CpuList,
    },
    /// Some of the CPUs are not online.
    #[error(
        "{} {missing} {} not online: choose from {online}",
        if missing.len() == 1 { "CPU" } else { "CPUs" },
        if missing.len() == 1 { "is" } else { "are" }
    )]
    Offline {
        /// The requested CPUs that are not online.
        missing: CpuList,
        /// The online CPUs.
        online: CpuList,
    },
    /// The process does not exist or has ended.
    #[error("no process {pid}: find a program's PIDs with `pgrep NAME`")]
    NoProcess {
        /// The requested process ID.
        pid: i32,
    },
    /// No process has this name.
    #[error("no process named `{name}`: `ps -e` lists names (at most 15 characters)")]
    NoProcessNamed {
        /// The requested name.
        name: String,
    },
    /// A frame trigger names a program that several processes have.
    #[error(
        "several processes are named `{name}`: choose a PID from `pgrep -x {name}` and pass it as \
         frame:pid=N"
    )]
    SeveralNamed {
        /// The requested name.
        name: String,
    },
    /// The folder is not a cgroup.
    #[error("{} is not a cgroup: give its folder under /sys/fs/cgroup", folder.display())]
    NoCgroup {
        /// The requested folder.
        folder: PathBuf,
    },
    /// The plan needs the tracer, and it does not load.
    #[error("cannot watch {program}: {why}")]
    NoTracer {
        /// The program to watch, as the user named it.
        program: String,
        /// Why it does not load, and what would help.
        why: TraceError,
    },
    /// A paced loop would end before its first frame is due.
    #[error(
        "{length} ends before the first frame is due at {period}: run longer, or raise the rate"
    )]
    NoFrame {
        /// Requested length.
        length: Nanos,
        /// Time between frames.
        period: Nanos,
    },
    /// More triggers than the kernel programs support.
    #[error("too many triggers ({count}): give at most {max}")]
    TooManyTriggers {
        /// Number of requested triggers.
        count: usize,
        /// Maximum number of triggers.
        max: usize,
    },
    /// This process has no file descriptor left.
    #[error("no file descriptors left: raise the limit (ulimit -n)")]
    NoDescriptor,
    /// No variants to compare, or too many.
    #[error("invalid number of variants {count}: give 1 to {max}")]
    Variants {
        /// Number of requested variants.
        count: usize,
        /// Maximum number of variants.
        max: usize,
    },
    /// A probe or a paced loop could not be started.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The command could not be started.
    #[error("cannot run `{command}`: {}", in_words(*kind))]
    Command {
        /// The requested command.
        command: String,
        /// The operating system's reason.
        kind: io::ErrorKind,
    },
}

fn in_words(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => "program not found; check the spelling and PATH",
        io::ErrorKind::PermissionDenied => "not executable; check its permissions",
        io::ErrorKind::OutOfMemory => "out of memory",
        _ => "the system refused to start it",
    }
}
