//! Errors from reading or changing settings. Each message is a single line that says what failed,
//! on which object and why, and how to fix it.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use ticktax_model::knob::KnobScope;

use crate::knob::of_what;
use crate::target::Target;

/// Reason why a setting could not be read or changed, or why a session could not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnobError {
    /// A setting with this name does not exist.
    #[error("unknown setting `{id}`: {hint}")]
    Unknown {
        /// Name that the user typed.
        id: String,
        /// Similar names, or how to list all names.
        hint: String,
    },
    /// The value is invalid for the setting.
    #[error("invalid value `{value}` for {id}: {why}")]
    Value {
        /// Name of the setting.
        id: String,
        /// The invalid value.
        value: String,
        /// Description of the valid values.
        why: String,
    },
    /// The user gave a target of the wrong kind, or no target.
    #[error("{id} is a setting of {of}: {hint}")]
    Scope {
        /// Name of the setting.
        id: String,
        /// The kind of target that the setting requires.
        of: String,
        /// How to specify a target.
        hint: String,
    },
    /// The target does not exist.
    #[error("cannot find {target}: {why}")]
    Gone {
        /// The missing target.
        target: String,
        /// The reason why it cannot be found, and a remedy.
        why: String,
    },
    /// The setting is dangerous, and the user has not agreed to change it.
    #[error("{id} is dangerous: {reason} Pass --yes to set it anyway")]
    Dangerous {
        /// Name of the setting.
        id: String,
        /// Why the setting is dangerous.
        reason: String,
    },
    /// The setting is read-only.
    #[error("cannot set {id}: {why}")]
    ReadOnly {
        /// Name of the setting.
        id: String,
        /// Why it cannot be changed, and how else to change it.
        why: String,
    },
    /// The setting cannot be read.
    #[error("cannot read {id} of {target}: {trouble}")]
    Read {
        /// Name of the setting.
        id: String,
        /// Target of the setting.
        target: String,
        /// The reason.
        trouble: Trouble,
    },
    /// The kernel refused the value.
    #[error("cannot set {id} of {target} to {value}: {trouble}")]
    Write {
        /// Name of the setting.
        id: String,
        /// Target of the setting.
        target: String,
        /// The refused value.
        value: String,
        /// The reason.
        trouble: Trouble,
    },
    /// Another program changed the setting after this session had changed it.
    #[error(
        "{id} of {target} changed from {left} to {found}: another program sets it too, so ticktax \
         leaves it unchanged"
    )]
    Foreign {
        /// Name of the setting.
        id: String,
        /// Target of the setting.
        target: String,
        /// Current value of the setting.
        found: String,
        /// The value that this session had left in the setting.
        left: String,
    },
    /// Another session is using the journal, so this one cannot change settings.
    #[error(
        "cannot change settings: {by} is using the journal {}; wait for it to finish, or stop it \
         and it will restore them",
        path.display()
    )]
    Busy {
        /// Path of the journal.
        path: PathBuf,
        /// Command and PID of the other session.
        by: String,
    },
    /// The journal cannot be used, and without a journal no setting may be changed.
    #[error("cannot {verb} the journal {}: {why}", path.display())]
    Journal {
        /// The action that failed, as a verb.
        verb: &'static str,
        /// Path of the journal.
        path: PathBuf,
        /// The reason why it failed, and a remedy.
        why: String,
    },
    /// The file that the user gave as the journal contains something else.
    #[error(
        "{} is not a ticktax journal and was left unchanged: give the path of a journal",
        path.display()
    )]
    NotJournal {
        /// Path of the file.
        path: PathBuf,
    },
    /// The journal contains unreadable lines between readable ones.
    #[error(
        "the journal {} was left unchanged: it has unreadable lines ({lines}); restore the other \
         settings with `ticktax undo`, then move or remove the file",
        path.display()
    )]
    DamagedJournal {
        /// Path of the journal.
        path: PathBuf,
        /// Number of unreadable lines.
        lines: u64,
    },
    /// A cgroup could not be found or created for a command, or a process could not be moved into
    /// it.
    #[error("cannot {what}: {why}")]
    Group {
        /// The attempted action.
        what: String,
        /// The reason why it failed, and a remedy.
        why: String,
    },
    /// The watchdog did not start. This is the process that restores settings if the session is
    /// killed.
    #[error("cannot start the watchdog that restores settings: {why}; nothing was changed")]
    Watchdog {
        /// The reason.
        why: String,
    },
}

/// Reason why a setting could not be restored. The message does not repeat the setting's name.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RestoreError {
    #[error("this version of ticktax does not know it; undo with the version that changed it")]
    UnknownKnob,
    #[error("it is a setting of {}, not of {target}; move the journal away", of_what(*scope))]
    Scope { scope: KnobScope, target: Target },
    /// The kernel accepted the original value, but reading it back gave a different one.
    #[error("the kernel changed the value to {found}")]
    Changed { found: String },
    #[error(transparent)]
    Trouble(#[from] Trouble),
}

/// Reason why the kernel refused to read or write a setting, or why the value read is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Trouble {
    why: String,
}

impl Trouble {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }

    pub(crate) fn of_call(errno: Errno) -> Self {
        let why = match errno {
            Errno::ESRCH => "the thread has exited",
            Errno::EPERM | Errno::EACCES => "permission denied; run as root",
            Errno::EINVAL => {
                "the kernel rejected the value: it is out of range, or includes a CPU that is \
                 offline or not \
                 allowed"
            }
            Errno::EBUSY => "the kernel is busy; its real-time bandwidth might be used up",
            other => return Self::new(other.desc()),
        };
        Self::new(why)
    }

    /// Converts an error from a file operation into a reason that users understand. `path` has no
    /// leading slash.
    pub(crate) fn of_file(path: &str, error: &io::Error) -> Self {
        // An error created by ticktax itself already contains a full explanation.
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
            (Errno::ESRCH, _) => "the thread has exited",
            (Errno::EOPNOTSUPP, _) => "not supported by this kernel or device",
            (_, io::ErrorKind::NotFound) => "no such file on this kernel or machine",
            (_, io::ErrorKind::PermissionDenied) => "permission denied; run as root",
            (_, io::ErrorKind::ReadOnlyFilesystem) => {
                "the file system is read-only, as in a container; run on the host"
            }
            (_, kind) => return Self::new(format!("/{path}: {kind}")),
        };
        Self::new(format!("/{path}: {why}"))
    }
}
