//! A directory accessed through a handle. Its files are opened by name, relative to the handle, and
//! never through a symbolic link.
//!
//! Root often works in directories that other users can write to. Every system call resolves a path
//! anew, so the owner of any directory in the path can replace a component between a check and its
//! use. A [`Folder`] resolves the path once. After that, every access is relative to the handle,
//! takes a single name, and refuses links, pipes and devices.
//!
//! How far a directory must be trusted depends on its use:
//!
//! | opened with | owner | parents' owner | used for |
//! |---|---|---|---|
//! | [`Folder::open`] | anybody | anybody | reading what somebody else wrote |
//! | [`Folder::open_own`] | the user | anybody | files that this user writes and removes |
//! | [`Folder::open_guarded`] | root or the user | root or the user | new entries |
//! | [`Folder::open_trusted`] | the user | root or the user | root's input |
//!
//! "The user" is the effective user of this process.

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

/// Flags for opening any directory. The last component of the path must not be a symbolic link, and
/// the handle is closed on exec.
const DIRECTORY: OFlag = OFlag::O_DIRECTORY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_RDONLY);

/// Why a directory, or a file in it, is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// Another user owns the file or directory.
    #[error("{path} belongs to user {owner}: use a directory that you own, or remove it")]
    Owner {
        /// Path of the file or directory.
        path: PathBuf,
        /// User id of the owner.
        owner: u32,
    },
    /// Another user owns a parent directory.
    #[error(
        "{path} belongs to user {owner}, who could replace its contents: use a directory that you \
         own"
    )]
    Parent {
        /// Path of the parent directory.
        path: PathBuf,
        /// User id of the owner of the parent directory.
        owner: u32,
    },
    /// Other users can write to the file or directory.
    #[error("other users can write to {path}: run `chmod go-w` on it, or use another directory")]
    Writable {
        /// Path of the file or directory.
        path: PathBuf,
    },
    /// The file is a link, a pipe, a device or a socket.
    #[error("{path} is not a regular file: move or remove it")]
    NotRegular {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is in the file system `/proc`.
    #[error("{path} is in /proc: copy it to another file system first")]
    InProc {
        /// Path of the file.
        path: PathBuf,
    },
}

impl From<Distrust> for io::Error {
    /// Wraps a [`Distrust`] in an error of kind `PermissionDenied`, whose message
    /// [`super::error_words`] returns unchanged.
    fn from(distrust: Distrust) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, distrust)
    }
}

/// An open directory. Its methods accept only names with a single component, so a name contains no
/// `/` and is neither `.` nor `..`.
#[derive(Debug)]
pub struct Folder {
    handle: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens a directory that may belong to anybody. Links in `path` are followed as usual.
    ///
    /// # Errors
    /// Returns an error if the system call fails.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = DIRECTORY.difference(OFlag::O_NOFOLLOW);
        Ok(Self {
            handle: open(or_here(path), flags, Mode::empty())?,
            path: path.to_owned(),
        })
    }

    /// Opens a directory that belongs to the effective user and that nobody else can write to.
    ///
    /// # Errors
    /// Returns a [`Distrust`] if another user owns the directory or can write to it. Also returns
    /// an error if a system call fails.
    pub fn open_own(path: &Path) -> io::Result<Self> {
        let folder = Self::open(path)?;
        folder.check_own()?;
        Ok(folder)
    }

    /// Opens a directory that belongs to the effective user. Only this user and root may be able to
    /// change its parent directories. Each component of `path`, and of the links in it, is opened
    /// and checked through its handle.
    ///
    /// # Errors
    /// Returns a [`Distrust`] if another user could change the path. Also returns an error if a
    /// system call fails.
    pub fn open_trusted(path: &Path) -> io::Result<Self> {
        let folder = Self::walk(path)?;
        folder.check_own()?;
        Ok(Self {
            path: path.to_owned(),
            ..folder
        })
    }

    /// Opens a directory like [`Folder::open_trusted`], but creates the directory and its parents
    /// if they are missing. The new directory gets `mode` and its new parents get 0755, both
    /// restricted by the umask.
    ///
    /// # Errors
    /// Returns a [`Distrust`] if another user could change the path. Also returns an error if a
    /// system call fails.
    pub fn make_trusted(path: &Path, mode: u32) -> io::Result<Self> {
        let mut missing = Vec::new();
        let mut there = path;
        let mut folder = loop {
            match Self::walk(there) {
                Ok(folder) => break folder,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            // A path that ends in `..` has no file name. This happens with a dangling link, through
            // which nothing can be created.
            missing.push(there.file_name().ok_or(io::ErrorKind::NotFound)?);
            there = there.parent().ok_or(io::ErrorKind::NotFound)?;
        };
        while let Some(name) = missing.pop() {
            let mode = if missing.is_empty() { mode } else { 0o755 };
            folder = folder.make(name, mode)?;
            // In a sticky parent directory, another user may have created this directory first.
            folder.check_parent()?;
        }
        folder.check_own()?;
        Ok(Self {
            path: path.to_owned(),
            ..folder
        })
    }

    /// Opens a directory in which only root and the effective user can replace the entries that
    /// this user creates. The directory and all its parents must belong to one of these two users,
    /// and any that others can write to must be sticky.
    ///
    /// # Errors
    /// Returns a [`Distrust`] if another user could change the path. Also returns an error if a
    /// system call fails.
    pub fn open_guarded(path: &Path) -> io::Result<Self> {
        Self::walk(path)
    }

    /// Opens a subdirectory, creating it if it is missing.
    ///
    /// # Errors
    /// Returns `NotADirectory` if the name is a link or a file. Also returns an error if a system
    /// call fails.
    pub fn make(&self, name: &OsStr, mode: u32) -> io::Result<Self> {
        match mkdirat(&self.handle, single(name)?, Mode::from_bits_truncate(mode)) {
            Ok(()) | Err(Errno::EEXIST) => self.child(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a subdirectory and opens it. Its mode is exactly `mode`; the umask is ignored.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if the name is taken. Also returns an error if a system call fails.
    pub fn make_new(&self, name: &OsStr, mode: u32) -> io::Result<Self> {
        // Keep other users out of the directory until it has its final mode.
        mkdirat(&self.handle, single(name)?, Mode::S_IRWXU)?;
        let folder = self.child(name)?;
        fchmod(&folder.handle, Mode::from_bits_truncate(mode))?;
        Ok(folder)
    }

    /// Opens an existing subdirectory.
    ///
    /// # Errors
    /// Returns `NotADirectory` if the name is a link or a file. Also returns an error if a system
    /// call fails.
    pub fn child(&self, name: &OsStr) -> io::Result<Self> {
        Ok(Self {
            handle: openat(&self.handle, single(name)?, DIRECTORY, Mode::empty())?,
            path: self.path.join(name),
        })
    }

    /// Returns another handle to the same directory.
    ///
    /// # Errors
    /// Returns an error if the process has no file descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            handle: self.handle.try_clone()?,
            path: self.path.clone(),
        })
    }

    /// Returns the path of the directory, for use in messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the user id of the directory's owner.
    ///
    /// # Errors
    /// Returns an error if the system call fails.
    pub fn owner(&self) -> io::Result<u32> {
        Ok(fstat(&self.handle)?.st_uid)
    }

    /// Returns a handle for locking the directory or changing its owner.
    ///
    /// # Errors
    /// Returns an error if the process has no file descriptors left.
    pub fn handle(&self) -> io::Result<File> {
        Ok(self.handle.try_clone()?.into())
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// Returns [`Distrust::NotRegular`] if the file is not regular. Also returns an error if a
    /// system call fails.
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        self.open_file(name, OFlag::O_RDONLY, 0)
    }

    /// Opens a regular file for reading and writing. It must belong to the effective user, and
    /// nobody else may be able to write to it. If `create` is set and the file is missing, it is
    /// created with the mode `mode`.
    ///
    /// # Errors
    /// Returns a [`Distrust`] if the file is not regular, or if another user owns it or can write
    /// to it. Also returns an error if a system call fails.
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

    /// Opens a regular file for writing without checking who owns it. This is for the kernel's
    /// files, which belong to various users.
    ///
    /// # Errors
    /// Returns [`Distrust::NotRegular`] if the file is not regular. Also returns an error if a
    /// system call fails.
    pub fn modify(&self, name: &OsStr) -> io::Result<File> {
        self.open_file(name, OFlag::O_WRONLY, 0)
    }

    /// Creates a new file and opens it for writing.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if the name is taken. Also returns an error if a system call fails.
    pub fn create_new(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        self.open_file(name, flags, mode)
    }

    fn open_file(&self, name: &OsStr, flags: OFlag, mode: u32) -> io::Result<File> {
        // Without `O_NONBLOCK`, opening a pipe that has no writer would block. The flag does not
        // affect regular files.
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
            // The name is a link, or a socket or pipe that cannot be opened for writing.
            Err(Errno::ELOOP | Errno::ENXIO) => return Err(not_regular()),
            Err(error) => return Err(error.into()),
        };
        if is(&fstat(&file)?, SFlag::S_IFREG) {
            Ok(file)
        } else {
            Err(not_regular())
        }
    }

    /// Returns the size of a regular file in bytes; `None` if the file is missing or not regular.
    pub fn size(&self, name: &OsStr) -> Option<u64> {
        let facts = fstatat(
            &self.handle,
            single(name).ok()?,
            AtFlags::AT_SYMLINK_NOFOLLOW,
        )
        .ok()?;
        is(&facts, SFlag::S_IFREG).then(|| u64::try_from(facts.st_size).unwrap_or(0))
    }

    /// Returns whether an entry with this name exists, even if it is a dangling link.
    pub fn has(&self, name: &OsStr) -> bool {
        let found = single(name)
            .and_then(|name| Ok(fstatat(&self.handle, name, AtFlags::AT_SYMLINK_NOFOLLOW)?));
        found.is_ok()
    }

    /// Removes a file. If the name is a link, the link is removed and its target is left alone.
    ///
    /// # Errors
    /// Returns an error if the system call fails.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(
            &self.handle,
            single(name)?,
            UnlinkatFlags::NoRemoveDir,
        )?)
    }

    /// Removes an empty subdirectory.
    ///
    /// # Errors
    /// Returns an error if the system call fails.
    pub fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(
            &self.handle,
            single(name)?,
            UnlinkatFlags::RemoveDir,
        )?)
    }

    /// Renames a file within the directory, replacing any existing file called `to`.
    ///
    /// # Errors
    /// Returns an error if the system call fails.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(
            &self.handle,
            single(from)?,
            &self.handle,
            single(to)?,
        )?)
    }

    /// Returns the names of all entries in the directory, in arbitrary order.
    ///
    /// # Errors
    /// Returns an error if a system call fails.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        // Use a separate handle, because reading moves a handle's position.
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

    /// Waits until the entries of the directory are on disk. Errors are ignored, because some file
    /// systems cannot sync a directory, and files appear complete in any case.
    pub fn sync(&self) {
        let _ = self.handle().and_then(|handle| handle.sync_all());
    }

    /// Checks that the effective user owns the directory and that nobody else can write to it.
    ///
    /// # Errors
    /// Returns a [`Distrust`] if the check fails. Also returns an error if a system call fails.
    pub fn check_own(&self) -> io::Result<()> {
        check_own(&fstat(self.handle.as_fd())?, || self.path.clone())
    }

    /// Checks that only root and the effective user can replace entries that belong to these two
    /// users. A sticky directory that belongs to root, such as `/tmp`, passes this check.
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

/// Returns `path`, or `.` if it is empty.
pub(super) fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

/// Returns `name` if it consists of a single component, and an error otherwise.
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

/// Returns whether anybody except the owner can write to the file: other users or members of its
/// group. Only a user's private group, which has the same id as the user, is known to have no other
/// members. An ACL that lets another user write also sets the group's write bit.
fn others_write(facts: &FileStat) -> bool {
    let mode = Mode::from_bits_truncate(facts.st_mode);
    let (user, group) = (geteuid(), getegid().as_raw());
    let own_group = facts.st_gid == group && group == user.as_raw() && !user.is_root();
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
