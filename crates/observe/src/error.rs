//! Errors that prevent an observation.

use std::io;
use std::path::PathBuf;

use ticktax_model::{CpuList, Nanos};
use ticktax_probes::ProbeError;
use ticktax_trace::TraceError;

/// Why a session cannot start. Each message is one line for users.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// `/sys` does not list the CPUs.
    #[error("cannot read the list of online CPUs: mount /sys")]
    OnlineUnknown,
    /// The list of CPUs to watch is empty.
    #[error("no CPU given: choose from {online}")]
    NoCpu {
        /// CPUs that are online.
        online: CpuList,
    },
    /// Some requested CPUs are not online.
    #[error(
        "{} {missing} {} not online: choose from {online}",
        if missing.len() == 1 { "CPU" } else { "CPUs" },
        if missing.len() == 1 { "is" } else { "are" }
    )]
    Offline {
        /// Requested CPUs that are not online.
        missing: CpuList,
        /// CPUs that are online.
        online: CpuList,
    },
    /// The process does not exist or has exited.
    #[error("no process {pid}: find a program's PIDs with `pgrep NAME`")]
    NoProcess {
        /// Requested process ID.
        pid: i32,
    },
    /// No process has this name.
    #[error("no process named `{name}`: list names with `ps -e` (at most 15 characters each)")]
    NoProcessNamed {
        /// Requested name.
        name: String,
    },
    /// A frame trigger selects a program by a name that several processes have.
    #[error(
        "several processes are named `{name}`: choose a PID from `pgrep -x {name}` and pass it as \
         frame:pid=N"
    )]
    SeveralNamed {
        /// Requested name.
        name: String,
    },
    /// The directory is not a cgroup.
    #[error("{} is not a cgroup: give a directory in /sys/fs/cgroup", folder.display())]
    NoCgroup {
        /// Requested directory.
        folder: PathBuf,
    },
    /// The plan requires the tracer, which could not be loaded.
    #[error("cannot watch {program}: {why}")]
    NoTracer {
        /// Program to watch, as named by the user.
        program: String,
        /// Why the tracer could not be loaded, and what would help.
        why: TraceError,
    },
    /// The run would end before the paced loop's first frame is due.
    #[error(
        "a run of {length} ends before the first frame is due, at {period}: run longer, or raise \
         the \
         rate"
    )]
    NoFrame {
        /// Requested length.
        length: Nanos,
        /// Time between frames.
        period: Nanos,
    },
    /// There are more triggers than the tracer's BPF programs support.
    #[error("too many triggers ({count}): give at most {max}")]
    TooManyTriggers {
        /// Number of requested triggers.
        count: usize,
        /// Maximum number of triggers.
        max: usize,
    },
    /// This process has run out of file descriptors.
    #[error("no file descriptors left: raise the limit (ulimit -n)")]
    NoDescriptor,
    /// The number of arms to compare is 0 or too large. An arm is one of the loop settings being
    /// compared.
    #[error("invalid number of arms {count}: give 1 to {max}")]
    Arms {
        /// Number of requested arms.
        count: usize,
        /// Maximum number of arms.
        max: usize,
    },
    /// A probe or a paced loop could not be started.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The command could not be started.
    #[error("cannot run `{command}`: {}", in_words(*kind))]
    Command {
        /// Requested command.
        command: String,
        /// The operating system's reason for the failure.
        kind: io::ErrorKind,
    },
}

fn in_words(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => "program not found; check the name and PATH",
        io::ErrorKind::PermissionDenied => "permission denied; check that the file is executable",
        io::ErrorKind::OutOfMemory => "out of memory",
        _ => "the system refused to start it",
    }
}
