//! The journal: what a run is about to change, a line each, on the disk before anything changes.
//!
//! A line is checksummed JSON. `Began` says on which boot of the machine the lines after it were
//! written, and by whom; `Intended` that a setting is about to change, with what it was; `Written` what it was
//! when it was read back; `Undone` that nothing is left to do about it; `Making` that a cgroup is about to be made,
//! and `Dissolved` that it is gone. A process may be killed anywhere in
//! between: a line that is cut short was not on the disk yet, so what it announces was not begun.
//!
//! The file is locked while it is open, and stays when it is empty: there is never a moment at which two runs
//! lock two files of one name.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use ticktax_model::disk::{self, LockedFile};
use ticktax_model::knob::UndoOutcome;

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
    on_step: OnStep,
}

/// What stood in a journal.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) records: Vec<Record>,
    /// Lines that could not be read.
    pub(crate) damaged: u64,
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

    fn parse(bytes: &[u8]) -> Self {
        let mut contents = Self::default();
        for line in bytes.split_inclusive(|&it| it == b'\n') {
            match disk::read_checked_line(line) {
                Some(record) => contents.records.push(record),
                None => contents.damaged += 1,
            }
        }
        contents
    }
}

impl Journal {
    /// Opens and locks the journal, and makes it where it is not there.
    ///
    /// # Errors
    /// Another run has it, or it cannot be used.
    pub(crate) fn open(path: &Path, on_step: OnStep) -> Result<(Self, Contents), KnobError> {
        if let Some(folder) = path.parent() {
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(folder);
            made.map_err(|error| trouble("make", path, &error))?;
        }
        Self::locked(path, true, on_step)
    }

    /// The same of a journal that is there; `None` where it is not.
    ///
    /// # Errors
    /// Another run has it, or it cannot be used.
    pub(crate) fn open_existing(
        path: &Path,
        on_step: OnStep,
    ) -> Result<Option<(Self, Contents)>, KnobError> {
        match path.try_exists() {
            Ok(false) => Ok(None),
            Ok(true) => Self::locked(path, false, on_step).map(Some),
            Err(error) => Err(trouble("read", path, &error)),
        }
    }

    fn locked(path: &Path, create: bool, on_step: OnStep) -> Result<(Self, Contents), KnobError> {
        let cannot = |error: io::Error| trouble("open", path, &error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).mode(0o600);
        let file = options.open(path).map_err(cannot)?;
        if !file.metadata().map_err(cannot)?.is_file() {
            return Err(KnobError::Journal {
                verb: "open",
                path: path.to_owned(),
                why: "it is no file; move it out of the way".to_owned(),
            });
        }
        let mut file = LockedFile::lock(file).map_err(|error| match error {
            TryLockError::WouldBlock => {
                let contents = fs::read(path).map(|bytes| Contents::parse(&bytes));
                let by = contents.ok().and_then(|it| it.by().map(str::to_owned));
                KnobError::Busy {
                    path: path.to_owned(),
                    by: by.unwrap_or_else(|| "another ticktax".to_owned()),
                }
            }
            TryLockError::Error(error) => trouble("lock", path, &error),
        })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(cannot)?;
        // A last line without its end was not on the disk before its writer was killed.
        let whole = bytes
            .iter()
            .rposition(|&it| it == b'\n')
            .map_or(0, |at| at + 1);
        let contents = Contents::parse(&bytes[..whole]);
        let mut journal = Self {
            path: path.to_owned(),
            file,
            end: whole as u64,
            on_step,
        };
        journal.cut().map_err(cannot)?;
        // The name is on the disk once its folder is; not every file system can sync one.
        let _ = path
            .parent()
            .map(File::open)
            .and_then(Result::ok)
            .map(|it| it.sync_all());
        journal.step(Step::Locked);
        Ok((journal, contents))
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
        self.end = 0;
        let cleared = self.cut();
        cleared.map_err(|error| trouble("clear", &self.path, &error))?;
        self.step(Step::Cleared);
        Ok(())
    }

    /// Takes away what is beyond its end.
    fn cut(&mut self) -> io::Result<()> {
        if self.file.metadata()?.len() != self.end {
            self.file.set_len(self.end)?;
            self.file.sync_all()?;
        }
        Ok(())
    }
}

fn trouble(verb: &'static str, path: &Path, error: &io::Error) -> KnobError {
    let why = match error.kind() {
        io::ErrorKind::PermissionDenied => "permission denied; run as root".to_owned(),
        kind => disk::words(kind),
    };
    KnobError::Journal {
        verb,
        path: path.to_owned(),
        why: format!("{why}; nothing is changed without it"),
    }
}
