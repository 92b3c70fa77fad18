//! The journal: what a run is about to change, a line each, on the disk before anything changes.
//!
//! A line is checksummed JSON. `Began` says on which boot of the machine the lines after it were
//! written, and by whom; `Intended` that a setting is about to change, with what it was; `Written`
//! what it was when it was read back; `Undone` that nothing is left to do about it; `Making` that a
//! cgroup is about to be made, and `Dissolved` that it is gone. A process may be killed anywhere in
//! between: a line that is cut short was not on the disk yet, so what it announces was not begun.
//!
//! The file is locked while it is open, and stays when it is empty: there is never a moment at
//! which two runs lock two files of one name.
//!
//! Root writes what the journal says into the kernel, so the journal is read only if nobody but the
//! effective user could have written it: the file is a regular one of this user in a [`Folder`] of
//! this user, below folders that only this user and root can change. A file that does not begin as
//! a journal does is somebody's data and is left alone. `end.rs` says what happens to lines that
//! cannot be read.

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
    /// A run begins to change settings.
    Began {
        /// The kernel's name for the boot.
        boot: String,
        /// Who: a command with its PID.
        by: String,
        /// When, ms since 1970.
        at_unix_ms: i64,
    },
    /// A setting is about to change.
    Intended {
        knob: String,
        target: Target,
        /// What tells the target from a later one of its name.
        identity: String,
        old: String,
        new: String,
        /// The kernel changes it along with another, whose line follows.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        along: bool,
    },
    /// It was read back.
    Written {
        knob: String,
        target: Target,
        value: String,
    },
    /// Nothing is left to do about it.
    Undone {
        knob: String,
        target: Target,
        outcome: UndoOutcome,
    },
    /// A cgroup is about to be made.
    Making {
        folder: PathBuf,
        /// Where its processes belong once it is gone.
        home: PathBuf,
    },
    /// It is gone.
    Dissolved { folder: PathBuf },
}

/// A point at which a run may be killed: what was just done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The journal is open and locked.
    Locked,
    /// Half of a line is written.
    HalfLine,
    /// A line is written, and perhaps not on the disk.
    Line,
    /// It is on the disk.
    Synced,
    /// A setting has been given its new value.
    Set,
    /// A setting has been given its old value.
    PutBack,
    /// The journal is empty again.
    Cleared,
}

impl Step {
    /// Every one.
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

/// Hears of each step, for tests that stop there.
pub type OnStep = Box<dyn FnMut(Step)>;

/// An open journal.
pub(crate) struct Journal {
    path: PathBuf,
    file: LockedFile,
    /// Where the next line goes.
    end: u64,
    /// Reason to leave the file unchanged: no line is written then, and nothing is cut.
    frozen: Option<KnobError>,
    on_step: OnStep,
}

/// Readable lines of a journal.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) records: Vec<Record>,
    /// Lines that could not be read.
    pub(crate) damaged: u64,
    /// Copy of an unreadable end that was cut off.
    pub(crate) copy: Option<PathBuf>,
}

impl Contents {
    /// Who wrote last.
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
    /// Opens the file in a folder that `open` opens.
    fn new(
        path: &'a Path,
        create: bool,
        open: impl FnOnce(&Path) -> io::Result<Folder>,
    ) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let folder = open(path.parent().unwrap_or(Path::new("")))?;
        let file = folder.write(name, create, 0o600)?;
        // The name is on the disk once its folder is.
        folder.sync();
        Ok(Self { folder, name, file })
    }
}

impl Journal {
    /// Opens and locks the journal, and makes it where it is not there.
    ///
    /// # Errors
    /// Another run has it, somebody else could have written it, a line before its end cannot be
    /// read, or it cannot be used.
    pub(crate) fn open(path: &Path, on_step: OnStep) -> Result<(Self, Contents), KnobError> {
        let opened = Opened::new(path, true, |folder| Folder::make_trusted(folder, 0o700));
        let opened = opened.map_err(|error| trouble("open", path, &error))?;
        let (journal, contents) = Self::locked(path, opened, on_step)?;
        match journal.frozen {
            Some(why) => Err(why),
            None => Ok((journal, contents)),
        }
    }

    /// Opens and locks a journal for putting back what it says; `None` where it is not there.
    ///
    /// # Errors
    /// Another run has it, somebody else could have written it, or it cannot be used.
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

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Tells the test that listens.
    pub(crate) fn step(&mut self, step: Step) {
        (self.on_step)(step);
    }

    /// Puts a line at the end, and on the disk. Where that fails, nothing of it stays.
    pub(crate) fn append(&mut self, record: &Record) -> Result<(), KnobError> {
        if self.frozen.is_some() {
            return Ok(());
        }
        let unwritable = || KnobError::Journal {
            verb: "write",
            path: self.path.clone(),
            why: "a path in it is no UTF-8".to_owned(),
        };
        let line = disk::checked_line(record).map_err(|_| unwritable())?;
        if let Err(error) = self.write(&line) {
            // Where even that fails, the next run leaves a cut line out.
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

    /// Empties it: nothing is left to undo.
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

    /// Takes away what is beyond its end.
    fn cut(&mut self) -> io::Result<()> {
        if self.frozen.is_none() && self.file.metadata()?.len() != self.end {
            self.file.set_len(self.end)?;
            self.file.sync_all()?;
        }
        Ok(())
    }
}

/// The bytes of a journal; `None` if the file begins as no journal does. Only its beginning is read
/// then.
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

/// Error that names the run that holds the lock, read through the handle that could not be locked.
fn busy(path: &Path, mut other: File) -> KnobError {
    let bytes = read(&mut other).ok().flatten().unwrap_or_default();
    let contents = end::parse(&bytes).contents;
    KnobError::Busy {
        path: path.to_owned(),
        by: contents.by().unwrap_or("another ticktax").to_owned(),
    }
}

fn trouble(verb: &'static str, path: &Path, error: &io::Error) -> KnobError {
    // A refusal of our own has its remedy.
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
