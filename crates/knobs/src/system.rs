//! The machine whose settings are read and written: the files below a folder. Tests use a temporary
//! folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{
    CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, FsType, PROC_SUPER_MAGIC, SYSFS_MAGIC,
    fstatfs,
};

/// File systems in which the kernel keeps settings.
const SETTINGS: &[FsType] = &[
    PROC_SUPER_MAGIC,
    SYSFS_MAGIC,
    DEBUGFS_MAGIC,
    CGROUP_SUPER_MAGIC,
    CGROUP2_SUPER_MAGIC,
];
/// File systems of cgroups, version 1 and 2.
const CGROUPS: &[FsType] = &[CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC];

/// Why a file or folder is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Outside {
    /// A file in which a setting was expected.
    #[error("it is not a setting of the kernel's and was left alone; check the path")]
    Settings,
    /// A folder that was expected to be a cgroup.
    #[error("it is not a folder of a cgroup file system and was left alone; check the path")]
    Cgroups,
    /// A cgroup that was expected to be one of ticktax's.
    #[error("ticktax makes no such cgroup, so it was left alone; move the journal away")]
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
    /// The machine that this process runs on.
    fn default() -> Self {
        Self::at(Path::new("/"))
    }
}

impl System {
    /// The machine whose `proc` and `sys` lie in `root`. A task's policy is not a file: it
    /// is always read from the running machine.
    ///
    /// On the running machine, files are written only on the kernel's file systems. Any other
    /// `root` belongs to a test.
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// Root of all its paths.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the files are those of the running kernel.
    fn is_running(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where a file lies that is at `path` on the machine, with or without a slash in front.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a file, without the white space at its ends.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let bytes = fs::read(self.path(path))?;
        Ok(trimmed(&bytes))
    }

    /// Writes a line to a file that is there.
    ///
    /// # Errors
    /// Those of the system, and [`Outside::Settings`].
    pub(crate) fn put(&self, path: impl AsRef<Path>, value: &str) -> io::Result<()> {
        // Nothing is cut, and no pipe is waited for, before the file is known to be the kernel's.
        let mut options = OpenOptions::new();
        options.write(true);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
        self.put_into(&options.open(self.path(path))?, value)
    }

    /// Writes a line to an open file, in one call: the kernel takes a value whole or not at all. An
    /// empty value without a line end would be no call at all.
    ///
    /// # Errors
    /// Those of the system, and [`Outside::Settings`].
    pub(crate) fn put_into(&self, mut file: &File, value: &str) -> io::Result<()> {
        if self.is_running() {
            require(file, SETTINGS, Outside::Settings)?;
        } else {
            // The kernel forgets the old value; an ordinary file has to be emptied.
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

    /// Refuses an open folder that is not a cgroup's.
    ///
    /// # Errors
    /// Those of the system, and [`Outside::Cgroups`].
    pub(crate) fn require_cgroup(&self, folder: impl AsFd) -> io::Result<()> {
        if self.is_running() {
            require(folder, CGROUPS, Outside::Cgroups)
        } else {
            Ok(())
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

    /// The kernel's name for this boot: another one after each start of the machine.
    pub(crate) fn boot_id(&self) -> io::Result<String> {
        self.text("proc/sys/kernel/random/boot_id")
    }
}

/// Text without the white space at its ends.
pub(crate) fn trimmed(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Refuses what lies on another file system. The handle is asked, so no path is resolved a second
/// time.
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
    fn no_file_outside_the_kernels_file_systems_is_written() {
        let place = tempfile::tempdir().unwrap();
        let (victim, link) = (place.path().join("victim"), place.path().join("link"));
        std::fs::write(&victim, "precious\n").unwrap();
        symlink(&victim, &link).unwrap();
        let system = System::default();
        let why = system.put(&victim, "0").unwrap_err().to_string();
        assert!(why.contains("not a setting of the kernel's"), "{why}");
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
