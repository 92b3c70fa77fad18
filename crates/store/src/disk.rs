//! Access to files: directories accessed through a handle, files that appear either complete or not
//! at all, output to files and devices, locks, lines with checksums, and messages for I/O errors.

mod folder;
mod input;
mod output;
mod temporary;

use std::fs::{File, TryLockError};
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use nix::errno::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use folder::{Distrust, Folder};
pub use input::{InputError, open_input, open_promptly, read_input};
pub use output::{check_output, write_output};
pub use temporary::{Temporary, remove_abandoned};

/// A file or directory with an exclusive lock (`flock(2)`). The lock is released when this value is
/// dropped, or when the process ends, even by SIGKILL.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Locks an open file or directory.
    ///
    /// # Errors
    /// Returns an error if another process holds the lock, or if the system call fails.
    pub fn lock(file: File) -> Result<Self, TryLockError> {
        file.try_lock()?;
        Ok(Self(file))
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for LockedFile {
    /// Unlocks the file explicitly. If another thread has just forked, the child holds a copy of
    /// the descriptor until it calls exec, so closing the descriptor here would leave the file
    /// locked.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Formats `content` as a line of a journal: the CRC-32 of the content's JSON in eight hexadecimal
/// digits, a space, and the JSON.
///
/// # Errors
/// Returns an error if the content cannot be written as JSON because it contains a path that is not
/// UTF-8.
pub fn checked_line(content: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let json = serde_json::to_string(content)?;
    Ok(format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())).into_bytes())
}

/// Parses a line that [`checked_line`] formatted, including its line break; `None` if the line is
/// truncated or damaged, or if its content is not a `T`.
pub fn read_checked_line<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    let text = str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (sum, json) = text.split_once(' ')?;
    let right = u32::from_str_radix(sum, 16).ok()? == crc32fast::hash(json.as_bytes());
    right.then(|| serde_json::from_str(json).ok()).flatten()
}

/// Explains why an output file could not be created, and how to fix it.
pub fn creation_words(path: &Path, error: &io::Error) -> String {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match error.kind() {
        // Some file systems, such as /proc, report this error for every new file.
        io::ErrorKind::NotFound if folder.is_none_or(Path::is_dir) => {
            "its file system does not support new files; choose another directory".to_owned()
        }
        io::ErrorKind::NotFound => {
            "its directory does not exist; create it, or choose another".to_owned()
        }
        io::ErrorKind::InvalidInput => {
            "it is a device or pipe; give the path of a regular file".to_owned()
        }
        _ => error_words(error),
    }
}

/// Explains an I/O error and how to fix it, without the error number. The message of a [`Distrust`]
/// already does so and is returned unchanged.
pub fn error_words(error: &io::Error) -> String {
    // `io::ErrorKind` has no variants for a lack of file descriptors.
    let full = [Errno::EMFILE, Errno::ENFILE].map(|errno| errno as i32);
    if error
        .raw_os_error()
        .is_some_and(|number| full.contains(&number))
    {
        return "too many open files; raise `ulimit -n`".to_owned();
    }
    let distrust = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Distrust>());
    distrust.map_or_else(|| words(error.kind()), ToString::to_string)
}

/// Explains a kind of I/O error and how to fix it, without an error number.
pub fn words(kind: io::ErrorKind) -> String {
    let words = match kind {
        io::ErrorKind::NotFound => "no such file or directory; check the path",
        io::ErrorKind::PermissionDenied => {
            "permission denied; choose a directory that you own, or run as its owner"
        }
        io::ErrorKind::IsADirectory => "it is a directory; give the path of a file",
        io::ErrorKind::NotADirectory => {
            "part of the path is a file, not a directory; check the path"
        }
        io::ErrorKind::StorageFull => "the disk is full; free some space, or choose another disk",
        io::ErrorKind::QuotaExceeded => {
            "your disk quota is used up; free some space, or choose another disk"
        }
        io::ErrorKind::FileTooLarge => {
            "the file reached the size limit; raise `ulimit -f`, or write less data"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "the file system is read-only; choose a directory elsewhere"
        }
        io::ErrorKind::InvalidFilename => {
            "the file name is too long or not allowed; choose another"
        }
        io::ErrorKind::WouldBlock => "another program is using it; try again when it has finished",
        io::ErrorKind::UnexpectedEof => "the file is truncated; copy it again",
        // `ErrorKind` describes all other kinds well enough, without an error number.
        other => return format!("{other}; try another directory or disk"),
    };
    words.to_owned()
}

/// Returns whether an I/O error means that the disk or a quota is full.
pub fn is_full(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_owner_despite_copies_of_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || LockedFile::lock(File::open(folder.path()).expect("a folder"));
        let first = open().expect("it is free");
        assert!(matches!(open(), Err(TryLockError::WouldBlock)));
        // This copy stands for the one that a child would hold if another thread had forked.
        let copy = first.try_clone().expect("a copy");
        drop(first);
        open().expect("it is free again");
        drop(copy);
    }
}
