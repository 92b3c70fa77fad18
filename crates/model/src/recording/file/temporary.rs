//! A file that appears under its name complete, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// A file under a temporary name, in the folder where it is to appear. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Temporary {
    file: File,
    here: PathBuf,
    target: PathBuf,
    /// Whether there is still something to remove.
    armed: bool,
}

impl Temporary {
    /// Names tried before giving up: each is taken only by a leftover of a killed process that
    /// had the same number.
    const ATTEMPTS: u32 = 1000;

    /// A new, empty file that will appear as `path`.
    ///
    /// # Errors
    /// Those of the system, and `IsADirectory` or `InvalidInput` when `path` is a folder or a
    /// device: the final rename would replace the device itself.
    pub(super) fn beside(path: &Path) -> io::Result<Self> {
        // Through a link, the file behind it is written, as with any other program.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match fs::metadata(&target) {
            Ok(facts) if facts.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(facts) if !facts.is_file() => return Err(io::ErrorKind::InvalidInput.into()),
            _ => {}
        }
        // A path without a last part (`..`, or empty) names a folder.
        let name = target
            .file_name()
            .ok_or(io::ErrorKind::IsADirectory)?
            .to_owned();
        for attempt in 0..Self::ATTEMPTS {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(&name);
            hidden.push(format!(".{}-{attempt}.part", std::process::id()));
            let here = target.with_file_name(hidden);
            match OpenOptions::new().write(true).create_new(true).open(&here) {
                Ok(file) => {
                    return Ok(Self {
                        file,
                        here,
                        target,
                        armed: true,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Another handle to write through.
    pub(super) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Puts what was written on the disk, then under its name.
    pub(super) fn appear(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.here, &self.target)?;
        self.armed = false;
        // The name is on the disk once its folder is. Some file systems cannot sync a folder;
        // the file is complete either way.
        let folder = self
            .target
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.armed {
            // Nobody is left to tell.
            let _ = fs::remove_file(&self.here);
        }
    }
}
