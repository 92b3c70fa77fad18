//! The directory in which a flight recorder keeps its incidents: recordings of incidents, and an
//! index with one line per event.
//!
//! # Files on disk
//! An incident's line is written first. It names the recording, which may continue for a few
//! seconds after the incident and include further incidents. The recording then appears under that
//! name, either complete or not at all, and another line confirms it.
//!
//! No file stays open between writes, so the file system can be remounted read-only. Lines then
//! wait in memory until they can be written.
//!
//! A killed recorder leaves lines whose recording does not exist, and a hidden unfinished file that
//! the next recorder removes. A recording that no line names is added to the index again. A last
//! line without a line break is never read, and the next recorder cuts it off.
//!
//! # Safety
//! Every access is relative to one handle for the directory, which must belong to the user who runs
//! the recorder. The index may only name recordings in the form that the module `name` defines. A
//! line with any other name counts as damaged, and the file with that name is neither opened nor
//! removed. Links are not followed. Readers follow the same rules, but can read any user's
//! directory ([`IncidentFolder`]).
//!
//! # Limits
//! A [`Budget`] limits how many recordings are written per hour, how many are kept, and their total
//! size. If the number or size of the kept recordings exceeds the budget, the oldest recordings are
//! removed, but their lines stay. The index has a separate limit, [`INDEX_MAX`].

#[cfg(test)]
mod hostile;
mod index;
mod name;
mod reading;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::fs::TryLockError;
use std::io;
use std::path::{Path, PathBuf};

use ticktax_model::SourceTable;
use ticktax_model::incident::{Incident, IncidentEntry, IncidentIndex, IndexLine, LossCause};
use ticktax_model::recording::{Header, Row, RowSink};

use crate::disk::{Folder, LockedFile, remove_abandoned};
use crate::recording::{RecordingError, RecordingWriter};
use index::{IndexError, IndexFile};
use name::{recording_name, time_in};
use reading::entry_of;

pub use reading::{IncidentFolder, Unindexed, read_incidents};

/// Maximum size of an index in bytes. When an index grows larger, the older half of its lines is
/// dropped.
pub const INDEX_MAX: u64 = 8 << 20;

const HOUR_MS: i64 = 3_600_000;
/// Maximum number of lines, of a few KiB each, that wait until the index can be written. Beyond
/// that, the oldest lines are dropped and only counted.
const WAITING: usize = 256;

/// Limits of an incident directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Maximum number of recordings kept.
    pub count: u64,
    /// Maximum total size of the recordings kept, in bytes.
    pub bytes: u64,
    /// Maximum number of recordings written within an hour.
    pub per_hour: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            count: 1_000,
            bytes: 1 << 30,
            per_hour: 60,
        }
    }
}

/// Error for an incident directory that cannot be used. The message is one line that names the
/// directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct IncidentStoreError(String);

impl IncidentStoreError {
    fn new(what: &str, path: &Path, error: &IndexError) -> Self {
        Self(format!("cannot {what} {}: {error}", path.display()))
    }
}

/// An incident directory that a recorder writes to. Only one recorder at a time can hold it.
#[derive(Debug)]
pub struct IncidentStore {
    folder: IncidentFolder,
    _lock: LockedFile,
    index: IndexFile,
    budget: Budget,
    /// Existing recordings, oldest first, each with the number of its first incident, its file name
    /// and its size.
    kept: VecDeque<(u64, String, u64)>,
    bytes: u64,
    next: u64,
    /// When recordings were written within the last hour, in ms since 1970.
    lately: VecDeque<i64>,
    lost: BTreeMap<LossCause, u64>,
    /// Lines that could not be written yet, oldest first.
    waiting: VecDeque<IndexLine>,
    /// Whether the recorder has noted in the index that it started to watch.
    watches: bool,
    current: Option<Current>,
}

/// A recording that contains incidents but has not been written yet.
#[derive(Debug)]
struct Current {
    /// When the first incident was noticed, in ms since 1970.
    at: i64,
    /// Name that the recording will have; `None` if the budget does not allow a recording.
    name: Option<String>,
    entries: Vec<IncidentEntry>,
}

/// An incident that has been added to the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Entry of the incident in the index.
    pub entry: IncidentEntry,
    /// Path that the incident's recording will have; `None` if there will not be one.
    pub path: Option<PathBuf>,
    /// Why a line of the index could not be written; `None` if all lines were written.
    pub trouble: Option<String>,
}

/// Outcome of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Entries of the incidents in the recording, each with the recording's size or the reason why
    /// it was not kept.
    pub entries: Vec<IncidentEntry>,
    /// Path of the recording; `None` if it was not kept.
    pub path: Option<PathBuf>,
    /// Why the recording, or the line about its outcome, could not be written; `None` if both were
    /// written.
    pub trouble: Option<String>,
}

impl IncidentStore {
    /// Opens and locks the directory, creating it if it is missing. Removes the files that killed
    /// recorders did not finish, and repairs the index. `now` is in ms since 1970. Also returns the
    /// recordings that are missing from the index, which the caller must add with
    /// [`IncidentStore::found`].
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created or written, if another user can change
    /// it, if another recorder holds it, or if the file with the index's name is not an index.
    pub fn open(
        path: &Path,
        budget: Budget,
        now: i64,
    ) -> Result<(Self, Vec<Unindexed>), IncidentStoreError> {
        let cannot =
            |error: IndexError| IncidentStoreError::new("store incidents in", path, &error);
        let cannot_use = |error: io::Error| cannot(error.into());
        let folder = Folder::make_trusted(path, 0o700).map_err(cannot_use)?;
        let lock = folder.handle().map_err(cannot_use)?;
        let lock = LockedFile::lock(lock).map_err(|error| match error {
            TryLockError::WouldBlock => IncidentStoreError(format!(
                "another recorder is using {}: stop it, or choose another directory",
                path.display()
            )),
            TryLockError::Error(error) => cannot_use(error),
        })?;
        remove_unfinished(&folder).map_err(cannot_use)?;
        let copy = folder.try_clone().map_err(cannot_use)?;
        let (index, contents) = IndexFile::open(copy).map_err(cannot)?;
        let mut store = Self {
            folder: IncidentFolder::new(folder),
            _lock: lock,
            index,
            budget,
            kept: VecDeque::new(),
            bytes: 0,
            next: contents.last_number().saturating_add(1),
            lately: VecDeque::new(),
            lost: BTreeMap::new(),
            waiting: VecDeque::new(),
            watches: false,
            current: None,
        };
        store.take_stock(&contents, now);
        store.heal(&contents).map_err(cannot)?;
        let unindexed = store.folder.unindexed(&contents).map_err(cannot_use)?;
        Ok((store, unindexed))
    }

    /// Adds a line saying that the recorder has been watching since `at`, in ms since 1970. If the
    /// line cannot be written, returns the reason.
    pub fn began(&mut self, at: i64) -> Option<String> {
        self.watches = true;
        self.note(IndexLine::Began { at_unix_ms: at })
    }

    /// Returns the path of the directory, for use in messages.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the same directory for reading.
    pub fn reading(&self) -> &IncidentFolder {
        &self.folder
    }

    /// Returns how many incidents, recordings and triggers have been lost so far, by cause.
    pub fn lost(&self) -> impl Iterator<Item = (LossCause, u64)> {
        self.lost.iter().map(|(&cause, &count)| (cause, count))
    }

    /// Counts the recordings in the index that still exist, and those written within the last hour.
    fn take_stock(&mut self, contents: &IncidentIndex, now: i64) {
        let mut last = None;
        for entry in contents.entries() {
            let Some(name) = entry.recording.as_ref() else {
                continue;
            };
            if last.replace(name) == Some(name) {
                continue;
            }
            if let Some(bytes) = self.folder.size(name) {
                self.kept.push_back((entry.number, name.clone(), bytes));
                self.bytes = self.bytes.saturating_add(bytes);
            }
            let at = entry.incident.at_unix_ms;
            if at <= now && at > now - HOUR_MS {
                self.lately.push_back(at);
            }
        }
    }

    /// Adds an incident to the index, as part of the recording in progress. Without one, the
    /// incident starts a recording, provided that the budget allows it. Failures do not stop the
    /// recorder. Losses are counted and reported.
    pub fn tell(&mut self, incident: Incident) -> Told {
        if self.current.is_none() {
            self.current = Some(self.begin(incident.at_unix_ms));
        }
        let name = self
            .current
            .as_ref()
            .and_then(|recording| recording.name.clone());
        let not_kept = name.is_none().then_some(LossCause::PerHour);
        let entry = IncidentEntry {
            number: self.next,
            recording: name,
            bytes: 0,
            not_kept,
            incident,
        };
        self.next = self.next.saturating_add(1);
        if let Some(cause) = not_kept {
            *self.lost.entry(cause).or_default() += 1;
        }
        if let Some(current) = &mut self.current {
            current.entries.push(entry.clone());
        }
        let trouble = self.note(IndexLine::Incident(Box::new(entry.clone())));
        let name = entry.recording.as_ref();
        Told {
            path: name.map(|name| self.folder.path_of(name)),
            entry,
            trouble,
        }
    }

    /// Starts a recording whose first incident was noticed at time `at`.
    fn begin(&mut self, at: i64) -> Current {
        while self
            .lately
            .front()
            .is_some_and(|&then| then <= at - HOUR_MS || then > at)
        {
            self.lately.pop_front();
        }
        let allowed = (self.lately.len() as u64) < self.budget.per_hour;
        Current {
            at,
            name: allowed.then(|| self.free_name(at)),
            entries: Vec::new(),
        }
    }

    /// Adds the line about a recording's outcome if its recorder was killed before it could write
    /// that line.
    fn heal(&mut self, contents: &IncidentIndex) -> Result<(), IndexError> {
        let last = contents.entries().last().filter(|entry| entry.bytes == 0);
        let Some(name) = last.and_then(|entry| entry.recording.as_ref()) else {
            return Ok(());
        };
        let outcome = self.folder.size(name).ok_or(LossCause::Killed);
        self.index.append(&outcome_line(name, outcome))
    }

    /// Writes the recording of all incidents since the previous recording, provided that the budget
    /// allows it, and then adds a line about its outcome to the index. As in
    /// [`IncidentStore::tell`], failures do not stop the recorder.
    pub fn record(
        &mut self,
        header: &Header,
        sources: &SourceTable,
        rows: impl IntoIterator<Item = Row>,
    ) -> Recorded {
        let Some(Current { at, name, entries }) = self.current.take() else {
            return Recorded::default();
        };
        let mut recorded = Recorded {
            entries,
            ..Recorded::default()
        };
        let Some(name) = name else {
            return recorded;
        };
        let written = self.write(&name, header, sources, rows);
        let outcome = written.as_ref().copied().map_err(|(cause, _)| *cause);
        for entry in &mut recorded.entries {
            entry.settle(outcome);
        }
        let noted = self.settle(&name, outcome);
        let number = recorded.entries.first().map_or(0, |entry| entry.number);
        recorded.trouble = match written {
            Ok(bytes) => {
                self.kept.push_back((number, name, bytes));
                self.bytes = self.bytes.saturating_add(bytes);
                self.lately.push_back(at);
                noted.or(self.make_room())
            }
            Err((cause, why)) => {
                *self.lost.entry(cause).or_default() += recorded.entries.len() as u64;
                why.or(noted)
            }
        };
        let kept = self.kept.back().filter(|kept| kept.0 == number);
        recorded.path = kept.map(|kept| self.folder.path_of(&kept.1));
        recorded
    }

    /// Stores a recording's outcome in the lines that have not been written yet, and adds another
    /// line about it for those that have. If that line cannot be written, returns the reason.
    fn settle(&mut self, name: &str, outcome: Result<u64, LossCause>) -> Option<String> {
        let waiting = self.waiting.iter_mut().filter_map(IndexLine::entry_mut);
        for entry in waiting.filter(|entry| entry.names(name)) {
            entry.settle(outcome);
        }
        self.note(outcome_line(name, outcome))
    }

    /// Adds a line for a recording that is missing from the index.
    ///
    /// # Errors
    /// Returns an error if the recording no longer exists, or if the index cannot be written.
    pub fn found(
        &mut self,
        found: &Unindexed,
        incident: Incident,
    ) -> Result<(), IncidentStoreError> {
        let bytes = self.folder.size(&found.name).ok_or_else(|| {
            let missing = IndexError::Io(io::ErrorKind::NotFound.into());
            IncidentStoreError::new("read", &self.folder.path_of(&found.name), &missing)
        })?;
        let entry = entry_of(found, self.next, bytes, incident);
        self.next = self.next.saturating_add(1);
        if let Some(name) = entry.recording.clone() {
            self.kept.push_back((entry.number, name, bytes));
            self.bytes = self.bytes.saturating_add(bytes);
        }
        let line = IndexLine::Incident(Box::new(entry));
        let written = self.index.append(&line);
        written.map_err(|error| self.cannot_write_index(&error))
    }

    /// Counts losses of anything other than a recording, and adds a line about them. If the line
    /// cannot be written, returns the reason.
    pub fn lose(&mut self, cause: LossCause, count: u64) -> Option<String> {
        if count == 0 {
            return None;
        }
        *self.lost.entry(cause).or_default() += count;
        self.note(IndexLine::Lost { cause, count })
    }

    /// Adds a line saying that the recorder stopped at `at`, in ms since 1970, unless the recorder
    /// never started to watch.
    ///
    /// # Errors
    /// Returns an error if the index cannot be written.
    pub fn close(mut self, at: i64) -> Result<(), IncidentStoreError> {
        let trouble = if self.watches {
            self.note(IndexLine::Ended { at_unix_ms: at })
        } else {
            self.write_waiting()
        };
        trouble.map_or(Ok(()), |why| Err(IncidentStoreError(why)))
    }

    /// Appends a line to the index. If that fails, returns the reason and keeps the line, which is
    /// then written before the next one.
    fn note(&mut self, line: IndexLine) -> Option<String> {
        self.wait(line);
        if self.waiting.len() > WAITING
            && let Some(oldest) = self.waiting.pop_front().as_ref().and_then(count_of)
        {
            self.wait(oldest);
        }
        self.write_waiting()
    }

    /// Queues a line. Counts with the same cause are merged into one line.
    fn wait(&mut self, line: IndexLine) {
        if let IndexLine::Lost { cause, count } = line {
            let mut others = self.waiting.iter_mut();
            let same = others.find_map(|line| match line {
                IndexLine::Lost {
                    cause: other,
                    count,
                } if *other == cause => Some(count),
                _ => None,
            });
            if let Some(same) = same {
                *same = same.saturating_add(count);
                return;
            }
        }
        self.waiting.push_back(line);
    }

    /// Appends all waiting lines to the index. If that fails, returns the reason.
    fn write_waiting(&mut self) -> Option<String> {
        while let Some(line) = self.waiting.front() {
            if let Err(error) = self.index.append(line) {
                return Some(self.cannot_write_index(&error).0);
            }
            self.waiting.pop_front();
        }
        None
    }

    fn cannot_write_index(&self, error: &IndexError) -> IncidentStoreError {
        IncidentStoreError::new("write", &self.folder.path_of(index::NAME), error)
    }

    /// Writes a recording. Returns its size in bytes, or the reason why it was not written.
    fn write(
        &self,
        name: &str,
        header: &Header,
        sources: &SourceTable,
        rows: impl IntoIterator<Item = Row>,
    ) -> Result<u64, (LossCause, Option<String>)> {
        let refused = |error: RecordingError| {
            let cause = match &error {
                RecordingError::Write { full: true, .. } => LossCause::DiskFull,
                _ => LossCause::NotWritten,
            };
            (cause, Some(error.to_string()))
        };
        let folder = self.folder.folder().try_clone().map_err(|error| {
            let path = self.folder.path_of(name);
            let why = IncidentStoreError::new("write", &path, &error.into());
            (LossCause::NotWritten, Some(why.0))
        })?;
        let writer = RecordingWriter::create_in_folder(folder, OsStr::new(name));
        let mut writer = writer.map_err(refused)?;
        for row in rows {
            writer.row(sources, &row);
        }
        writer.finish(header).map_err(refused)?;
        Ok(self.folder.size(name).unwrap_or(0))
    }

    /// Returns the first unused name for a recording at time `at` or later. The same millisecond
    /// can occur again if the clock was set back.
    fn free_name(&self, at: i64) -> String {
        let mut names = (at..).map(recording_name);
        let free = names.find(|name| !self.folder.folder().has(OsStr::new(name)));
        free.unwrap_or_default()
    }

    /// Removes the oldest recordings until neither their number nor their size exceeds the budget.
    /// If one cannot be removed, returns the reason.
    fn make_room(&mut self) -> Option<String> {
        let mut trouble = None;
        loop {
            let cause = if self.kept.len() as u64 > self.budget.count {
                LossCause::Count
            } else if self.bytes > self.budget.bytes {
                LossCause::Bytes
            } else {
                return trouble;
            };
            let (number, name, bytes) = self.kept.pop_front()?;
            self.bytes = self.bytes.saturating_sub(bytes);
            match self.folder.folder().remove(OsStr::new(&name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let path = self.folder.path_of(&name);
                    let why = IncidentStoreError::new("remove", &path, &error.into()).0;
                    trouble = trouble.or(Some(why));
                }
                _ => {
                    *self.lost.entry(cause).or_default() += 1;
                    trouble = trouble.or(self.note(IndexLine::Removed { number, cause }));
                }
            }
        }
    }
}

/// Returns the line about a recording's outcome, with its size or the reason why it was not kept.
fn outcome_line(name: &str, outcome: Result<u64, LossCause>) -> IndexLine {
    let recording = name.to_owned();
    match outcome {
        Ok(bytes) => IndexLine::Recorded { recording, bytes },
        Err(cause) => IndexLine::NotRecorded { recording, cause },
    }
}

/// Returns the line that replaces a dropped one and only counts what was lost; `None` if there is
/// nothing to count. An incident whose recording exists is found again through it.
fn count_of(line: &IndexLine) -> Option<IndexLine> {
    let (cause, count) = match line {
        IndexLine::Incident(entry) => (entry.not_kept?, 1),
        IndexLine::Removed { cause, .. } => (*cause, 1),
        IndexLine::Lost { cause, count } => (*cause, *count),
        // Incidents that are still waiting already contain the outcome of their recording.
        IndexLine::Recorded { .. }
        | IndexLine::NotRecorded { .. }
        | IndexLine::Began { .. }
        | IndexLine::Ended { .. } => return None,
    };
    Some(IndexLine::Lost { cause, count })
}

fn remove_unfinished(folder: &Folder) -> io::Result<()> {
    // The name has the form `.NAME.PID-N.part`. `remove_abandoned` checks the part after the last
    // dot.
    let name_of = |hidden: &str| {
        let (name, _) = hidden
            .strip_prefix('.')?
            .strip_suffix(".part")?
            .rsplit_once('.')?;
        let is_ours = name == index::NAME || time_in(name).is_some();
        is_ours.then(|| name.to_owned())
    };
    let found = folder.names()?.into_iter();
    let names: BTreeSet<String> = found
        .filter_map(|hidden| name_of(hidden.to_str()?))
        .collect();
    for name in names {
        remove_abandoned(folder, OsStr::new(&name));
    }
    Ok(())
}
