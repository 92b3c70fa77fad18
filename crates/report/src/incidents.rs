//! The folder in which a flight recorder keeps its incidents: a recording each, and an index of a line each.
//!
//! # What is on the disk
//! An incident's line comes first, with the name that its recording is to have, which may go on for seconds and hold
//! further incidents. Then the recording appears under its name complete or not at all, and a line says so. Nothing is open in
//! between, so that the file system can be made read-only: lines then wait
//! in memory, and are written once they can be. A recorder that was killed leaves lines whose recording is not there, and
//! a hidden file without a name, which the next recorder removes. A recording that no line names is
//! found again. A last line without its end is never read, and the next recorder cuts it off.
//!
//! # What it may hold
//! A [`Budget`] bounds how many recordings are written in an hour, how many are kept and how many bytes; then the
//! oldest go, and their lines stay. The index is bounded by itself ([`INDEX_MAX`]).

mod index;
mod reading;
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

pub use reading::{add_found, read_incidents};

use reading::{entry_of, unindexed};

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
    /// The recording that goes on.
    current: Option<Current>,
}

/// A recording that incidents were told of, and that is not written yet.
#[derive(Debug)]
struct Current {
    /// When the first of them was noticed, ms since 1970.
    at: i64,
    /// The name that it is to have; `None` where the budget does not allow it.
    name: Option<String>,
    entries: Vec<IncidentEntry>,
}

/// An incident that is in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its line.
    pub entry: IncidentEntry,
    /// Where its recording will be.
    pub path: Option<PathBuf>,
    /// Why something of it could not be written.
    pub trouble: Option<String>,
}

/// What became of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Its incidents, with its size or why it was not kept.
    pub entries: Vec<IncidentEntry>,
    /// Where it lies, where it was kept.
    pub path: Option<PathBuf>,
    /// Why something could not be written.
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
            current: None,
        };
        store.take_stock(&contents, now);
        store.heal(&contents).map_err(cannot)?;
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
        let mut last = None;
        for entry in contents.entries() {
            let Some(name) = entry.recording.as_ref() else {
                continue;
            };
            if last.replace(name) == Some(name) {
                continue;
            }
            if let Some(bytes) = size(&self.folder.join(name)) {
                self.kept.push_back((entry.number, name.clone(), bytes));
                self.bytes = self.bytes.saturating_add(bytes);
            }
            let at = entry.incident.at_unix_ms;
            if at <= now && at > now - HOUR_MS {
                self.lately.push_back(at);
            }
        }
    }

    /// Puts an incident into the index, as one of the recording that goes on; the first begins one, if the budget allows.
    /// Nothing that goes wrong here ends the recorder: what was not kept is counted, and said.
    pub fn tell(&mut self, incident: Incident) -> Told {
        if self.current.is_none() {
            self.current = Some(self.begin(incident.at_unix_ms));
        }
        let name = self.current.as_ref().and_then(|it| it.name.clone());
        let not_kept = name.is_none().then_some(LossCause::PerHour);
        let entry = IncidentEntry {
            number: self.next,
            recording: name,
            bytes: 0,
            not_kept,
            incident,
        };
        self.next += 1;
        if let Some(cause) = not_kept {
            *self.lost.entry(cause).or_default() += 1;
        }
        if let Some(current) = &mut self.current {
            current.entries.push(entry.clone());
        }
        let trouble = self.note(IndexLine::Incident(Box::new(entry.clone())));
        let name = entry.recording.as_ref();
        Told {
            path: name.map(|name| self.folder.join(name)),
            entry,
            trouble,
        }
    }

    /// A recording whose first incident was noticed at this time.
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

    /// Says what became of a recording whose recorder was killed before it said so.
    fn heal(&mut self, contents: &IncidentIndex) -> io::Result<()> {
        let last = contents.entries().last().filter(|entry| entry.bytes == 0);
        let Some(name) = last.and_then(|entry| entry.recording.as_ref()) else {
            return Ok(());
        };
        let became = size(&self.folder.join(name)).ok_or(LossCause::Killed);
        self.index.append(&what_became(name, became))
    }

    /// Writes the recording of the incidents that were told of since the last one, if the budget allows, and says so in the
    /// index. Nothing that goes wrong here ends the recorder, as above.
    pub fn record(
        &mut self,
        header: &Header,
        (sources, rows): (&SourceTable, impl IntoIterator<Item = Row>),
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
        let written = self.write(&name, header, (sources, rows));
        let became = written.as_ref().copied().map_err(|(cause, _)| *cause);
        for entry in &mut recorded.entries {
            entry.settle(became);
        }
        let noted = self.settle(&name, became);
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
        recorded.path = kept.map(|kept| self.folder.join(&kept.1));
        recorded
    }

    /// Says in the index what became of a recording, in a line of its own where those of its incidents are written.
    fn settle(&mut self, name: &str, became: Result<u64, LossCause>) -> Option<String> {
        let waiting = self.waiting.iter_mut().filter_map(IndexLine::entry_mut);
        for entry in waiting.filter(|entry| entry.names(name)) {
            entry.settle(became);
        }
        self.note(what_became(name, became))
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

    /// Writes a recording: its bytes, or why not.
    fn write(
        &self,
        name: &str,
        header: &Header,
        (sources, rows): (&SourceTable, impl IntoIterator<Item = Row>),
    ) -> Result<u64, (LossCause, Option<String>)> {
        let refused = |error: RecordingError| {
            let cause = match &error {
                RecordingError::Write { full: true, .. } => LossCause::DiskFull,
                _ => LossCause::NotWritten,
            };
            (cause, Some(error.to_string()))
        };
        let path = self.folder.join(name);
        let mut writer = RecordingWriter::create_private(&path).map_err(refused)?;
        for row in rows {
            writer.row(sources, &row);
        }
        writer.finish(header).map_err(refused)?;
        Ok(fs::metadata(&path).map_or(0, |facts| facts.len()))
    }

    /// A name of this time that no file has; a clock that was set back may come to the same ms twice.
    fn free_name(&self, at: i64) -> String {
        let mut names =
            (at..).map(|at| format!("{PREFIX}{}{SUFFIX}", Utc::from_unix_ms(at).basic()));
        let free = names.find(|name| !self.folder.join(name).exists());
        free.unwrap_or_default()
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

/// The bytes of a recording that is there.
fn size(path: &Path) -> Option<u64> {
    let facts = fs::metadata(path).ok().filter(fs::Metadata::is_file);
    facts.map(|facts| facts.len())
}

/// The line about a recording that is there, with its bytes, or was not kept.
fn what_became(name: &str, became: Result<u64, LossCause>) -> IndexLine {
    let recording = name.to_owned();
    match became {
        Ok(bytes) => IndexLine::Recorded { recording, bytes },
        Err(cause) => IndexLine::NotRecorded { recording, cause },
    }
}

/// What is left of a line for which there is no room. The incident of a recording that is there is found again.
fn count_of(line: &IndexLine) -> Option<IndexLine> {
    let (cause, count) = match line {
        IndexLine::Incident(entry) => (entry.not_kept?, 1),
        IndexLine::Removed { cause, .. } => (*cause, 1),
        IndexLine::Lost { cause, count } => (*cause, *count),
        // What became of a recording each of its incidents says itself, if there is room for that.
        IndexLine::Recorded { .. }
        | IndexLine::NotRecorded { .. }
        | IndexLine::Began { .. }
        | IndexLine::Ended { .. } => return None,
    };
    Some(IndexLine::Lost { cause, count })
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
