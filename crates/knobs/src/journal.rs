//! The journal: a file in which each change is recorded before it is made, so that it can be
//! undone.
//!
//! Each line is a JSON record with a checksum:
//! - `Began`: a session started. The record contains the boot ID, which also applies to the records
//!   that follow.
//! - `Intended`: a setting is about to change. The record contains its original value.
//! - `Written`: the setting was changed. The record contains the value that was read back.
//! - `Undone`: the setting was restored, or there is a reason never to restore it. The record
//!   contains the outcome.
//! - `Making`: a cgroup is about to be created.
//! - `Dissolved`: the cgroup no longer exists.
//!
//! The process can be killed at any point. If the last line is incomplete, the process was killed
//! before the line had reached the disk, so it never started the change that the line announces.
//!
//! The file is locked while it is open. It is never deleted: if it were, two sessions could lock
//! two different files of the same name.
//!
//! Root writes values from the journal to the kernel. The journal is therefore read only if no
//! other user could have written it: it must be a regular file that belongs to the effective user.
//! Its directory must be a [`Folder`] that belongs to the same user, and only that user and root
//! may be able to change the ancestors of this directory. A file that does not start like a journal
//! is left unchanged. `end.rs` deals with unreadable lines.

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

/// A record. Each line of the journal contains one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Record {
    Began {
        /// Boot ID of the running kernel.
        boot: String,
        /// Command and PID of the session.
        by: String,
        at_unix_ms: i64,
    },
    Intended {
        knob: String,
        target: Target,
        /// Identity of the target. A later target of the same name has a different identity.
        identity: String,
        old: String,
        new: String,
        /// Whether the change is a side effect, meaning that the kernel changes this setting when
        /// ticktax changes a different one. The record for that other setting comes next.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        along: bool,
    },
    Written {
        knob: String,
        target: Target,
        value: String,
    },
    Undone {
        knob: String,
        target: Target,
        outcome: UndoOutcome,
    },
    Making {
        folder: PathBuf,
        /// The cgroup that the processes of the new cgroup return to when it is removed.
        home: PathBuf,
    },
    Dissolved {
        folder: PathBuf,
    },
}

/// The points in a session at which tests kill it. Each is named after the action just completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionStep {
    /// The journal is open and locked.
    Locked,
    /// Half of a line has been written.
    HalfLine,
    /// A line has been written, but may not have reached the disk yet.
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

impl SessionStep {
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

/// A callback that is invoked at each [`SessionStep`], so that tests can kill the session at that
/// point.
pub type OnStep = Box<dyn FnMut(SessionStep)>;

/// An open and locked journal.
pub(crate) struct Journal {
    path: PathBuf,
    file: LockedFile,
    /// Offset of the next line.
    end: u64,
    /// Why the file must not be written or truncated, or `None` if it may change.
    frozen: Option<KnobError>,
    on_step: OnStep,
}

/// The readable records in a journal.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) records: Vec<Record>,
    pub(crate) damaged: u64,
    /// Name of the file with a copy of the journal's unreadable end, or `None` if the end was
    /// readable.
    pub(crate) copy: Option<PathBuf>,
}

impl Contents {
    /// Returns the command and PID of the last session in the journal, or `None` if it contains no
    /// session.
    pub(crate) fn by(&self) -> Option<&str> {
        let mut latest = self.records.iter().rev();
        latest.find_map(|record| match record {
            Record::Began { by, .. } => Some(&**by),
            _ => None,
        })
    }
}

/// A journal file that has been opened, along with its directory.
struct Opened<'a> {
    folder: Folder,
    name: &'a OsStr,
    file: File,
}

impl<'a> Opened<'a> {
    /// Opens the file at `path`. `open` opens the file's directory.
    fn new(
        path: &'a Path,
        create: bool,
        open: impl FnOnce(&Path) -> io::Result<Folder>,
    ) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let folder = open(path.parent().unwrap_or(Path::new("")))?;
        let file = folder.write(name, create, 0o600)?;
        // Sync the directory, so that the name of a new file reaches the disk.
        folder.sync();
        Ok(Self { folder, name, file })
    }
}

impl Journal {
    /// Opens and locks the journal. Creates it first if it does not exist.
    ///
    /// # Errors
    /// Returns an error if another session holds the lock, if another user could have written the
    /// journal, if an unreadable line precedes a readable one, or if the file cannot be used.
    pub(crate) fn open(path: &Path, on_step: OnStep) -> Result<(Self, Contents), KnobError> {
        let opened = Opened::new(path, true, |folder| Folder::make_trusted(folder, 0o700));
        let opened = opened.map_err(|error| trouble("open", path, &error))?;
        let (journal, contents) = Self::locked(path, opened, on_step)?;
        match journal.frozen {
            Some(why) => Err(why),
            None => Ok((journal, contents)),
        }
    }

    /// Opens and locks an existing journal to undo changes. Returns `None` if the journal does not
    /// exist.
    ///
    /// # Errors
    /// Returns an error if another session holds the lock, if another user could have written the
    /// journal, or if the file cannot be used.
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
        journal.step(SessionStep::Locked);
        Ok((journal, parsed.contents))
    }

    /// Returns why the file must not change, or `None` if it may change. There can be a reason even
    /// when no setting is left to restore.
    pub(crate) fn frozen(&self) -> Option<&KnobError> {
        self.frozen.as_ref()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn step(&mut self, step: SessionStep) {
        (self.on_step)(step);
    }

    /// Appends a record and syncs it to disk. If either step fails, removes the incomplete line.
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
            // If this fails too, the next session ignores the incomplete line.
            let _ = self.cut();
            return Err(trouble("write", &self.path, &error));
        }
        self.end += line.len() as u64;
        self.step(SessionStep::Synced);
        Ok(())
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.end))?;
        let (first, second) = line.split_at(line.len() / 2);
        self.file.write_all(first)?;
        self.step(SessionStep::HalfLine);
        self.file.write_all(second)?;
        self.step(SessionStep::Line);
        self.file.sync_all()
    }

    /// Empties the journal. Call this only when no setting is left to restore.
    pub(crate) fn clear(&mut self) -> Result<(), KnobError> {
        if self.frozen.is_some() {
            return Ok(());
        }
        self.end = 0;
        let cleared = self.cut();
        cleared.map_err(|error| trouble("clear", &self.path, &error))?;
        self.step(SessionStep::Cleared);
        Ok(())
    }

    /// Truncates the file after its last complete line.
    fn cut(&mut self) -> io::Result<()> {
        if self.frozen.is_none() && self.file.metadata()?.len() != self.end {
            self.file.set_len(self.end)?;
            self.file.sync_all()?;
        }
        Ok(())
    }
}

/// Reads a journal. If the file does not start like one, returns `None` without reading the rest.
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

/// Creates an error that names the session holding the lock. `other` is that session's journal
/// file, which can be read even though it could not be locked.
fn busy(path: &Path, mut other: File) -> KnobError {
    let bytes = read(&mut other).ok().flatten().unwrap_or_default();
    let contents = end::parse(&bytes).contents;
    KnobError::Busy {
        path: path.to_owned(),
        by: contents.by().unwrap_or("another ticktax").to_owned(),
    }
}

fn trouble(verb: &'static str, path: &Path, error: &io::Error) -> KnobError {
    // Permission errors from ticktax's own checks already say how to fix them.
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
