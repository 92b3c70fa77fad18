//! The index: a file that only grows, a line of JSON for each thing that happened.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ticktax_model::disk::Temporary;
use ticktax_model::incident::{IncidentIndex, IndexLine, LossCause};

use super::INDEX_MAX;

/// The name of the file.
pub(super) const NAME: &str = "index.jsonl";

/// The index of a folder. It is open only while a line is written: a file that is open for writing keeps its file
/// system from being made read-only.
#[derive(Debug)]
pub(super) struct IndexFile {
    path: PathBuf,
    /// Its length: what is beyond it is a line that could not be written whole.
    length: u64,
}

impl IndexFile {
    /// Reads the index of a folder, or makes it; a last line without its end is cut off.
    pub(super) fn open(folder: &Path) -> io::Result<(Self, IncidentIndex)> {
        let path = folder.join(NAME);
        let mut file = writable(&path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = whole_lines(&bytes).len() as u64;
        if whole < bytes.len() as u64 {
            file.set_len(whole)?;
        }
        file.sync_all()?;
        // The name is on the disk once its folder is; not every file system can sync one.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        let index = Self {
            path,
            length: whole,
        };
        Ok((index, parse(&bytes)))
    }

    /// Puts a line at the end, and on the disk. Where that fails, nothing of it stays.
    pub(super) fn append(&mut self, line: &IndexLine) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        if self.length + text.len() as u64 > INDEX_MAX {
            self.shorten()?;
        }
        let mut file = writable(&self.path)?;
        // Longer where a line could not be taken back; shorter where somebody removed it.
        let length = file.metadata()?.len();
        if length > self.length {
            file.set_len(self.length)?;
        }
        self.length = self.length.min(length);
        file.seek(SeekFrom::Start(self.length))?;
        let written = file.write_all(&text).and_then(|()| file.sync_data());
        if written.is_ok() {
            self.length += text.len() as u64;
        } else {
            file.set_len(self.length)?;
        }
        written
    }

    /// Leaves out the older half, and says how many incidents that were.
    fn shorten(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        File::open(&self.path)?
            .take(self.length)
            .read_to_end(&mut bytes)?;
        let half = bytes.len() / 2;
        let rest = bytes[half..].iter().position(|&it| it == b'\n');
        let (old, new) = bytes.split_at(rest.map_or(bytes.len(), |place| half + place + 1));
        let mut text = Vec::new();
        for line in left_out(&parse(old)) {
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
        text.extend_from_slice(new);
        let temporary = Temporary::private_beside(&self.path)?;
        temporary.handle()?.write_all(&text)?;
        temporary.appear()?;
        self.length = text.len() as u64;
        Ok(())
    }
}

/// The file, for as long as what is returned lives.
fn writable(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).open(path)
}

/// What is still to be told of lines that are left out: what was not kept, and how many incidents these were.
fn left_out(old: &IncidentIndex) -> Vec<IndexLine> {
    let mut counts = std::collections::BTreeMap::new();
    for line in &old.lines {
        let (cause, count) = match line {
            IndexLine::Incident(_) => (LossCause::IndexFull, 1),
            IndexLine::Removed { cause, .. } => (*cause, 1),
            IndexLine::Lost { cause, count } => (*cause, *count),
            // What became of recordings is told of the incidents that are left out.
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

/// The lines that have their ends.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&it| it == b'\n');
    &bytes[..end.map_or(0, |end| end + 1)]
}

/// What the lines say. A last one without its end is not looked at.
pub(super) fn parse(bytes: &[u8]) -> IncidentIndex {
    let mut contents = IncidentIndex::default();
    let lines = whole_lines(bytes).split(|&it| it == b'\n');
    for line in lines.filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(line) => contents.add(line),
            Err(_) => contents.damaged += 1,
        }
    }
    contents
}
