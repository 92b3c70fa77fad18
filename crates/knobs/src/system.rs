//! The machine whose settings are read and written: the files below a folder, which tests replace by one
//! of their own.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The files of a machine.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
}

impl Default for System {
    /// The machine that this process runs on.
    fn default() -> Self {
        Self::at(Path::new("/"))
    }
}

impl System {
    /// The machine whose `proc` and `sys` lie in `root`. What is no file, a task's policy, is that of the
    /// machine that this process runs on, whatever `root` is.
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// Where a file lies that is at `path` on the machine, with or without a slash in front.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a file, without the white space at its ends.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let bytes = fs::read(self.path(path))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Writes a line to a file that is there, in one call: the kernel takes a value whole or not at all.
    /// Without its line end, an empty value would be no call at all.
    pub(crate) fn put(&self, path: impl AsRef<Path>, value: &str) -> io::Result<()> {
        let line = format!("{value}\n");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).truncate(true).open(self.path(path))?;
        let written = file.write(line.as_bytes())?;
        if written == line.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// The names in a folder, in order; none where there is no such folder.
    pub(crate) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(path))
            .into_iter()
            .flatten()
            .flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }

    /// What the kernel calls this boot: another one after each start of the machine.
    pub(crate) fn boot_id(&self) -> io::Result<String> {
        self.text("proc/sys/kernel/random/boot_id")
    }
}
