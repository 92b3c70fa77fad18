//! A folder held by a handle, whose files are opened by name below it and never through a symbolic
//! link.
//!
//! Root often works in folders that other users can write to. Every system call resolves a path
//! anew, so the owner of one of its folders can exchange a component between a check and its use. A
//! [`Folder`] resolves the path once. Everything after that is relative to the handle, takes a
//! single name, and refuses links, pipes and devices.
//!
//! How far a folder is trusted depends on what is read from it:
//!
//! | opened with | who must own it | for |
//! |---|---|---|
//! | [`Folder::open`] | anybody | reading what somebody else wrote |
//! | [`Folder::open_own`] | the effective user | files that this user writes and removes |
//! | [`Folder::open_guarded`] | root or the effective user, and all parents | new entries |
//! | [`Folder::open_trusted`] | the effective user, and it or root all parents | input of root |

mod walk;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, getegid, geteuid, unlinkat};

/// Flags of every folder that is opened: no link as its last component, not inherited by programs.
const DIRECTORY: OFlag = OFlag::O_DIRECTORY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_RDONLY);

/// Why a folder or a file in it is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// Somebody else owns it.
    #[error("{path} belongs to user {owner}, not to you: use a folder of your own, or remove it")]
    Owner {
        /// The file or folder.
        path: PathBuf,
        /// Its owner's number.
        owner: u32,
    },
    /// A folder above it belongs to somebody else.
    #[error(
        "{path} belongs to user {owner}, who could replace its contents: use a folder of your own"
    )]
    Parent {
        /// The folder above.
        path: PathBuf,
        /// Its owner's number.
        owner: u32,
    },
    /// Others may write to it.
    #[error("other users may write to {path}: `chmod go-w` it, or use another folder")]
    Writable {
        /// The file or folder.
        path: PathBuf,
    },
    /// It is a link, a pipe, a device or a socket.
    #[error("{path} is not a regular file: move it away")]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
}

impl From<Distrust> for io::Error {
    /// An error of kind `PermissionDenied` that [`super::error_words`] prints unchanged.
    fn from(distrust: Distrust) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, distrust)
    }
}

/// An open folder. All names are single components: no `/`, no `.` and no `..`.
#[derive(Debug)]
pub struct Folder {
    handle: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder of any owner. Links in `path` are followed as usual.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = DIRECTORY.difference(OFlag::O_NOFOLLOW);
        Ok(Self {
            handle: open(or_here(path), flags, Mode::empty())?,
            path: path.to_owned(),
        })
    }

    /// Opens a folder that belongs to the effective user and that nobody else may write to.
    ///
    /// # Errors
    /// Those of the system, and a [`Distrust`].
    pub fn open_own(path: &Path) -> io::Result<Self> {
        let folder = Self::open(path)?;
        folder.check_own()?;
        Ok(folder)
    }

    /// Opens a folder of the effective user below folders that only this user or root can change.
    /// Each component of `path`, and of the links in it, is opened and checked by its handle.
    ///
    /// # Errors
    /// Those of the system, and a [`Distrust`].
    pub fn open_trusted(path: &Path) -> io::Result<Self> {
        let folder = Self::walk(path)?;
        folder.check_own()?;
        Ok(Self {
            path: path.to_owned(),
            ..folder
        })
    }

    /// The same of a folder that need not be there: it and its missing parents are made. The folder
    /// gets `mode`, its parents 0755, both less the umask.
    ///
    /// # Errors
    /// Those of the system, and a [`Distrust`].
    pub fn make_trusted(path: &Path, mode: u32) -> io::Result<Self> {
        let mut missing = Vec::new();
        let mut there = path;
        let mut folder = loop {
            match Self::walk(there) {
                Ok(folder) => break folder,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            // A path that ends in `..` has no name, and a link that leads nowhere cannot be made.
            missing.push(there.file_name().ok_or(io::ErrorKind::NotFound)?);
            there = there.parent().ok_or(io::ErrorKind::NotFound)?;
        };
        while let Some(name) = missing.pop() {
            let mode = if missing.is_empty() { mode } else { 0o755 };
            folder = folder.make(name, mode)?;
            // In a sticky folder somebody else may have made it first.
            folder.check_parent()?;
        }
        folder.check_own()?;
        Ok(Self {
            path: path.to_owned(),
            ..folder
        })
    }

    /// Opens a folder in which only root and the effective user can exchange what this user makes:
    /// its parents and the folder belong to one of the two, and others can write to it only if it
    /// is sticky.
    ///
    /// # Errors
    /// Those of the system, and a [`Distrust`].
    pub fn open_guarded(path: &Path) -> io::Result<Self> {
        Self::walk(path)
    }

    /// Makes a folder in this one, unless it is there, and opens it.
    ///
    /// # Errors
    /// Those of the system; `NotADirectory` where the name is a link or a file.
    pub fn make(&self, name: &OsStr, mode: u32) -> io::Result<Self> {
        match mkdirat(&self.handle, single(name)?, Mode::from_bits_truncate(mode)) {
            Ok(()) | Err(Errno::EEXIST) => self.child(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a folder in this one and opens it. The umask does not change its mode.
    ///
    /// # Errors
    /// Those of the system; `AlreadyExists` if anything has the name.
    pub fn make_new(&self, name: &OsStr, mode: u32) -> io::Result<Self> {
        // Nobody else may enter it before its mode is final.
        mkdirat(&self.handle, single(name)?, Mode::S_IRWXU)?;
        let folder = self.child(name)?;
        fchmod(&folder.handle, Mode::from_bits_truncate(mode))?;
        Ok(folder)
    }

    /// Opens a folder in this one.
    ///
    /// # Errors
    /// Those of the system; `NotADirectory` where the name is a link or a file.
    pub fn child(&self, name: &OsStr) -> io::Result<Self> {
        Ok(Self {
            handle: openat(&self.handle, single(name)?, DIRECTORY, Mode::empty())?,
            path: self.path.join(name),
        })
    }

    /// Another handle of the same folder.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            handle: self.handle.try_clone()?,
            path: self.path.clone(),
        })
    }

    /// Where it is, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the user who owns it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn owner(&self) -> io::Result<u32> {
        Ok(fstat(&self.handle)?.st_uid)
    }

    /// The handle, to lock it or to change its owner.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn handle(&self) -> io::Result<File> {
        Ok(self.handle.try_clone()?.into())
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// Those of the system, and [`Distrust::NotRegular`].
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        self.open_file(name, OFlag::O_RDONLY, 0)
    }

    /// Opens a regular file for reading and writing that belongs to the effective user and that
    /// nobody else may write to. With `create`, it is made with `mode` where it is missing.
    ///
    /// # Errors
    /// Those of the system, and a [`Distrust`].
    pub fn write(&self, name: &OsStr, create: bool, mode: u32) -> io::Result<File> {
        let create = if create {
            OFlag::O_CREAT
        } else {
            OFlag::empty()
        };
        let file = self.open_file(name, OFlag::O_RDWR | create, mode)?;
        check_own(&fstat(&file)?, || self.path.join(name))?;
        Ok(file)
    }

    /// Opens a regular file for writing without a check of its owner. The kernel's files belong to
    /// various users.
    ///
    /// # Errors
    /// Those of the system, and [`Distrust::NotRegular`].
    pub fn modify(&self, name: &OsStr) -> io::Result<File> {
        self.open_file(name, OFlag::O_WRONLY, 0)
    }

    /// Makes a new file for writing.
    ///
    /// # Errors
    /// Those of the system; `AlreadyExists` where anything has the name.
    pub fn create_new(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        self.open_file(name, flags, mode)
    }

    fn open_file(&self, name: &OsStr, flags: OFlag, mode: u32) -> io::Result<File> {
        // A pipe without a writer would block the open; regular files ignore the flag.
        let flags =
            flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let not_regular = || {
            let path = self.path.join(name);
            io::Error::from(Distrust::NotRegular { path })
        };
        let mode = Mode::from_bits_truncate(mode);
        let opened = openat(&self.handle, single(name)?, flags, mode);
        let file: File = match opened {
            Ok(handle) => handle.into(),
            // A link, or a socket or pipe that cannot be opened for writing.
            Err(Errno::ELOOP | Errno::ENXIO) => return Err(not_regular()),
            Err(error) => return Err(error.into()),
        };
        if is(&fstat(&file)?, SFlag::S_IFREG) {
            Ok(file)
        } else {
            Err(not_regular())
        }
    }

    /// Size of a regular file in bytes; `None` if the name is missing or not a regular file.
    pub fn size(&self, name: &OsStr) -> Option<u64> {
        let facts = fstatat(
            &self.handle,
            single(name).ok()?,
            AtFlags::AT_SYMLINK_NOFOLLOW,
        )
        .ok()?;
        is(&facts, SFlag::S_IFREG).then(|| u64::try_from(facts.st_size).unwrap_or(0))
    }

    /// Whether anything has this name, a link included.
    pub fn has(&self, name: &OsStr) -> bool {
        let found = single(name)
            .and_then(|name| Ok(fstatat(&self.handle, name, AtFlags::AT_SYMLINK_NOFOLLOW)?));
        found.is_ok()
    }

    /// Removes a file, or a link itself.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(
            &self.handle,
            single(name)?,
            UnlinkatFlags::NoRemoveDir,
        )?)
    }

    /// Removes an empty folder in this one.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(
            &self.handle,
            single(name)?,
            UnlinkatFlags::RemoveDir,
        )?)
    }

    /// Renames a file within the folder and replaces the file that has the new name.
    ///
    /// # Errors
    /// Those of the system.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(
            &self.handle,
            single(from)?,
            &self.handle,
            single(to)?,
        )?)
    }

    /// All names in it, in no order.
    ///
    /// # Errors
    /// Those of the system.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        // A separate handle, because reading moves its position.
        let flags = DIRECTORY.difference(OFlag::O_NOFOLLOW);
        let mut reading = Dir::from_fd(openat(&self.handle, ".", flags, Mode::empty())?)?;
        let mut names = Vec::new();
        for entry in reading.iter() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if single(name).is_ok() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Waits until the names in it are on the disk. Some file systems cannot sync a folder; files
    /// are complete either way.
    pub fn sync(&self) {
        let _ = self.handle().and_then(|handle| handle.sync_all());
    }

    /// Refuses a folder that is not the effective user's, or that others may write to.
    ///
    /// # Errors
    /// Those of the system, and a [`Distrust`].
    pub fn check_own(&self) -> io::Result<()> {
        check_own(&fstat(self.handle.as_fd())?, || self.path.clone())
    }

    /// Refuses a folder in which somebody other than root and the effective user could exchange the
    /// entries of these two. In a sticky folder of root's, such as `/tmp`, they cannot.
    fn check_parent(&self) -> io::Result<()> {
        let facts = fstat(self.handle.as_fd())?;
        let owner = facts.st_uid;
        let path = || self.path.clone();
        if !is_ours_or_roots(owner) {
            return Err(Distrust::Parent {
                path: path(),
                owner,
            }
            .into());
        }
        let is_sticky = Mode::from_bits_truncate(facts.st_mode).contains(Mode::S_ISVTX);
        if others_write(&facts) && !is_sticky {
            return Err(Distrust::Writable { path: path() }.into());
        }
        Ok(())
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// An empty path is the working folder.
pub(super) fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

/// The name, where it is a single component.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(name),
        _ => Err(io::ErrorKind::InvalidFilename.into()),
    }
}

fn is(facts: &FileStat, kind: SFlag) -> bool {
    SFlag::from_bits_truncate(facts.st_mode & SFlag::S_IFMT.bits()) == kind
}

fn is_ours_or_roots(owner: u32) -> bool {
    owner == 0 || owner == geteuid().as_raw()
}

/// Whether anybody but the owner may write: other users, or a group that is not the effective one.
fn others_write(facts: &FileStat) -> bool {
    let mode = Mode::from_bits_truncate(facts.st_mode);
    let own_group = facts.st_gid == getegid().as_raw();
    mode.contains(Mode::S_IWOTH) || mode.contains(Mode::S_IWGRP) && !own_group
}

fn check_own(facts: &FileStat, path: impl Fn() -> PathBuf) -> io::Result<()> {
    let owner = facts.st_uid;
    if owner != geteuid().as_raw() {
        return Err(Distrust::Owner {
            path: path(),
            owner,
        }
        .into());
    }
    if others_write(facts) {
        return Err(Distrust::Writable { path: path() }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
