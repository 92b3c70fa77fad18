//! The journal: records each planned change on disk before it is made.
//!
//! A line is JSON with a checksum:
//! - `Began`: the boot during which the following lines were written, and the run that wrote them.
//! - `Intended`: a setting is about to change; its original value.
//! - `Written`: the value read back.
//! - `Undone`: the setting needs no further action.
//! - `Making`: a cgroup is about to be created.
//! - `Dissolved`: the cgroup is gone.
//!
//! The process may be killed at any point. A truncated line was not yet on disk, so the change that
//! it announces was not started.
//!
//! The file is locked while open, and is not deleted when empty. Otherwise two runs could lock two
//! different files of the same name.
//!
//! Root writes the journal's values into the kernel, so the journal is only read if no other user
//! could have written it. It must be a regular file of the effective user in a [`Folder`] of that
//! user, below folders that only this user and root can change. A file that does not start like a
//! journal is other data and is not touched. `end.rs` handles unreadable lines.

mod end;

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use ticktax_model::knob::UndoOutcome;
use ticktax_store::disk::{self, Folder, LockedFile};

use crate::error::KnobError;
use crate::target::Target;

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Record {
    /// A run starts to change settings.
    Began {
        /// The kernel's id of the boot.
        boot: String,
        /// The run: a command with its PID.
        by: String,
        /// Start time, ms since 1970.
        at_unix_ms: i64,
    },
    /// A setting is about to change.
    Intended {
        knob: String,
        target: Target,
        /// Distinguishes the target from a later one with the same name.
        identity: String,
        old: String,
        new: String,
        /// Whether the kernel changes it along with another setting, whose line follows.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        along: bool,
    },
    /// The setting was read back.
    Written {
        knob: String,
        target: Target,
        value: String,
    },
    /// The setting needs no further action.
    Undone {
        knob: String,
        target: Target,
        outcome: UndoOutcome,
    },
    /// A cgroup is about to be created.
    Making {
        folder: PathBuf,
        /// Cgroup that its processes return to when it is removed.
        home: PathBuf,
    },
    /// The cgroup is gone.
    Dissolved { folder: PathBuf },
}

/// A point at which tests kill a run, named after the action just completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The journal is open and locked.
    Locked,
    /// Half of a line is written.
    HalfLine,
    /// A line is written, but might not be on disk.
    Line,
    /// The line is on disk.
    Synced,
    /// A setting has its new value.
    Set,
    /// A setting has its original value again.
    PutBack,
    /// The journal is empty again.
    Cleared,
}

impl Step {
    /// All steps.
    pub const ALL: [Self; 7] = [
        Self::Locked,
        Self::HalfLine,
        Self::Line,
        Self::Synced,
        Self::Set,
        Self::PutBack,
        Self::Cleared,
    ];
}

/// Callback for each step, for tests that stop there.
pub type OnStep = Box<dyn FnMut(Step)>;

/// An open journal.
pub(crate) struct Journal {
    path: PathBuf,
    file: LockedFile,
    /// Position of the next line.
    end: u64,
    /// Reason to leave the file unchanged. If set, lines are neither written nor cut.
    frozen: Option<KnobError>,
    on_step: OnStep,
}

/// Readable lines of a journal.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) records: Vec<Record>,
    /// Number of unreadable lines.
    pub(crate) damaged: u64,
    /// Copy of an unreadable end that was cut off.
    pub(crate) copy: Option<PathBuf>,
}

impl Contents {
    /// The run that wrote last.
    pub(crate) fn by(&self) -> Option<&str> {
        let mut latest = self.records.iter().rev();
        latest.find_map(|record| match record {
            Record::Began { by, .. } => Some(&**by),
            _ => None,
        })
    }
}

/// A journal's file and its folder.
struct Opened<'a> {
    folder: Folder,
    name: &'a OsStr,
    file: File,
}

impl<'a> Opened<'a> {
    /// Opens the file in the folder that `open` returns.
    fn new(
        path: &'a Path,
        create: bool,
        open: impl FnOnce(&Path) -> io::Result<Folder>,
    ) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let folder = open(path.parent().unwrap_or(Path::new("")))?;
        let file = folder.write(name, create, 0o600)?;
        // Syncing the folder puts the file's name on disk.
        folder.sync();
        Ok(Self { folder, name, file })
    }
}

impl Journal {
    /// Opens and locks the journal, and creates it if necessary.
    ///
    /// # Errors
    /// Another run holds it, another user could have written it, a line before its end is
    /// unreadable, or it cannot be used.
    pub(crate) fn open(path: &Path, on_step: OnStep) -> Result<(Self, Contents), KnobError> {
        let opened = Opened::new(path, true, |folder| Folder::make_trusted(folder, 0o700));
        let opened = opened.map_err(|error| trouble("open", path, &error))?;
        let (journal, contents) = Self::locked(path, opened, on_step)?;
        match journal.frozen {
            Some(why) => Err(why),
            None => Ok((journal, contents)),
        }
    }

    /// Opens and locks an existing journal for an undo; `None` if it does not exist.
    ///
    /// # Errors
    /// Another run holds it, another user could have written it, or it cannot be used.
    pub(crate) fn open_existing(
        path: &Path,
        on_step: OnStep,
    ) -> Result<Option<(Self, Contents)>, KnobError> {
        match Opened::new(path, false, Folder::open_trusted) {
            Ok(opened) => Self::locked(path, opened, on_step).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(trouble("open", path, &error)),
        }
    }

    fn locked(
        path: &Path,
        opened: Opened<'_>,
        on_step: OnStep,
    ) -> Result<(Self, Contents), KnobError> {
        let cannot = |error: io::Error| trouble("read", path, &error);
        let other = opened.file.try_clone().map_err(cannot)?;
        let mut file = LockedFile::lock(opened.file).map_err(|error| match error {
            TryLockError::WouldBlock => busy(path, other),
            TryLockError::Error(error) => trouble("lock", path, &error),
        })?;
        let bytes = read(&mut file).map_err(cannot)?;
        let bytes = bytes.ok_or_else(|| KnobError::NotJournal {
            path: path.to_owned(),
        })?;
        let mut parsed = end::parse(&bytes);
        let mut frozen = None;
        let (lines, rest) = bytes.split_at(parsed.readable);
        if parsed.between > 0 {
            frozen = Some(KnobError::DamagedJournal {
                path: path.to_owned(),
                lines: parsed.between,
            });
        } else if !rest.is_empty() {
            match end::copy(&opened.folder, opened.name, rest) {
                Ok(name) => parsed.contents.copy = Some(path.with_file_name(name)),
                Err(error) => frozen = Some(trouble("copy the unreadable end of", path, &error)),
            }
        }
        let mut journal = Self {
            path: path.to_owned(),
            file,
            end: lines.len() as u64,
            frozen,
            on_step,
        };
        journal
            .cut()
            .map_err(|error| trouble("cut", path, &error))?;
        journal.step(Step::Locked);
        Ok((journal, parsed.contents))
    }

    /// Reason to leave the file unchanged, even with nothing left to undo.
    pub(crate) fn frozen(&self) -> Option<&KnobError> {
        self.frozen.as_ref()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Notifies the test's callback.
    pub(crate) fn step(&mut self, step: Step) {
        (self.on_step)(step);
    }

    /// Appends a line and syncs it to disk. If that fails, the partial line is removed.
    pub(crate) fn append(&mut self, record: &Record) -> Result<(), KnobError> {
        if self.frozen.is_some() {
            return Ok(());
        }
        let unwritable = || KnobError::Journal {
            verb: "write",
            path: self.path.clone(),
            why: "one of its paths is not valid UTF-8".to_owned(),
        };
        let line = disk::checked_line(record).map_err(|_| unwritable())?;
        if let Err(error) = self.write(&line) {
            // If even the cut fails, the next run ignores a partial line.
            let _ = self.cut();
            return Err(trouble("write", &self.path, &error));
        }
        self.end += line.len() as u64;
        self.step(Step::Synced);
        Ok(())
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.end))?;
        let (first, second) = line.split_at(line.len() / 2);
        self.file.write_all(first)?;
        self.step(Step::HalfLine);
        self.file.write_all(second)?;
        self.step(Step::Line);
        self.file.sync_all()
    }

    /// Empties the journal when nothing is left to undo.
    pub(crate) fn clear(&mut self) -> Result<(), KnobError> {
        if self.frozen.is_some() {
            return Ok(());
        }
        self.end = 0;
        let cleared = self.cut();
        cleared.map_err(|error| trouble("clear", &self.path, &error))?;
        self.step(Step::Cleared);
        Ok(())
    }

    /// Truncates the file to its end position.
    fn cut(&mut self) -> io::Result<()> {
        if self.frozen.is_none() && self.file.metadata()?.len() != self.end {
            self.file.set_len(self.end)?;
            self.file.sync_all()?;
        }
        Ok(())
    }
}

/// Bytes of a journal; `None` if the file does not start like a journal. Only its beginning is read
/// in that case.
fn read(file: &mut File) -> io::Result<Option<Vec<u8>>> {
    let mut reader = BufReader::new(file);
    let mut bytes = Vec::new();
    let mut first = reader.by_ref().take(end::LONGEST_FIRST);
    first.read_until(b'\n', &mut bytes)?;
    if !end::begins_journal(&bytes) {
        return Ok(None);
    }
    reader.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Error that names the run holding the lock. It reads the journal through the handle that could
/// not be locked.
fn busy(path: &Path, mut other: File) -> KnobError {
    let bytes = read(&mut other).ok().flatten().unwrap_or_default();
    let contents = end::parse(&bytes).contents;
    KnobError::Busy {
        path: path.to_owned(),
        by: contents.by().unwrap_or("another ticktax").to_owned(),
    }
}

fn trouble(verb: &'static str, path: &Path, error: &io::Error) -> KnobError {
    // Permission errors from ticktax's own checks already contain a remedy.
    let is_denied = error.kind() == io::ErrorKind::PermissionDenied && error.get_ref().is_none();
    let why = if is_denied {
        "permission denied; run as root".to_owned()
    } else {
        disk::error_words(error)
    };
    KnobError::Journal {
        verb,
        path: path.to_owned(),
        why,
    }
}
