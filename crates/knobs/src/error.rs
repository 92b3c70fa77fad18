//! Errors of settings. Each message is one line: the action, its object, the reason, and a remedy.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

/// Why a setting could not be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnobError {
    /// The setting does not exist.
    #[error("unknown knob `{id}`: {hint}")]
    Unknown {
        /// The requested name.
        id: String,
        /// Similar names, or the way to list all.
        hint: String,
    },
    /// The value is invalid for the setting.
    #[error("invalid value `{value}` for {id}: {why}")]
    Value {
        /// The setting.
        id: String,
        /// The requested value.
        value: String,
        /// The valid values.
        why: String,
    },
    /// The setting needs a target of another kind, or a target was not named.
    #[error("{id} is a setting of {of}: {hint}")]
    Scope {
        /// The setting.
        id: String,
        /// The kind of target that it needs.
        of: String,
        /// How to name a target.
        hint: String,
    },
    /// The target does not exist.
    #[error("cannot find {target}: {why}")]
    Gone {
        /// The target.
        target: String,
        /// The reason and a remedy.
        why: String,
    },
    /// The setting is dangerous, and the user did not consent.
    #[error("{id} is dangerous: {reason} Pass --yes to set it anyway")]
    Dangerous {
        /// The setting.
        id: String,
        /// The danger.
        reason: String,
    },
    /// The setting is read-only.
    #[error("cannot set {id}: {why}")]
    ReadOnly {
        /// The setting.
        id: String,
        /// Another way to set it.
        why: String,
    },
    /// The setting could not be read.
    #[error("cannot read {id} of {target}: {trouble}")]
    Read {
        /// The setting.
        id: String,
        /// The target.
        target: String,
        /// The reason.
        trouble: Trouble,
    },
    /// The kernel refused the value.
    #[error("cannot set {id} of {target} to {value}: {trouble}")]
    Write {
        /// The setting.
        id: String,
        /// The target.
        target: String,
        /// The requested value.
        value: String,
        /// The reason.
        trouble: Trouble,
    },
    /// Another program changed the setting after this run did.
    #[error(
        "{id} of {target} changed from {left} to {found}: another program sets it too; ticktax \
         will not change it again"
    )]
    Foreign {
        /// The setting.
        id: String,
        /// The target.
        target: String,
        /// The value found.
        found: String,
        /// The value that this run had set.
        left: String,
    },
    /// Another run is changing settings.
    #[error(
        "cannot change settings: {by} is changing settings with the journal {}; wait until it \
         ends, or stop it: it restores them",
        path.display()
    )]
    Busy {
        /// Path of the journal.
        path: PathBuf,
        /// The other run.
        by: String,
    },
    /// The journal cannot be used, so no setting may be changed.
    #[error("cannot {verb} the journal {}: {why}", path.display())]
    Journal {
        /// The failed action.
        verb: &'static str,
        /// Path of the journal.
        path: PathBuf,
        /// The reason and a remedy.
        why: String,
    },
    /// The file named as the journal contains something else.
    #[error(
        "{} is not a ticktax journal and was left unchanged: name another file, or move it away",
        path.display()
    )]
    NotJournal {
        /// Path of the file.
        path: PathBuf,
    },
    /// Unreadable lines lie between readable lines of the journal. The settings in them are
    /// unknown, so the file must be kept as evidence.
    #[error(
        "left the journal {} unchanged: {lines} lines before its end are unreadable; restore the \
         rest with `ticktax undo`, then move the file away",
        path.display()
    )]
    DamagedJournal {
        /// Path of the journal.
        path: PathBuf,
        /// Number of unreadable lines.
        lines: u64,
    },
    /// A command's cgroup could not be found, created or joined.
    #[error("cannot {what}: {why}")]
    Group {
        /// The failed action.
        what: String,
        /// The reason and a remedy.
        why: String,
    },
    /// The watchdog, which restores settings after a kill, did not start.
    #[error("cannot start the watchdog that restores settings: {why}; nothing was changed")]
    Watchdog {
        /// The reason.
        why: String,
    },
}

/// Why the kernel refused to read or write a setting, or why its text could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Trouble {
    why: String,
}

impl Trouble {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }

    /// Explains an error of a system call.
    pub(crate) fn of_call(errno: Errno) -> Self {
        let why = match errno {
            Errno::ESRCH => "the task has ended",
            Errno::EPERM | Errno::EACCES => "permission denied; run as root",
            Errno::EINVAL => {
                "the kernel rejected the value: it is out of range, or names a CPU that is offline \
                 or not allowed"
            }
            Errno::EBUSY => "the kernel is busy; its real-time bandwidth might be used up",
            other => return Self::new(other.desc()),
        };
        Self::new(why)
    }

    /// Explains an error of a file operation.
    pub(crate) fn of_file(path: &str, error: &io::Error) -> Self {
        // Errors made by ticktax already contain a sentence.
        if let Some(own) = error.get_ref() {
            return Self::new(format!("/{path}: {own}"));
        }
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or_default());
        let why = match (errno, error.kind()) {
            (Errno::EINVAL | Errno::ERANGE, _) => {
                "the kernel rejected the value in its current state"
            }
            (Errno::EIO, _) => "the kernel manages this setting itself",
            (Errno::EBUSY, _) => "in use; try again later",
            (Errno::ENODEV | Errno::ENXIO, _) => "the device is offline or gone",
            (Errno::ESRCH, _) => "the task has ended",
            (Errno::EOPNOTSUPP, _) => "not supported by this kernel or device",
            (_, io::ErrorKind::NotFound) => "no such file on this kernel or machine",
            (_, io::ErrorKind::PermissionDenied) => "permission denied; run as root",
            (_, io::ErrorKind::ReadOnlyFilesystem) => {
                "mounted read-only, as in a container; run on the host"
            }
            (_, kind) => return Self::new(format!("/{path}: {kind}")),
        };
        Self::new(format!("/{path}: {why}"))
    }
}
