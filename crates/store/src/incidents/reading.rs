//! Reads any user's incident directory: the index, the recordings, and the recordings that are
//! missing from the index.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use ticktax_model::incident::{Incident, IncidentEntry, IncidentIndex, IndexLine};

use super::IncidentStoreError;
use super::index::{self, IndexError};
use super::name::time_in;
use crate::disk::Folder;
use crate::recording::{RecordingError, RecordingReader};

/// A recording that is missing from the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unindexed {
    /// Name of the recording's file in the directory.
    pub name: String,
    /// When the incident was noticed according to the name, in ms since 1970.
    pub at_unix_ms: i64,
}

/// An open incident directory. Recordings are opened by name, relative to the directory's handle
/// and never through a link, so an index written by another user cannot lead to other files.
#[derive(Debug)]
pub struct IncidentFolder {
    folder: Folder,
}

impl IncidentFolder {
    /// Opens any user's incident directory.
    ///
    /// # Errors
    /// Returns an error if the directory does not exist or cannot be read.
    pub fn open(path: &Path) -> Result<Self, IncidentStoreError> {
        let folder = Folder::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => IncidentStoreError(format!(
                "no incidents in {}: record some with `ticktax record --trigger 'wait>5ms'`",
                path.display()
            )),
            _ => cannot_read(path, error),
        })?;
        Ok(Self { folder })
    }

    pub(super) fn new(folder: Folder) -> Self {
        Self { folder }
    }

    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns the path of the directory, for use in messages.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Reads the index and finds the recordings that are missing from it. A recorder may be writing
    /// to the directory at the same time.
    ///
    /// # Errors
    /// Returns an error if the directory or its index cannot be read.
    pub fn read(&self) -> Result<(IncidentIndex, Vec<Unindexed>), IncidentStoreError> {
        // List the directory first. A recorder adds a recording to the index before its file
        // appears, so an index read after the listing contains every listed file.
        let listed = self
            .recordings()
            .map_err(|error| cannot_read(self.path(), error))?;
        let contents =
            index::read(&self.folder).map_err(|error| cannot_read(self.path(), error))?;
        let unindexed = lacking(listed, &contents);
        Ok((contents, unindexed))
    }

    /// Returns the size of a recording in bytes; `None` if it is missing or is not a regular file.
    pub fn size(&self, name: &str) -> Option<u64> {
        time_in(name)?;
        self.folder.size(OsStr::new(name))
    }

    /// Returns the path of a recording, for use in messages.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Opens a recording.
    ///
    /// # Errors
    /// Returns an error if the file is missing, is a link, or is not a recording.
    pub fn recording(&self, name: &str) -> Result<RecordingReader, RecordingError> {
        let path = self.path_of(name);
        let opened = match time_in(name) {
            Some(_) => self.folder.read(OsStr::new(name)),
            None => Err(io::ErrorKind::InvalidFilename.into()),
        };
        let file = opened.map_err(|error| RecordingError::read(&path, &error))?;
        RecordingReader::from_file(path, file)
    }

    /// Adds an incident whose recording is missing from the index.
    pub fn add_found(&self, contents: &mut IncidentIndex, found: &Unindexed, incident: Incident) {
        let bytes = self.size(&found.name).unwrap_or(0);
        let number = contents.last_number().saturating_add(1);
        let entry = entry_of(found, number, bytes, incident);
        contents.lines.push(IndexLine::Incident(Box::new(entry)));
        contents.found_again += 1;
    }

    pub(super) fn unindexed(&self, contents: &IncidentIndex) -> io::Result<Vec<Unindexed>> {
        Ok(lacking(self.recordings()?, contents))
    }

    /// Returns all recordings in the directory, oldest first.
    fn recordings(&self) -> io::Result<Vec<Unindexed>> {
        let names = self.folder.names()?.into_iter();
        let mut found: Vec<Unindexed> = names
            .filter_map(|name| {
                let name = name.into_string().ok()?;
                let at_unix_ms = time_in(&name)?;
                Some(Unindexed { name, at_unix_ms })
            })
            .collect();
        found.sort_unstable_by_key(|recording| recording.at_unix_ms);
        Ok(found)
    }
}

/// Reads the index in any user's incident directory, and finds the recordings that are missing from
/// it.
///
/// # Errors
/// Returns the errors of [`IncidentFolder::open`] and [`IncidentFolder::read`].
pub fn read_incidents(
    folder: &Path,
) -> Result<(IncidentIndex, Vec<Unindexed>), IncidentStoreError> {
    IncidentFolder::open(folder)?.read()
}

fn cannot_read(folder: &Path, error: impl Into<IndexError>) -> IncidentStoreError {
    IncidentStoreError::new("read the incidents in", folder, &error.into())
}

pub(super) fn entry_of(
    found: &Unindexed,
    number: u64,
    bytes: u64,
    incident: Incident,
) -> IncidentEntry {
    IncidentEntry {
        number,
        recording: Some(found.name.clone()),
        bytes,
        not_kept: None,
        incident,
    }
}

fn lacking(mut recordings: Vec<Unindexed>, contents: &IncidentIndex) -> Vec<Unindexed> {
    let known: HashSet<&str> = contents
        .entries()
        .filter_map(|entry| entry.recording.as_deref())
        .collect();
    recordings.retain(|recording| !known.contains(&*recording.name));
    recordings
}
