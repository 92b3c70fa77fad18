//! Why nothing can be observed.

use std::io;
use std::path::PathBuf;

use ticktax_model::{CpuList, Nanos};
use ticktax_probes::ProbeError;
use ticktax_trace::TraceError;

/// Why a session cannot begin. Each text is one line for a person.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// `/sys` does not say which CPUs there are.
    #[error("cannot read which CPUs are online: mount /sys")]
    OnlineUnknown,
    /// The list of CPUs is empty.
    #[error("no CPU was named: choose from {online}")]
    NoCpu {
        /// Those that are online.
        online: CpuList,
    },
    /// Some of the CPUs are not there.
    #[error(
        "{} {missing} {} not online here: choose from {online}",
        if missing.len() == 1 { "CPU" } else { "CPUs" },
        if missing.len() == 1 { "is" } else { "are" }
    )]
    Offline {
        /// Those that were named and are not online.
        missing: CpuList,
        /// Those that are.
        online: CpuList,
    },
    /// The process is not there, or has ended.
    #[error("no process {pid}; `pgrep NAME` finds the PIDs of a program")]
    NoProcess {
        /// Its number, as it was named.
        pid: i32,
    },
    /// No process has this name.
    #[error("no process is named `{name}`: `ps -e` lists the names, of at most 15 characters")]
    NoProcessNamed {
        /// The name.
        name: String,
    },
    /// Frames are asked for of a name that several processes have.
    #[error(
        "several processes are named `{name}`, and a frame trigger is about one: give one of the PIDs \
         that `pgrep -x {name}` prints, as frame:pid=N"
    )]
    SeveralNamed {
        /// The name.
        name: String,
    },
    /// The folder is no cgroup's.
    #[error("{} is not a cgroup: name its folder below /sys/fs/cgroup", folder.display())]
    NoCgroup {
        /// The folder.
        folder: PathBuf,
    },
    /// The plan needs the tracer, and it does not load.
    #[error("cannot watch {program}: {why}")]
    NoTracer {
        /// Who was to be watched, as it was named.
        program: String,
        /// Why, and what would help.
        why: TraceError,
    },
    /// A paced loop would be over before it has worked once.
    #[error(
        "{length} is over before the first frame is due, after {period}: run for longer, or raise \
         the rate"
    )]
    NoFrame {
        /// How long it was to run.
        length: Nanos,
        /// From one frame to the next.
        period: Nanos,
    },
    /// More triggers than the kernel's programs look at.
    #[error("these are {count} triggers: name {max} at most")]
    TooManyTriggers {
        /// How many were named.
        count: usize,
        /// The most there is room for.
        max: usize,
    },
    /// This process has no room for another file descriptor.
    #[error("no file descriptor is left: raise the limit (ulimit -n)")]
    NoDescriptor,
    /// Nothing to compare, or too much.
    #[error("these are {count} variants: name 1 to {max}")]
    Variants {
        /// How many were named.
        count: usize,
        /// The most that are compared.
        max: usize,
    },
    /// A probe or a paced loop could not be started.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The command could not be started.
    #[error("cannot run `{command}`: {}", in_words(*kind))]
    Command {
        /// What was to be run.
        command: String,
        /// Why it cannot.
        kind: io::ErrorKind,
    },
}

fn in_words(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => "no such program; check the spelling and PATH",
        io::ErrorKind::PermissionDenied => "it may not be executed; check its mode",
        io::ErrorKind::OutOfMemory => "not enough memory for another process",
        _ => "the system refuses to start it",
    }
}
