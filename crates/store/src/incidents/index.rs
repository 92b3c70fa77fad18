//! The index of an incident directory: a file of JSON lines, one per event. Lines are only ever
//! appended, but the older half is dropped when the file gets too long.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::Deserialize;
use ticktax_model::hidden::escape_in_json;
use ticktax_model::incident::{IncidentIndex, IndexLine, LossCause};

use super::INDEX_MAX;
use super::name::time_in;
use crate::disk::{self, Folder, Temporary};

pub(super) const NAME: &str = "index.jsonl";
const LINE_START: &[u8] = br#"{"line":""#;

/// Latest time accepted for an incident, in the year 2242.
const LATEST_UNIX_MS: u64 = 1_000 << 33;
/// Longest incident accepted, in ns: about 9 years.
const LONGEST: i64 = 1 << 58;

#[derive(Debug, thiserror::Error)]
pub(super) enum IndexError {
    #[error("{}", disk::error_words(.0))]
    Io(#[from] io::Error),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("{} is not an index of incidents: move or remove it", .0.display())]
    Foreign(PathBuf),
    #[error("{} is larger than {} MiB: move or remove it", .0.display(), INDEX_MAX >> 20)]
    TooLong(PathBuf),
}

/// The index of an incident directory. The file is open only while a line is being written, because
/// a file system cannot be remounted read-only while any file on it is open for writing.
#[derive(Debug)]
pub(super) struct IndexFile {
    folder: Folder,
    /// Total length of the complete lines in bytes. Any further bytes belong to a line that was
    /// only partly written.
    length: u64,
    /// Inode number of the file that `length` refers to. Another program can replace the file.
    inode: u64,
}

impl IndexFile {
    /// Reads the index of a directory, creating it if it is missing. A last line without a line
    /// break is cut off.
    pub(super) fn open(folder: Folder) -> Result<(Self, IncidentIndex), IndexError> {
        let file = writable(&folder)?;
        let mut index = Self {
            folder,
            length: 0,
            inode: 0,
        };
        let contents = index.load(&file)?;
        // Sync the directory, so that a power failure does not lose the name of a new file.
        index.folder.sync();
        Ok((index, contents))
    }

    /// Reads a file whose length is unknown. It is truncated only if its lines belong to an index.
    fn load(&mut self, file: &File) -> Result<IncidentIndex, IndexError> {
        let path = || self.folder.path().join(NAME);
        let bytes = read_all(file)?.ok_or_else(|| IndexError::TooLong(path()))?;
        let complete = complete_lines(&bytes);
        let contents = parse(complete);
        let is_ours = if complete.is_empty() {
            let shared = bytes.len().min(LINE_START.len());
            bytes[..shared] == LINE_START[..shared]
        } else {
            !contents.lines.is_empty()
        };
        if !is_ours {
            return Err(IndexError::Foreign(path()));
        }
        self.length = complete.len() as u64;
        self.inode = file.metadata()?.ino();
        if complete.len() < bytes.len() {
            file.set_len(self.length)?;
        }
        file.sync_all()?;
        Ok(contents)
    }

    /// Appends a line and syncs it to disk. If that fails, no part of the line remains.
    pub(super) fn append(&mut self, line: &IndexLine) -> Result<(), IndexError> {
        // Escape the text, because users print the file with `cat`.
        let mut text = escape_in_json(&serde_json::to_string(line)?).into_bytes();
        text.push(b'\n');
        let mut file = self.current()?;
        if self.length + text.len() as u64 > INDEX_MAX {
            self.shorten(file)?;
            file = self.current()?;
        }
        file.seek(SeekFrom::Start(self.length))?;
        let written = file.write_all(&text).and_then(|()| file.sync_data());
        if written.is_ok() {
            self.length += text.len() as u64;
        } else {
            file.set_len(self.length)?;
        }
        Ok(written?)
    }

    /// Opens the file for writing, and truncates it after its last complete line.
    fn current(&mut self) -> Result<File, IndexError> {
        let file = writable(&self.folder)?;
        let found = file.metadata()?;
        if found.ino() != self.inode {
            self.load(&file)?;
            return Ok(file);
        }
        // The file is longer than expected if part of a line was written and could not be removed.
        // It is shorter than expected if another program truncated it.
        if found.len() > self.length {
            file.set_len(self.length)?;
        }
        self.length = self.length.min(found.len());
        Ok(file)
    }

    /// Drops the older half of the lines, and adds lines that count the incidents and losses in it.
    fn shorten(&mut self, file: File) -> Result<(), IndexError> {
        let mut bytes = Vec::new();
        file.take(self.length).read_to_end(&mut bytes)?;
        let half = bytes.len() / 2;
        let rest = bytes[half..].iter().position(|&byte| byte == b'\n');
        let (old, new) = bytes.split_at(rest.map_or(bytes.len(), |place| half + place + 1));
        let mut text = Vec::new();
        for line in left_out(&parse(old)) {
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
        text.extend_from_slice(new);
        let folder = self.folder.try_clone()?;
        let temporary = Temporary::in_folder(folder, OsStr::new(NAME), 0o600)?;
        let mut file = temporary.handle()?;
        file.write_all(&text)?;
        let inode = file.metadata()?.ino();
        temporary.appear()?;
        self.length = text.len() as u64;
        self.inode = inode;
        Ok(())
    }
}

/// Reads the index in any user's directory. A missing index counts as empty.
pub(super) fn read(folder: &Folder) -> Result<IncidentIndex, IndexError> {
    let file = match folder.read(OsStr::new(NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(IncidentIndex::default());
        }
        Err(error) => return Err(error.into()),
    };
    let bytes = read_all(&file)?;
    let bytes = bytes.ok_or_else(|| IndexError::TooLong(folder.path().join(NAME)))?;
    Ok(parse(&bytes))
}

fn writable(folder: &Folder) -> io::Result<File> {
    folder.write(OsStr::new(NAME), true, 0o600)
}

/// Reads the whole index; `None` if it is larger than an index can be.
fn read_all(file: &File) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let length = file.take(INDEX_MAX + 1).read_to_end(&mut bytes)?;
    Ok((length as u64 <= INDEX_MAX).then_some(bytes))
}

/// Returns lines that count the incidents in the dropped lines, and the recordings that were not
/// kept.
fn left_out(old: &IncidentIndex) -> Vec<IndexLine> {
    let mut counts = std::collections::BTreeMap::new();
    for line in &old.lines {
        let (cause, count) = match line {
            IndexLine::Incident(_) => (LossCause::IndexFull, 1),
            IndexLine::Removed { cause, .. } => (*cause, 1),
            IndexLine::Lost { cause, count } => (*cause, *count),
            // A recording's outcome is about incidents that are already counted.
            IndexLine::Recorded { .. }
            | IndexLine::NotRecorded { .. }
            | IndexLine::Began { .. }
            | IndexLine::Ended { .. } => continue,
        };
        let sum: &mut u64 = counts.entry(cause).or_default();
        *sum = sum.saturating_add(count);
    }
    let counts = counts.into_iter();
    counts
        .map(|(cause, count)| IndexLine::Lost { cause, count })
        .collect()
}

fn complete_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte == b'\n');
    &bytes[..end.map_or(0, |end| end + 1)]
}

/// Parses all complete lines. A line counts as damaged if it names anything other than a recording
/// in this directory, or if its time is impossible.
pub(super) fn parse(bytes: &[u8]) -> IncidentIndex {
    let mut contents = IncidentIndex::default();
    let lines = complete_lines(bytes).split(|&byte| byte == b'\n');
    for line in lines.filter(|line| !line.is_empty()) {
        match parse_line(line) {
            Some(line) if names_our_recording(&line) && is_possible(&line) => contents.add(line),
            _ => contents.damaged += 1,
        }
    }
    contents
}

/// Parses a line. An incident is read directly from the text: reading it as a variant of
/// [`IndexLine`] would need a second copy of the code for all of its parts.
fn parse_line(line: &[u8]) -> Option<IndexLine> {
    let kind: LineKind<'_> = serde_json::from_slice(line).ok()?;
    if kind.line == "incident" {
        return Some(IndexLine::Incident(serde_json::from_slice(line).ok()?));
    }
    serde_json::from_slice(line).ok()
}

/// Kind of a line in an index.
#[derive(Deserialize)]
struct LineKind<'a> {
    #[serde(borrow)]
    line: Cow<'a, str>,
}

/// Returns whether the time and the length of an incident can be added without overflow.
fn is_possible(line: &IndexLine) -> bool {
    let IndexLine::Incident(entry) = line else {
        return true;
    };
    let incident = &entry.incident;
    incident.at_unix_ms.unsigned_abs() <= LATEST_UNIX_MS
        && (0..=LONGEST).contains(&incident.lasted.0)
}

/// Returns whether a line names a recording in the form that this program uses, or names none at
/// all.
fn names_our_recording(line: &IndexLine) -> bool {
    let name = match line {
        IndexLine::Incident(entry) => entry.recording.as_ref(),
        IndexLine::Recorded { recording, .. } | IndexLine::NotRecorded { recording, .. } => {
            Some(recording)
        }
        IndexLine::Began { .. }
        | IndexLine::Ended { .. }
        | IndexLine::Removed { .. }
        | IndexLine::Lost { .. } => None,
    };
    name.is_none_or(|name| time_in(name).is_some())
}
