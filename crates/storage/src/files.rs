//! The files that are written. They are removed when they are dropped.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ticktax_model::storage::{FileWrite, ForeignData};

use crate::error::StorageError;

/// Size of a write to the small file.
pub(crate) const BLOCK: u64 = 4_096;
/// Number of blocks of the small file that are overwritten in turn.
const BLOCKS: u64 = 256;
/// Size of a write of foreign data.
const CHUNK: u64 = 1 << 20;

/// A file that is removed when this is dropped.
pub(crate) struct Removed {
    file: File,
    path: PathBuf,
}

impl Removed {
    /// Creates a file in a directory. It never replaces a file.
    fn create(folder: &Path, name: &str) -> Result<Self, StorageError> {
        let path = folder.join(format!(".ticktax-{name}-{}", std::process::id()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => StorageError::Exists { path: path.clone() },
                _ => StorageError::file("create", folder)(error),
            })?;
        Ok(Self { file, path })
    }

    pub(crate) fn handle(&self) -> &File {
        &self.file
    }

    /// Returns the inode number.
    pub(crate) fn inode(&self) -> std::io::Result<u64> {
        Ok(self.file.metadata()?.ino())
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        // Ignore errors: someone else may have removed it.
        let _ = fs::remove_file(&self.path);
    }
}

/// The small file, which is fsynced.
pub(crate) struct SmallFile {
    pub(crate) file: Removed,
    write: FileWrite,
    next: u64,
}

impl SmallFile {
    pub(crate) fn create(folder: &Path, write: FileWrite) -> Result<Self, StorageError> {
        let file = Removed::create(folder, "fsync")?;
        if write == FileWrite::Overwrite {
            let block = contents(0, BLOCK);
            for number in 0..BLOCKS {
                let written = file.handle().write_all_at(&block, number * BLOCK);
                written.map_err(StorageError::file("write", folder))?;
            }
        }
        Ok(Self {
            file,
            write,
            next: 0,
        })
    }

    /// Makes a block dirty.
    pub(crate) fn write(&mut self) -> std::io::Result<()> {
        let at = match self.write {
            FileWrite::Append => self.next,
            FileWrite::Overwrite => self.next % BLOCKS,
        };
        self.next += 1;
        let block = contents(self.next, BLOCK);
        self.file.handle().write_all_at(&block, at * BLOCK)
    }
}

/// The other file. Its dirty data can delay an fsync of the small file.
pub(crate) struct ForeignFile {
    pub(crate) file: Removed,
    kind: ForeignData,
    bytes: u64,
    rounds: u64,
}

impl ForeignFile {
    pub(crate) fn create(
        folder: &Path,
        kind: ForeignData,
        bytes: u64,
    ) -> Result<Self, StorageError> {
        Ok(Self {
            file: Removed::create(folder, "foreign")?,
            kind,
            bytes,
            rounds: 0,
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Allocates the blocks of a file that is to be overwritten.
    pub(crate) fn prepare(&mut self, stop: &dyn Fn() -> bool) -> std::io::Result<()> {
        match self.kind {
            ForeignData::New => Ok(()),
            ForeignData::Overwritten => {
                self.fill(stop)?;
                self.file.handle().sync_all()
            }
        }
    }

    /// Makes all data of the file dirty. Returns early if `stop` returns true.
    pub(crate) fn make_dirty(&mut self, stop: &dyn Fn() -> bool) -> std::io::Result<()> {
        if self.kind == ForeignData::New {
            self.file.handle().set_len(0)?;
        }
        self.fill(stop)
    }

    fn fill(&mut self, stop: &dyn Fn() -> bool) -> std::io::Result<()> {
        self.rounds += 1;
        let mut at = 0;
        while at < self.bytes && !stop() {
            let length = CHUNK.min(self.bytes - at);
            let chunk = contents(self.rounds.wrapping_mul(1 << 32) ^ at, length);
            self.file.handle().write_all_at(&chunk, at)?;
            at += length;
        }
        Ok(())
    }
}

/// Returns data that a disk cannot compress, different for each seed (xorshift64*).
fn contents(seed: u64, length: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = length.div_ceil(8);
    let mut bytes = Vec::new();
    for _ in 0..words {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend(state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_ne_bytes());
    }
    bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
    bytes
}

#[cfg(test)]
mod tests {
    use ticktax_model::storage::{FileWrite, ForeignData};

    use super::{BLOCK, BLOCKS, ForeignFile, SmallFile, contents};

    #[test]
    fn files_are_removed_and_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        let mut small = SmallFile::create(folder.path(), FileWrite::Append).unwrap();
        assert!(SmallFile::create(folder.path(), FileWrite::Append).is_err());
        small.write().unwrap();
        small.write().unwrap();
        assert_eq!(small.file.handle().metadata().unwrap().len(), 2 * BLOCK);
        assert_eq!(names(), 1);
        drop(small);
        assert_eq!(names(), 0);
    }

    #[test]
    fn overwriting_keeps_the_length() {
        let folder = tempfile::tempdir().unwrap();
        let mut small = SmallFile::create(folder.path(), FileWrite::Overwrite).unwrap();
        for _ in 0..=BLOCKS {
            small.write().unwrap();
        }
        let length = small.file.handle().metadata().unwrap().len();
        assert_eq!(length, BLOCKS * BLOCK);
        let bytes = 3 << 20 | 4_096;
        let mut foreign =
            ForeignFile::create(folder.path(), ForeignData::Overwritten, bytes).unwrap();
        foreign.prepare(&|| false).unwrap();
        let before = std::fs::read(&foreign.file.path).unwrap();
        foreign.make_dirty(&|| false).unwrap();
        let after = std::fs::read(&foreign.file.path).unwrap();
        assert_eq!(after.len() as u64, bytes);
        assert_ne!(before, after);
    }

    #[test]
    fn contents_do_not_repeat() {
        assert_ne!(contents(1, 4_096), contents(2, 4_096));
        assert_eq!(contents(1, 5).len(), 5);
    }
}
