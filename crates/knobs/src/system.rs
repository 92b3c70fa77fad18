//! Access to a machine's files, below a root directory. In tests, the root is a temporary
//! directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{
    CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, FsType, PROC_SUPER_MAGIC, SYSFS_MAGIC,
    fstatfs,
};

const SETTINGS: &[FsType] = &[
    PROC_SUPER_MAGIC,
    SYSFS_MAGIC,
    DEBUGFS_MAGIC,
    CGROUP_SUPER_MAGIC,
    CGROUP2_SUPER_MAGIC,
];
const CGROUPS: &[FsType] = &[CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC];

/// Why ticktax must not change a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Outside {
    #[error("not a kernel setting, so it was left unchanged; check the path")]
    Settings,
    #[error("not a cgroup directory, so it was left unchanged; check the path")]
    Cgroups,
    #[error(
        "the journal names this cgroup, but ticktax did not create it, so it was left unchanged; \
         move or remove the journal"
    )]
    Own,
}

impl From<Outside> for io::Error {
    fn from(outside: Outside) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, outside)
    }
}

/// The files of a machine.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
}

impl Default for System {
    fn default() -> Self {
        Self::at(Path::new("/"))
    }
}

impl System {
    /// Gives access to the `proc` and `sys` directories below `root`. Scheduling policies are not
    /// files, so they are always those of the running machine.
    ///
    /// If `root` is `/`, only files on the kernel's own file systems can be written. Any other
    /// `root` belongs to a test, and everything below it can be written.
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns whether `root` is `/`, that is, whether the files are the running kernel's.
    fn is_running(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns the path of a file below the root directory. `path` may start with a slash.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    pub(crate) fn text(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let bytes = fs::read(self.path(path))?;
        Ok(trimmed(&bytes))
    }

    /// Writes `value` as one line to an existing file. Fails with [`Outside::Settings`] if the file
    /// is not a kernel setting.
    pub(crate) fn put(&self, path: impl AsRef<Path>, value: &str) -> io::Result<()> {
        // The handle can be checked only once the file is open. Until then, the file might not be
        // the kernel's, so opening it must neither truncate it nor block on a pipe.
        let mut options = OpenOptions::new();
        options.write(true);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
        self.put_into(&options.open(self.path(path))?, value)
    }

    /// Writes `value` and a newline in a single call, because the kernel parses each write
    /// separately. Without the newline, an empty value would not be written at all.
    pub(crate) fn put_into(&self, mut file: &File, value: &str) -> io::Result<()> {
        if self.is_running() {
            require(file, SETTINGS, Outside::Settings)?;
        } else {
            // Writing to a kernel file replaces its value, but a regular file must be truncated
            // first.
            file.set_len(0)?;
        }
        let line = format!("{value}\n");
        let written = file.write(line.as_bytes())?;
        if written == line.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    pub(crate) fn require_cgroup(&self, folder: impl AsFd) -> io::Result<()> {
        if self.is_running() {
            require(folder, CGROUPS, Outside::Cgroups)
        } else {
            Ok(())
        }
    }

    /// Returns the sorted names of a directory's entries, or no names if the directory cannot be
    /// read.
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

    pub(crate) fn boot_id(&self) -> io::Result<String> {
        self.text("proc/sys/kernel/random/boot_id")
    }
}

pub(crate) fn trimmed(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Checks that a file is on one of the `allowed` file systems. The check uses the open handle, so
/// redirecting the path afterwards has no effect.
fn require(handle: impl AsFd, allowed: &[FsType], outside: Outside) -> io::Result<()> {
    if allowed.contains(&fstatfs(handle)?.filesystem_type()) {
        Ok(())
    } else {
        Err(outside.into())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::System;
    use crate::fixture::Machine;

    #[test]
    fn files_outside_the_kernels_file_systems_are_never_written() {
        let place = tempfile::tempdir().unwrap();
        let (victim, link) = (place.path().join("victim"), place.path().join("link"));
        std::fs::write(&victim, "precious\n").unwrap();
        symlink(&victim, &link).unwrap();
        let system = System::default();
        let why = system.put(&victim, "0").unwrap_err().to_string();
        assert!(why.contains("not a kernel setting"), "{why}");
        assert!(system.put(&link, "0").is_err());
        assert!(system.put("/dev/null", "0").is_err());
        assert_eq!(std::fs::read_to_string(victim).unwrap(), "precious\n");
    }

    #[test]
    fn a_shorter_value_replaces_a_longer_one() {
        let machine = Machine::new();
        machine.put("proc/sys/vm/swappiness", "100\n");
        machine.system().put("proc/sys/vm/swappiness", "6").unwrap();
        assert_eq!(machine.text("proc/sys/vm/swappiness"), "6\n");
    }
}
