//! Access to a cgroup through an open handle to its directory.
//!
//! If the path were used twice, an attacker could redirect it in between, so the directory is
//! opened only once. The handle must refer to a cgroup file system, and the cgroup's files are
//! opened by name relative to the handle.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use ticktax_store::disk::Folder;

use crate::system::{Outside, System, trimmed};

/// An open cgroup.
#[derive(Debug)]
pub(crate) struct Cgroup {
    system: System,
    folder: Folder,
}

impl Cgroup {
    /// Opens a cgroup by a path that the user gave. Follows symbolic links, because on many systems
    /// `/sys/fs/cgroup/cpu` is a link to `cpu,cpuacct`.
    pub(crate) fn open(system: &System, path: &Path) -> io::Result<Self> {
        Self::of_folder(system, Folder::open(&system.path(path))?)
    }

    /// Opens a cgroup by its absolute path. Does not follow symbolic links: one in the path causes
    /// a `NotADirectory` error.
    pub(crate) fn walk(system: &System, path: &Path) -> io::Result<Self> {
        if !path.is_absolute() {
            return Err(Outside::Cgroups.into());
        }
        let mut folder = Folder::open(system.root())?;
        for component in path.components() {
            match component {
                Component::RootDir => {}
                Component::Normal(name) => folder = folder.child(name)?,
                _ => return Err(Outside::Cgroups.into()),
            }
        }
        Self::of_folder(system, folder)
    }

    fn of_folder(system: &System, folder: Folder) -> io::Result<Self> {
        system.require_cgroup(folder.handle()?)?;
        Ok(Self {
            system: system.clone(),
            folder,
        })
    }

    pub(crate) fn child(&self, name: &OsStr) -> io::Result<Self> {
        Self::of_folder(&self.system, self.folder.child(name)?)
    }

    /// Opens the child cgroup called `name`. Creates it first if necessary.
    pub(crate) fn make(&self, name: &OsStr) -> io::Result<Self> {
        Self::of_folder(&self.system, self.folder.make(name, 0o755)?)
    }

    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        self.folder.remove_folder(name)
    }

    pub(crate) fn text(&self, name: &str) -> io::Result<String> {
        let mut bytes = Vec::new();
        self.folder
            .read(OsStr::new(name))?
            .read_to_end(&mut bytes)?;
        Ok(trimmed(&bytes))
    }

    pub(crate) fn put(&self, name: &str, value: &str) -> io::Result<()> {
        let file = self.folder.modify(OsStr::new(name))?;
        self.system.put_into(&file, value)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.folder.size(OsStr::new(name)).is_some()
    }

    /// Returns an identity for this cgroup that no later cgroup at the same path will have.
    pub(crate) fn identity(&self) -> io::Result<String> {
        let facts = self.folder.handle()?.metadata()?;
        Ok(format!("{}:{}", facts.dev(), facts.ino()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::Cgroup;
    use crate::System;
    use crate::fixture::Machine;

    #[test]
    fn folders_on_other_file_systems_are_not_opened_as_cgroups() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        symlink("/sys", &link).unwrap();
        for path in [place.path(), &link, Path::new("/"), Path::new("/proc")] {
            for opened in [
                Cgroup::open(&System::default(), path),
                Cgroup::walk(&System::default(), path),
            ] {
                assert!(opened.is_err(), "{path:?}");
            }
        }
    }

    #[test]
    fn a_walk_follows_no_link_and_no_parent() {
        let machine = Machine::new();
        machine.put("cg/a/cpu.max", "max 100000\n");
        symlink(machine.path("cg"), machine.path("link")).unwrap();
        let walked = |path: &str| Cgroup::walk(&machine.system(), Path::new(path));
        assert_eq!(
            walked("/cg/a").unwrap().text("cpu.max").unwrap(),
            "max 100000"
        );
        for path in ["/link/a", "/cg/../cg/a", "cg/a", "/cg/b"] {
            assert!(walked(path).is_err(), "{path}");
        }
        let followed = Cgroup::open(&machine.system(), Path::new("/link/a"));
        assert!(followed.unwrap().has("cpu.max"));
    }

    #[test]
    fn linked_files_are_neither_read_nor_written() {
        let machine = Machine::new();
        machine.folder("cg");
        machine.put("victim", "precious\n");
        symlink(machine.path("victim"), machine.path("cg/cgroup.procs")).unwrap();
        let group = Cgroup::walk(&machine.system(), Path::new("/cg")).unwrap();
        assert!(group.text("cgroup.procs").is_err());
        assert!(group.put("cgroup.procs", "7").is_err());
        assert!(group.put("../victim", "7").is_err());
        assert_eq!(machine.text("victim"), "precious\n");
    }
}
