//! Reads files of unknown size and content, and keeps track of those that cannot be read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use ticktax_model::limitation::{Limitation, Unreadable};

/// Maximum number of bytes to read per file. Settings files are a few kB long.
const MAX: u64 = 1 << 20;

/// The system's reason for `error`, without the error number.
fn failed(error: &std::io::Error) -> Unreadable {
    Unreadable::Failed(error.kind().to_string())
}

/// Reads a machine's files and keeps track of those that cannot be read.
#[derive(Debug)]
pub(super) struct Reading {
    root: PathBuf,
    /// Paths that could not be read, by reason.
    unread: BTreeMap<Unreadable, Vec<String>>,
}

impl Reading {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            unread: BTreeMap::new(),
        }
    }

    /// Converts a path on the machine to a path for this process.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The text of a file. Invalid UTF-8 is replaced. Text beyond 1 MiB is dropped and reported.
    /// `None` if the file does not exist or cannot be read.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        let file = self.open(path)?;
        let mut bytes = Vec::new();
        if let Err(error) = file.take(MAX + 1).read_to_end(&mut bytes) {
            // If a parameter cannot be read because it is write-only or its hardware is absent, it
            // is not a setting to compare.
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
        // Opening anything other than a regular file, such as a pipe without a writer, could block
        // the audit.
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

    /// The sorted names in a directory. Empty if the directory does not exist or cannot be read.
    pub(super) fn names(&mut self, path: &str) -> Vec<String> {
        /// Maximum number of names, more than any settings directory has.
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

    /// Notes that a path could not be read.
    pub(super) fn missed(&mut self, path: &str, why: Unreadable) {
        self.unread.entry(why).or_default().push(format!("/{path}"));
    }

    /// The paths that could not be read, as one limitation per reason.
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
