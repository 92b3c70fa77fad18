//! What can go wrong with a setting: one line each, what was tried, on what, why, and what to do.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

/// Why a setting could not be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnobError {
    /// There is no such setting.
    #[error("unknown knob `{id}`: {hint}")]
    Unknown {
        /// What was asked for.
        id: String,
        /// Names like it, or where all stand.
        hint: String,
    },
    /// It cannot have this value.
    #[error("invalid value `{value}` for {id}: {why}")]
    Value {
        /// The setting.
        id: String,
        /// What it was to be.
        value: String,
        /// What it can be.
        why: String,
    },
    /// It is of something else, or nothing was named.
    #[error("{id} is a setting of {of}: {hint}")]
    Scope {
        /// The setting.
        id: String,
        /// What it is of.
        of: String,
        /// What to name.
        hint: String,
    },
    /// What it is of is not there.
    #[error("cannot find {target}: {why}")]
    Gone {
        /// What.
        target: String,
        /// Why, and what to do.
        why: String,
    },
    /// It is dangerous, and nobody agreed to that.
    #[error("{id} is dangerous: {reason} Agree with --yes")]
    Dangerous {
        /// The setting.
        id: String,
        /// What can happen.
        reason: String,
    },
    /// It can only be read.
    #[error("cannot set {id}: {why}")]
    ReadOnly {
        /// The setting.
        id: String,
        /// How it is set in another way.
        why: String,
    },
    /// The kernel did not let it be read.
    #[error("cannot read {id} of {target}: {trouble}")]
    Read {
        /// The setting.
        id: String,
        /// Of what.
        target: String,
        /// Why.
        trouble: Trouble,
    },
    /// The kernel did not take the value.
    #[error("cannot set {id} of {target} to {value}: {trouble}")]
    Write {
        /// The setting.
        id: String,
        /// Of what.
        target: String,
        /// What it was to be.
        value: String,
        /// Why.
        trouble: Trouble,
    },
    /// Somebody else changed it while it was this run's.
    #[error(
        "{id} of {target} is {found}, and was left at {left}: another program changes it too; \
         it is left alone from here on"
    )]
    Foreign {
        /// The setting.
        id: String,
        /// Of what.
        target: String,
        /// What it is.
        found: String,
        /// What it was set to.
        left: String,
    },
    /// Another run changes settings.
    #[error(
        "cannot change settings: {by} does so, and has the journal {}; wait for its end, or end it: it \
         puts them back",
        path.display()
    )]
    Busy {
        /// The journal.
        path: PathBuf,
        /// Who it is.
        by: String,
    },
    /// The journal cannot be used, and without it nothing is changed.
    #[error("cannot {verb} the journal {}: {why}", path.display())]
    Journal {
        /// What was tried.
        verb: &'static str,
        /// The journal.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// A file that was named as the journal holds something else.
    #[error(
        "{} is not a journal of ticktax and was left unchanged: name another file, or move it away",
        path.display()
    )]
    NotJournal {
        /// The file.
        path: PathBuf,
    },
    /// Lines between others of the journal cannot be read. Their settings are unknown, so the file
    /// is evidence.
    #[error(
        "the journal {} was left unchanged: {lines} of its lines, with others after them, cannot be \
         read; `ticktax undo` restores the rest, then move the file away",
        path.display()
    )]
    DamagedJournal {
        /// The journal.
        path: PathBuf,
        /// Number of such lines.
        lines: u64,
    },
    /// A cgroup for a command cannot be found, made or joined.
    #[error("cannot {what}: {why}")]
    Group {
        /// What was tried.
        what: String,
        /// Why, and what to do.
        why: String,
    },
    /// Nobody would put back what a killed run leaves.
    #[error(
        "cannot start the watchdog that puts settings back: {why}; nothing is changed without it"
    )]
    Watchdog {
        /// Why.
        why: String,
    },
}

/// What the kernel, or the text that it gave, said against reading or writing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Trouble {
    why: String,
}

impl Trouble {
    /// In these words.
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }

    /// What an error of a system call means.
    pub(crate) fn of_call(errno: Errno) -> Self {
        let why = match errno {
            Errno::ESRCH => "the task has ended",
            Errno::EPERM | Errno::EACCES => "permission denied; run as root",
            Errno::EINVAL => {
                "the kernel refuses the value: it is out of its range, or names a CPU that is offline or not allowed"
            }
            Errno::EBUSY => "the kernel is busy with it: its real-time bandwidth may be used up",
            other => return Self::new(other.desc()),
        };
        Self::new(why)
    }

    /// What an error of a file means.
    pub(crate) fn of_file(path: &str, error: &io::Error) -> Self {
        // Our own errors are already sentences.
        if let Some(own) = error.get_ref() {
            return Self::new(format!("/{path}: {own}"));
        }
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or_default());
        let why = match (errno, error.kind()) {
            (Errno::EINVAL | Errno::ERANGE, _) => {
                "the kernel refuses the value, in its present state"
            }
            (Errno::EIO, _) => "the kernel refuses: it manages this one by itself",
            (Errno::EBUSY, _) => "it is in use; try again once it is not",
            (Errno::ENODEV | Errno::ENXIO, _) => "its device is offline or gone",
            (Errno::ESRCH, _) => "the task has ended",
            (Errno::EOPNOTSUPP, _) => "this kernel or device does not support it",
            (_, io::ErrorKind::NotFound) => "this kernel or machine has no such file",
            (_, io::ErrorKind::PermissionDenied) => "permission denied; run as root",
            (_, io::ErrorKind::ReadOnlyFilesystem) => {
                "it is mounted read-only, as in a container; run on the host"
            }
            (_, kind) => return Self::new(format!("/{path}: {kind}")),
        };
        Self::new(format!("/{path}: {why}"))
    }
}
