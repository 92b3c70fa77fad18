//! Errors, as shown to the user.

use std::io;
use std::path::{Path, PathBuf};

/// Why an fsync could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The directory cannot be used.
    #[error(
        "cannot use the directory {}: {why}; choose an existing directory with --dir",
        path.display()
    )]
    Directory {
        /// Requested directory.
        path: PathBuf,
        /// The operating system's reason.
        why: io::ErrorKind,
    },
    /// The file system cannot be written.
    #[error(
        "cannot write to {}: it is mounted read-only; choose another directory with --dir",
        path.display()
    )]
    ReadOnly {
        /// Requested directory.
        path: PathBuf,
    },
    /// The file system is on no block device.
    #[error(
        "cannot measure an fsync in {}: the disk to which {file_system} writes is unknown{}; \
         choose a directory on a disk with --dir",
        path.display(),
        upper.as_deref().map(|upper| format!(" (its files are in {upper})")).unwrap_or_default()
    )]
    NoDevice {
        /// Requested directory.
        path: PathBuf,
        /// Type of the file system.
        file_system: String,
        /// Directory of an overlay that receives the writes.
        upper: Option<String>,
    },
    /// The mounts cannot be read.
    #[error(
        "cannot find out which disk contains {}: /proc/self/mountinfo does not list it",
        path.display()
    )]
    NoMount {
        /// Requested directory.
        path: PathBuf,
    },
    /// The file system has too little space.
    #[error(
        "cannot write {needed_mib} MiB to {}: only {free_mib} MiB are free; free some space, or \
         choose a smaller --foreign, --pairs or --fsyncs",
        path.display()
    )]
    Full {
        /// Requested directory.
        path: PathBuf,
        /// Required space.
        needed_mib: u64,
        /// Free space.
        free_mib: u64,
    },
    /// A file of an earlier run is left.
    #[error(
        "cannot create {}: it exists already; remove it, unless another ticktax uses it",
        path.display()
    )]
    Exists {
        /// Path of the file.
        path: PathBuf,
    },
    /// A file could not be written.
    #[error("cannot {action} a file in {}: {why}{}", path.display(), remedy(*why))]
    File {
        /// Attempted action.
        action: &'static str,
        /// Directory of the file.
        path: PathBuf,
        /// The operating system's reason.
        why: io::ErrorKind,
    },
    /// The user interrupted the measurement before the first fsync of both kinds.
    #[error("interrupted before any result; the files in {} are removed", path.display())]
    Interrupted {
        /// Directory of the files.
        path: PathBuf,
    },
}

/// Returns what to do about an error.
fn remedy(why: io::ErrorKind) -> &'static str {
    match why {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space, or choose a smaller --foreign"
        }
        io::ErrorKind::PermissionDenied => "; choose a directory that you may write to with --dir",
        _ => "",
    }
}

impl StorageError {
    /// Returns a function that describes an error of a file in a directory.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path: path.clone() },
            why => Self::File {
                action,
                path: path.clone(),
                why,
            },
        }
    }
}
