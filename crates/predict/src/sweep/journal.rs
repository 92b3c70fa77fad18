//! The journal of a sweep. It has one line per finished arm, and is kept until the results are
//! complete.
//!
//! The first line identifies the sweep. Every other line records an arm. A line that a kill or a
//! crash has truncated or damaged is ignored, and its arm is run again. Lines are flushed to disk
//! about once per second, so a power failure destroys no more than the last second's lines.

use std::ffi::{OsStr, OsString};
use std::fs::TryLockError;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use ticktax_model::table::Cell;
use ticktax_store::disk::{self, Folder, LockedFile};

use super::plan::{Identity, Plan};
use super::{SweepError, journal_of};

/// A finished arm's journal entry.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(rename = "point")]
    pub(super) arm: usize,
    /// The arm's results, or an empty list if it failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) cells: Vec<Cell>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    folder: Folder,
    name: OsString,
    file: LockedFile,
    /// Offset and length of each arm's line, by arm number. `None` if the arm has no line.
    places: Vec<Option<(u64, usize)>>,
    end: u64,
    done: usize,
    /// Number of lines that were ignored because they were damaged.
    pub(super) damaged: u64,
}

impl Journal {
    /// Opens the journal of `results`, or creates it, and locks it.
    pub(super) fn open(results: &Path, plan: &Plan) -> Result<Self, SweepError> {
        let path = journal_of(results);
        let name = path.file_name().unwrap_or_default().to_owned();
        let (folder, file) = locked(&path, &name).map_err(|why| match why {
            TryLockError::WouldBlock => SweepError::Busy {
                results: results.to_owned(),
            },
            TryLockError::Error(error) => SweepError::Create {
                results: results.to_owned(),
                why: disk::error_words(&error),
            },
        })?;
        let mut journal = Self {
            path,
            folder,
            name,
            file,
            places: vec![None; plan.grid().len()],
            end: 0,
            done: 0,
            damaged: 0,
        };
        if !journal.read_head(plan.identity())? {
            let head = line(plan.identity());
            journal
                .file
                .set_len(0)
                .map_err(|error| journal.error("write", &error))?;
            journal.append(&head)?;
            journal.sync()?;
        }
        journal.read_points(plan)?;
        Ok(journal)
    }

    /// Returns the number of finished arms in the journal.
    pub(super) fn done(&self) -> usize {
        self.done
    }

    pub(super) fn has(&self, arm: usize) -> bool {
        self.places.get(arm).is_some_and(Option::is_some)
    }

    /// Appends an entry for a finished arm.
    pub(super) fn add(&mut self, record: &Record) -> Result<(), SweepError> {
        let line = line(record);
        let begin = self.end;
        self.append(&line)?;
        self.note(record.arm, begin, line.len());
        Ok(())
    }

    /// Flushes the added entries to disk.
    pub(super) fn sync(&self) -> Result<(), SweepError> {
        self.file
            .sync_data()
            .map_err(|error| self.error("write", &error))
    }

    /// Reads the entry for `arm`. Returns `None` if the arm has not finished.
    pub(super) fn get(&self, arm: usize) -> Result<Option<Record>, SweepError> {
        let Some(&Some((begin, length))) = self.places.get(arm) else {
            return Ok(None);
        };
        let mut bytes = vec![0; length];
        self.file
            .read_exact_at(&mut bytes, begin)
            .map_err(|error| self.error("read", &error))?;
        disk::read_checked_line(&bytes)
            .map(Some)
            .ok_or_else(|| SweepError::Journal {
                verb: "read",
                path: self.path.clone(),
                why: "another program wrote to it".to_owned(),
                kept: self.done,
            })
    }

    /// Removes the journal. Call this once the results are complete, or if there was nothing to do.
    pub(super) fn remove(self) -> Result<(), SweepError> {
        let removed = self.folder.remove(&self.name);
        removed.map_err(|error| self.error("remove", &error))
    }

    fn append(&mut self, line: &[u8]) -> Result<(), SweepError> {
        let written = self
            .file
            .seek(SeekFrom::Start(self.end))
            .and_then(|_| self.file.write_all(line));
        if let Err(error) = written {
            // Discard the incomplete line.
            let _ = self.file.set_len(self.end);
            return Err(self.error("write", &error));
        }
        self.end += line.len() as u64;
        Ok(())
    }

    fn note(&mut self, arm: usize, begin: u64, length: usize) {
        let place = &mut self.places[arm];
        self.done += usize::from(place.is_none());
        *place = Some((begin, length));
    }

    /// Reads the first line and checks that it identifies this sweep. Returns `false` if the first
    /// line has not been written yet.
    fn read_head(&mut self, ours: &Identity) -> Result<bool, SweepError> {
        let mut first = Vec::new();
        BufReader::new(&*self.file)
            .read_until(b'\n', &mut first)
            .map_err(|error| self.error("read", &error))?;
        if !first.ends_with(b"\n") && line(ours).starts_with(&first) {
            // The file is empty, or the process that created it was killed while writing the first
            // line.
            return Ok(false);
        }
        let other = |what: String| {
            Err(SweepError::Other {
                path: self.path.clone(),
                what,
            })
        };
        let Some(theirs) = disk::read_checked_line::<Identity>(&first) else {
            return other("is not the journal of a sweep, or its first line is damaged".to_owned());
        };
        if let Some(what) = difference(&theirs, ours) {
            return other(format!("belongs to a sweep {what}"));
        }
        self.end = first.len() as u64;
        Ok(true)
    }

    /// Reads all arms' entries, and cuts off the last line if it is incomplete.
    fn read_points(&mut self, plan: &Plan) -> Result<(), SweepError> {
        let outcomes = &plan.columns()[plan.before_outcomes()..];
        let fits = |record: &Record| {
            let cells = &record.cells;
            let mut pairs = cells.iter().zip(outcomes);
            let is_complete = match record.error {
                Some(_) => cells.is_empty(),
                None => cells.len() == outcomes.len(),
            };
            is_complete
                && record.arm < plan.grid().len()
                && pairs.all(|(cell, column)| cell.fits(column.values))
        };
        let again = self
            .file
            .try_clone()
            .map_err(|error| self.error("read", &error))?;
        let mut reader = BufReader::new(again);
        let mut end = self.end;
        let found = reader.seek(SeekFrom::Start(end));
        found.map_err(|error| self.error("read", &error))?;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = reader.read_until(b'\n', &mut bytes);
            let length = read.map_err(|error| self.error("read", &error))?;
            if !bytes.ends_with(b"\n") {
                break;
            }
            match disk::read_checked_line::<Record>(&bytes).filter(&fits) {
                Some(record) => self.note(record.arm, end, length),
                None => self.damaged += 1,
            }
            end += length as u64;
        }
        self.end = end;
        let cut = self.file.set_len(end);
        cut.map_err(|error| self.error("write", &error))
    }

    fn error(&self, verb: &'static str, error: &io::Error) -> SweepError {
        SweepError::Journal {
            verb,
            path: self.path.clone(),
            why: disk::error_words(error),
            kept: self.done,
        }
    }
}

/// Opens the journal, creating it if necessary, and locks it. Refuses symbolic links and other
/// users' files, because the journal may be truncated and its lines become results.
fn locked(path: &Path, name: &OsStr) -> Result<(Folder, LockedFile), TryLockError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let folder = Folder::open(folder).map_err(TryLockError::Error)?;
    loop {
        let file = folder.write(name, true, 0o644);
        let file = LockedFile::lock(file.map_err(TryLockError::Error)?)?;
        // The previous owner of the lock might have removed the file, so check that the path still
        // leads to it.
        let ours = file.metadata().map_err(TryLockError::Error)?;
        match folder.read(name).and_then(|there| there.metadata()) {
            Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => {
                return Ok((folder, file));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(TryLockError::Error(error));
            }
            _ => {}
        }
    }
}

/// Describes how a different sweep's identity differs from ours. Returns `None` if they are equal.
pub(super) fn difference(theirs: &Identity, ours: &Identity) -> Option<String> {
    if theirs.sweep != ours.sweep || theirs.ticktax != ours.ticktax {
        return Some(format!(
            "by ticktax {} (this is {})",
            theirs.ticktax, ours.ticktax
        ));
    }
    if theirs.axes != ours.axes {
        let axes = theirs.axes.join(" ");
        let axes = if axes.is_empty() {
            "none".to_owned()
        } else {
            axes
        };
        return Some(format!("with different axes ({axes})"));
    }
    (theirs.scenario != ours.scenario).then(|| "of a different scenario".to_owned())
}

fn line(content: &impl Serialize) -> Vec<u8> {
    disk::checked_line(content).expect("a record has only string keys")
}
