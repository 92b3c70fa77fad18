//! The folder in which a flight recorder keeps its incidents: a recording each, and an index of a line each.
//!
//! # What is on the disk
//! A recording appears under its name complete or not at all, and its line follows; both are on the disk before the
//! next incident is taken. Neither is open in between, so that the file system can be made read-only: lines then wait
//! in memory, and are written once they can be. A recorder that was killed in between leaves a recording without a line, which is
//! found again, or a hidden file without a name, which the next recorder removes. A last line without its end is
//! never read, and the next recorder cuts it off.
//!
//! # What it may hold
//! A [`Budget`] bounds how many recordings are written in an hour, how many are kept and how many bytes; then the
//! oldest go, and their lines stay. The index is bounded by itself ([`INDEX_MAX`]).

mod index;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ticktax_model::SourceTable;
use ticktax_model::disk::{self, LockedFile};
use ticktax_model::incident::{Incident, IncidentEntry, IncidentIndex, IndexLine, LossCause};
use ticktax_model::recording::{Header, RecordingError, RecordingWriter, Row, RowSink};
use ticktax_model::utc::Utc;

use index::IndexFile;

/// The bytes that an index has at most; when there are more, the older half of them is left out.
pub const INDEX_MAX: u64 = 8 << 20;

/// What the names of recordings begin and end with, around the time in UTC.
const PREFIX: &str = "incident-";
const SUFFIX: &str = ".parquet";
/// What unfinished files end with.
const UNFINISHED: &str = ".part";
const HOUR_MS: i64 = 3_600_000;
/// Lines that wait for an index that cannot be written, some KiB each; of those before only the number is kept.
const WAITING: usize = 256;

/// What a folder may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Recordings that are kept.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Recordings that are written in any hour.
    pub per_hour: u64,
}

impl Default for Budget {
    /// 1000 recordings, 1 GiB, 60 in an hour.
    fn default() -> Self {
        Self {
            count: 1_000,
            bytes: 1 << 30,
            per_hour: 60,
        }
    }
}

/// Why a folder of incidents cannot be used: one line that names it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct IncidentStoreError(String);

impl IncidentStoreError {
    fn new(what: &str, path: &Path, error: &io::Error) -> Self {
        let why = disk::words(error.kind());
        Self(format!("cannot {what} {}: {why}", path.display()))
    }
}

/// A recording of which the index does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unindexed {
    /// Where it is.
    pub path: PathBuf,
    /// When its incident was noticed, by its name: ms since 1970.
    pub at_unix_ms: i64,
}

/// A folder of incidents that is written to. One recorder at a time has it.
#[derive(Debug)]
pub struct IncidentStore {
    folder: PathBuf,
    _lock: LockedFile,
    index: IndexFile,
    budget: Budget,
    /// The recordings that are there, the oldest first: number, name and bytes.
    kept: VecDeque<(u64, String, u64)>,
    bytes: u64,
    next: u64,
    /// When recordings of the last hour were written.
    lately: VecDeque<i64>,
    lost: BTreeMap<LossCause, u64>,
    /// Lines that could not be written yet, the oldest first.
    waiting: VecDeque<IndexLine>,
    /// Whether a line says since when it watches.
    watches: bool,
}

/// What became of an incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its line.
    pub entry: IncidentEntry,
    /// Where its recording lies, where it was kept.
    pub path: Option<PathBuf>,
    /// Why something of it could not be written.
    pub trouble: Option<String>,
}

impl IncidentStore {
    /// Takes the folder, which is made where it is not there, removes what a killed recorder left unfinished, heals
    /// the index. It is `now`, ms since 1970. Also says which recordings the index lacks: they are added by
    /// [`IncidentStore::found`].
    ///
    /// # Errors
    /// The folder cannot be made or written, or another recorder has it.
    pub fn open(
        folder: &Path,
        budget: Budget,
        now: i64,
    ) -> Result<(Self, Vec<Unindexed>), IncidentStoreError> {
        let cannot =
            |error: io::Error| IncidentStoreError::new("keep incidents in", folder, &error);
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(cannot)?;
        let lock = File::open(folder).map_err(cannot)?;
        let lock = LockedFile::lock(lock).map_err(|error| match error {
            TryLockError::WouldBlock => IncidentStoreError(format!(
                "another recorder keeps its incidents in {}: end it, or choose another folder",
                folder.display()
            )),
            TryLockError::Error(error) => cannot(error),
        })?;
        remove_unfinished(folder).map_err(cannot)?;
        let (index, contents) = IndexFile::open(folder).map_err(cannot)?;
        let mut store = Self {
            folder: folder.to_owned(),
            _lock: lock,
            index,
            budget,
            kept: VecDeque::new(),
            bytes: 0,
            next: contents.last_number() + 1,
            lately: VecDeque::new(),
            lost: BTreeMap::new(),
            waiting: VecDeque::new(),
            watches: false,
        };
        store.take_stock(&contents, now);
        let unindexed = unindexed(folder, &contents).map_err(cannot)?;
        Ok((store, unindexed))
    }

    /// Notes that a recorder watches since `at`, ms since 1970. Says why that could not be noted, where it could not.
    pub fn began(&mut self, at: i64) -> Option<String> {
        self.watches = true;
        self.note(IndexLine::Began { at_unix_ms: at })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was not kept so far, by cause.
    pub fn lost(&self) -> impl Iterator<Item = (LossCause, u64)> {
        self.lost.iter().map(|(&cause, &count)| (cause, count))
    }

    /// The recordings that are there, of those that the index knows.
    fn take_stock(&mut self, contents: &IncidentIndex, now: i64) {
        for entry in contents.entries() {
            let Some(name) = entry.recording.as_ref() else {
                continue;
            };
            if self.folder.join(name).is_file() {
                self.kept
                    .push_back((entry.number, name.clone(), entry.bytes));
                self.bytes = self.bytes.saturating_add(entry.bytes);
            }
            let at = entry.incident.at_unix_ms;
            if at <= now && at > now - HOUR_MS {
                self.lately.push_back(at);
            }
        }
    }

    /// Writes the recording of an incident, if the budget allows, and its line. Nothing that goes wrong here ends the
    /// recorder: what was not kept is counted, and said.
    pub fn keep(
        &mut self,
        incident: Incident,
        header: &Header,
        (sources, rows): (&SourceTable, impl IntoIterator<Item = Row>),
    ) -> Stored {
        let at = incident.at_unix_ms;
        while self
            .lately
            .front()
            .is_some_and(|&then| then <= at - HOUR_MS || then > at)
        {
            self.lately.pop_front();
        }
        let written = if self.lately.len() as u64 >= self.budget.per_hour {
            Err((LossCause::PerHour, None))
        } else {
            self.write(at, header, (sources, rows))
        };
        let (recording, not_kept, mut trouble) = match written {
            Ok(written) => (Some(written), None, None),
            Err((cause, why)) => (None, Some(cause), why),
        };
        let entry = IncidentEntry {
            number: self.next,
            recording: recording.as_ref().map(|(name, _)| name.clone()),
            bytes: recording.as_ref().map_or(0, |(_, bytes)| *bytes),
            not_kept,
            incident,
        };
        self.next += 1;
        if let Some(cause) = not_kept {
            *self.lost.entry(cause).or_default() += 1;
        }
        trouble = trouble.or(self.note(IndexLine::Incident(Box::new(entry.clone()))));
        if let Some((name, bytes)) = recording {
            self.kept.push_back((entry.number, name, bytes));
            self.bytes = self.bytes.saturating_add(bytes);
            self.lately.push_back(at);
            trouble = trouble.or(self.make_room());
        }
        let kept = self.kept.back().filter(|kept| kept.0 == entry.number);
        Stored {
            path: kept.map(|kept| self.folder.join(&kept.1)),
            entry,
            trouble,
        }
    }

    /// Adds the line of a recording that was found.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn found(
        &mut self,
        found: &Unindexed,
        incident: Incident,
    ) -> Result<(), IncidentStoreError> {
        let cannot = |error: io::Error| IncidentStoreError::new("read", &found.path, &error);
        let bytes = fs::metadata(&found.path).map_err(cannot)?.len();
        let entry = entry_of(found, self.next, bytes, incident);
        self.next += 1;
        if let Some(name) = entry.recording.clone() {
            self.kept.push_back((entry.number, name, bytes));
            self.bytes = self.bytes.saturating_add(bytes);
        }
        let index = self.folder.join(index::NAME);
        self.index
            .append(&IndexLine::Incident(Box::new(entry)))
            .map_err(|error| IncidentStoreError::new("write", &index, &error))
    }

    /// Notes what else was not kept. Says why that could not be noted, where it could not.
    pub fn lose(&mut self, cause: LossCause, count: u64) -> Option<String> {
        if count == 0 {
            return None;
        }
        *self.lost.entry(cause).or_default() += count;
        self.note(IndexLine::Lost { cause, count })
    }

    /// Notes that the recorder ended at `at`, ms since 1970, where it ever watched.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn close(mut self, at: i64) -> Result<(), IncidentStoreError> {
        let trouble = if self.watches {
            self.note(IndexLine::Ended { at_unix_ms: at })
        } else {
            self.write_waiting()
        };
        trouble.map_or(Ok(()), |why| Err(IncidentStoreError(why)))
    }

    /// Appends a line, or says why it cannot: then it is written before the next one.
    fn note(&mut self, line: IndexLine) -> Option<String> {
        self.wait(line);
        if self.waiting.len() > WAITING
            && let Some(oldest) = self.waiting.pop_front().as_ref().and_then(count_of)
        {
            self.wait(oldest);
        }
        self.write_waiting()
    }

    /// Puts a line behind those that wait; counts of one cause become one.
    fn wait(&mut self, line: IndexLine) {
        if let IndexLine::Lost { cause, count } = line {
            let mut others = self.waiting.iter_mut();
            let same = others.find_map(|it| match it {
                IndexLine::Lost { cause: its, count } if *its == cause => Some(count),
                _ => None,
            });
            if let Some(same) = same {
                *same = same.saturating_add(count);
                return;
            }
        }
        self.waiting.push_back(line);
    }

    /// Appends all lines that wait, or says why it cannot.
    fn write_waiting(&mut self) -> Option<String> {
        while let Some(line) = self.waiting.front() {
            if let Err(error) = self.index.append(line) {
                let index = self.folder.join(index::NAME);
                return Some(IncidentStoreError::new("write", &index, &error).0);
            }
            self.waiting.pop_front();
        }
        None
    }

    /// Writes a recording: its name and its bytes, or why not.
    fn write(
        &self,
        at: i64,
        header: &Header,
        (sources, rows): (&SourceTable, impl IntoIterator<Item = Row>),
    ) -> Result<(String, u64), (LossCause, Option<String>)> {
        let refused = |error: RecordingError| {
            let cause = match &error {
                RecordingError::Write { full: true, .. } => LossCause::DiskFull,
                _ => LossCause::NotWritten,
            };
            (cause, Some(error.to_string()))
        };
        let (name, path) = self.free_name(at);
        let mut writer = RecordingWriter::create_private(&path).map_err(refused)?;
        for row in rows {
            writer.row(sources, &row);
        }
        writer.finish(header).map_err(refused)?;
        let bytes = fs::metadata(&path).map_or(0, |facts| facts.len());
        Ok((name, bytes))
    }

    /// A name of this time that no file has; a clock that was set back may come to the same ms twice.
    fn free_name(&self, at: i64) -> (String, PathBuf) {
        let mut names =
            (at..).map(|at| format!("{PREFIX}{}{SUFFIX}", Utc::from_unix_ms(at).basic()));
        let free = names.find(|name| !self.folder.join(name).exists());
        let name = free.unwrap_or_default();
        let path = self.folder.join(&name);
        (name, path)
    }

    /// Removes the oldest recordings while there are too many, or too many bytes. Says what could not be removed.
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
            let path = self.folder.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let why = IncidentStoreError::new("remove", &path, &error).0;
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

/// What is left of a line for which there is no room. The incident of a recording that is there is found again.
fn count_of(line: &IndexLine) -> Option<IndexLine> {
    let (cause, count) = match line {
        IndexLine::Incident(entry) => (entry.not_kept?, 1),
        IndexLine::Removed { cause, .. } => (*cause, 1),
        IndexLine::Lost { cause, count } => (*cause, *count),
        IndexLine::Began { .. } | IndexLine::Ended { .. } => return None,
    };
    Some(IndexLine::Lost { cause, count })
}

/// What a folder of incidents holds, whoever writes to it meanwhile; and which recordings its index lacks.
///
/// # Errors
/// There is no such folder, or it cannot be read.
pub fn read_incidents(
    folder: &Path,
) -> Result<(IncidentIndex, Vec<Unindexed>), IncidentStoreError> {
    let cannot = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => IncidentStoreError(format!(
            "no incidents in {}: `ticktax record --trigger 'wait>5ms'` keeps them there",
            folder.display()
        )),
        _ => IncidentStoreError::new("read the incidents in", folder, &error),
    };
    // The folder first: a recording that is written meanwhile is in the index by the time that is read, or in
    // neither.
    let names = recordings(folder).map_err(cannot)?;
    let contents = match fs::read(folder.join(index::NAME)) {
        Ok(bytes) => index::parse(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => IncidentIndex::default(),
        Err(error) => return Err(cannot(error)),
    };
    let unindexed = lacking(folder, names, &contents);
    Ok((contents, unindexed))
}

/// Adds an incident that was found in a recording of which the index does not tell.
pub fn add_found(contents: &mut IncidentIndex, found: &Unindexed, incident: Incident) {
    let bytes = fs::metadata(&found.path).map_or(0, |facts| facts.len());
    let entry = entry_of(found, contents.last_number() + 1, bytes, incident);
    contents.lines.push(IndexLine::Incident(Box::new(entry)));
    contents.found_again += 1;
}

fn entry_of(found: &Unindexed, number: u64, bytes: u64, incident: Incident) -> IncidentEntry {
    let name = found.path.file_name();
    IncidentEntry {
        number,
        recording: name.map(|name| name.to_string_lossy().into_owned()),
        bytes,
        not_kept: None,
        incident,
    }
}

/// Recordings that the index lacks.
fn unindexed(folder: &Path, contents: &IncidentIndex) -> io::Result<Vec<Unindexed>> {
    Ok(lacking(folder, recordings(folder)?, contents))
}

fn lacking(folder: &Path, names: Vec<(i64, String)>, contents: &IncidentIndex) -> Vec<Unindexed> {
    let known: Vec<&str> = contents
        .entries()
        .filter_map(|entry| entry.recording.as_deref())
        .collect();
    let names = names.into_iter();
    names
        .filter(|(_, name)| !known.contains(&&**name))
        .map(|(at_unix_ms, name)| Unindexed {
            path: folder.join(name),
            at_unix_ms,
        })
        .collect()
}

/// The recordings of a folder by their times.
fn recordings(folder: &Path) -> io::Result<Vec<(i64, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let Ok(name) = entry?.file_name().into_string() else {
            continue;
        };
        let time = name
            .strip_prefix(PREFIX)
            .and_then(|it| it.strip_suffix(SUFFIX));
        if let Some(at) = time.and_then(Utc::from_basic) {
            found.push((at.unix_ms(), name));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Removes what killed recorders left under hidden names. The folder's lock is held, so nobody writes to them.
fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let hidden = name
            .strip_prefix('.')
            .is_some_and(|name| name.starts_with(PREFIX) || name.starts_with(index::NAME));
        if hidden && name.ends_with(UNFINISHED) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
