//! Reads files of unknown size and content, and keeps track of those it cannot read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use ticktax_model::limitation::{Limitation, Unreadable};

/// Maximum number of bytes to read per file. Settings files are only a few kB long.
const MAX: u64 = 1 << 20;

fn failed(error: &std::io::Error) -> Unreadable {
    Unreadable::Failed(error.kind().to_string())
}

/// Reads the files of one machine, and keeps track of those it cannot read.
#[derive(Debug)]
pub(super) struct Reading {
    root: PathBuf,
    unread: BTreeMap<Unreadable, Vec<String>>,
}

impl Reading {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            unread: BTreeMap::new(),
        }
    }

    /// Converts a path on the observed machine to a path that this process can open.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Returns the text of a file. Invalid UTF-8 is replaced. Text beyond 1 MiB is dropped and
    /// reported. Returns `None` if the file does not exist or cannot be read.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        let file = self.open(path)?;
        let mut bytes = Vec::new();
        if let Err(error) = file.take(MAX + 1).read_to_end(&mut bytes) {
            // A parameter that is write-only or that belongs to absent hardware cannot be read.
            // Such a parameter is not a setting to compare, so don't report it.
            if !path.starts_with("proc/sys/") {
                self.missed(path, failed(&error));
            }
            return None;
        }
        if bytes.len() as u64 > MAX {
            self.missed(path, Unreadable::TooLong { read_bytes: MAX });
            bytes.truncate(usize::try_from(MAX).unwrap_or(usize::MAX));
        }
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn open(&mut self, path: &str) -> Option<File> {
        // Open only regular files. Opening anything else, such as a pipe without a writer, could
        // block the audit.
        let full = self.path(path);
        let opened = fs::metadata(&full).and_then(|data| {
            if data.is_file() {
                File::open(&full)
            } else {
                Err(ErrorKind::InvalidInput.into())
            }
        });
        match opened {
            Ok(file) => Some(file),
            Err(error) => {
                match error.kind() {
                    ErrorKind::NotFound | ErrorKind::NotADirectory => {}
                    ErrorKind::PermissionDenied => self.missed(path, Unreadable::NeedsRoot),
                    ErrorKind::InvalidInput => self.missed(path, Unreadable::NotAFile),
                    _ => self.missed(path, failed(&error)),
                }
                None
            }
        }
    }

    /// Returns the names in a directory, in alphabetical order. Returns no names if the directory
    /// does not exist or cannot be read.
    pub(super) fn names(&mut self, path: &str) -> Vec<String> {
        /// Maximum number of names to read. No settings directory has that many.
        const MAX_NAMES: usize = 65_536;
        let entries = match fs::read_dir(self.path(path)) {
            Ok(entries) => entries,
            Err(error) => {
                if error.kind() == ErrorKind::PermissionDenied {
                    self.missed(path, Unreadable::NeedsRoot);
                }
                return Vec::new();
            }
        };
        let entries = entries.flatten().take(MAX_NAMES);
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    pub(super) fn missed(&mut self, path: &str, why: Unreadable) {
        self.unread.entry(why).or_default().push(format!("/{path}"));
    }

    pub(super) fn unread(self) -> Vec<Limitation> {
        /// Maximum number of paths listed per limitation.
        const NAMED: usize = 4;
        let line = |(reason, mut paths): (Unreadable, Vec<String>)| {
            paths.dedup();
            let more = paths.len().saturating_sub(NAMED);
            paths.truncate(NAMED);
            Limitation::SettingsUnread {
                paths,
                paths_left_out: more as u64,
                reason,
            }
        };
        self.unread.into_iter().map(line).collect()
    }
}
