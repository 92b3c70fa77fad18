//! A folder held by a handle, whose files are opened by name below it and never through a symbolic link.
//!
//! Root often works in folders that other users can write to. A path is resolved anew by every system call, so
//! whoever owns one of its folders can exchange a component between a check and its use. A [`Folder`] resolves the
//! path once. Everything after that is relative to the handle, takes a single name, and refuses links, pipes and
//! devices.
//!
//! How far a folder is trusted depends on what is read from it:
//!
//! | opened with | who must own it | for |
//! |---|---|---|
//! | [`Folder::open`] | anybody | reading what somebody else wrote |
//! | [`Folder::open_own`] | the effective user | files that this user writes and removes |
//! | [`Folder::open_guarded`] | root or the effective user, and all parents | new files and folders |
//! | [`Folder::open_trusted`] | the effective user, and it or root all parents | files that decide what root does |

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
    /// An error of kind `PermissionDenied` that [`super::error_words`] prints as it is.
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
    /// Opens a folder whoever owns it. Links in `path` are followed as usual.
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

    /// Opens a folder of the effective user below folders that only this user or root can change. Each
    /// component of `path`, and of the links in it, is opened and checked by its handle.
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

    /// The same of a folder that need not be there: it and its missing parents are made. The folder gets `mode`,
    /// its parents 0755, both less the umask.
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

    /// Opens a folder in which only root and the effective user can exchange what this user makes: its parents and
    /// the folder belong to one of the two, and others can write to it only if it is sticky.
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

    /// Opens a regular file for reading and writing that belongs to the effective user and that nobody else may
    /// write to. With `create`, it is made with `mode` where it is missing.
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

    /// Opens a regular file for writing without a check of its owner. The kernel's files belong to various users.
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

    /// The bytes of a regular file; `None` where there is none of this name.
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

    /// Renames a file within the folder, in place of what has the new name.
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
        // A handle of its own: reading moves its position.
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

    /// Waits until the names in it are on the disk. Some file systems cannot sync a folder; files are complete
    /// either way.
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

    /// Refuses a folder in which somebody other than root and the effective user could exchange the entries of
    /// these two. In a sticky folder of root's, such as `/tmp`, they cannot.
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
mod tests {
    use std::fs::{self, Permissions};
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn temporary() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder")
    }

    fn name(name: &str) -> &OsStr {
        OsStr::new(name)
    }

    #[test]
    fn a_link_is_neither_read_written_measured_nor_followed() {
        let place = temporary();
        let victim = place.path().join("victim");
        fs::write(&victim, "precious").expect("written");
        symlink(&victim, place.path().join("link")).expect("a link");
        symlink(place.path(), place.path().join("up")).expect("a link");
        let folder = Folder::open_trusted(place.path()).expect("our own");
        let link = name("link");
        for refused in [
            folder.read(link).err(),
            folder.write(link, true, 0o600).err(),
        ] {
            let refused = refused.expect("a link").to_string();
            assert!(refused.contains("not a regular file"), "{refused}");
        }
        let taken = folder.create_new(link, 0o600).expect_err("taken");
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        assert_eq!(folder.size(link), None);
        assert!(folder.has(link));
        assert!(folder.child(name("up")).is_err());
        folder.remove(link).expect("removed");
        assert_eq!(fs::read_to_string(&victim).expect("read"), "precious");
    }

    #[test]
    fn a_name_with_a_path_in_it_is_refused() {
        let place = temporary();
        fs::write(place.path().join("victim"), "precious").expect("written");
        let inner = place.path().join("inner");
        fs::create_dir(&inner).expect("a folder");
        let folder = Folder::open(&inner).expect("a folder");
        for bad in ["../victim", "/etc/passwd", "..", ".", "", "a/b", "a/"] {
            let kinds = [
                folder.read(name(bad)).err().map(|error| error.kind()),
                folder.remove(name(bad)).err().map(|error| error.kind()),
            ];
            assert_eq!(kinds, [Some(ErrorKind::InvalidFilename); 2], "{bad}");
            assert_eq!(folder.size(name(bad)), None, "{bad}");
        }
    }

    #[test]
    fn a_pipe_is_refused_at_once() {
        let place = temporary();
        let pipe = place.path().join("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
        let folder = Folder::open(place.path()).expect("a folder");
        for refused in [
            folder.read(name("pipe")).err(),
            folder.write(name("pipe"), false, 0).err(),
        ] {
            let refused = refused.expect("a pipe").to_string();
            assert!(refused.contains("not a regular file"), "{refused}");
        }
    }

    #[test]
    fn a_folder_that_others_can_change_is_not_trusted() {
        let place = temporary();
        let open = place.path().join("open");
        let inner = open.join("inner");
        fs::create_dir_all(&inner).expect("folders");
        let mode = |mode| fs::set_permissions(&open, Permissions::from_mode(mode)).expect("a mode");
        mode(0o777);
        let refused = Folder::open_trusted(&inner)
            .expect_err("distrusted")
            .to_string();
        assert!(refused.contains("other users may write to"), "{refused}");
        assert!(Folder::open_own(&open).is_err());
        // The folder itself is private, and enough for what the user wrote.
        Folder::open_own(&inner).expect("our own");
        // As /tmp is: nobody can exchange what we have in it, but it is not our own.
        mode(0o1777);
        Folder::open_trusted(&inner).expect("trusted");
        assert!(Folder::open_trusted(&open).is_err());
        mode(0o755);
        Folder::open_trusted(&open).expect("trusted");
    }

    mod root {
        use std::os::unix::fs::chown;

        use super::*;

        /// The user `nobody` on every distribution.
        const SOMEBODY: u32 = 65_534;

        #[test]
        fn a_folder_of_another_user_and_those_below_it_are_not_trusted() {
            if !geteuid().is_root() {
                return;
            }
            let place = temporary();
            let theirs = place.path().join("theirs");
            let below = theirs.join("below");
            fs::create_dir_all(&below).expect("folders");
            chown(&theirs, Some(SOMEBODY), Some(SOMEBODY)).expect("root gives it away");
            let refused = Folder::open_own(&theirs).expect_err("theirs").to_string();
            assert!(refused.contains("belongs to user 65534"), "{refused}");
            for refused in [
                Folder::open_trusted(&theirs),
                Folder::open_trusted(&below),
                Folder::make_trusted(&theirs.join("new"), 0o700),
            ] {
                let refused = refused.expect_err("below theirs").to_string();
                assert!(
                    refused.contains("who could replace its contents"),
                    "{refused}"
                );
            }
            assert!(!theirs.join("new").exists());
        }
    }

    #[test]
    fn a_file_that_others_can_write_to_is_refused() {
        let place = temporary();
        let folder = Folder::open(place.path()).expect("a folder");
        let mut file = folder.write(name("file"), true, 0o600).expect("made");
        file.write_all(b"mine").expect("written");
        let path = place.path().join("file");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("a mode");
        let refused = folder
            .write(name("file"), true, 0o600)
            .expect_err("refused");
        assert!(refused.to_string().contains("chmod"), "{refused}");
        // Whoever wrote it may still be read.
        let mut text = String::new();
        folder
            .read(name("file"))
            .expect("open")
            .read_to_string(&mut text)
            .expect("read");
        assert_eq!(text, "mine");
    }

    #[test]
    fn missing_folders_are_made_and_a_link_that_leads_nowhere_is_not() {
        let place = temporary();
        let deep = place.path().join("a/b/c");
        let folder = Folder::make_trusted(&deep, 0o700).expect("made");
        assert_eq!(folder.path(), deep);
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&deep), 0o700);
        Folder::make_trusted(&deep, 0o700).expect("there already");
        symlink(place.path().join("nowhere"), place.path().join("link")).expect("a link");
        assert!(Folder::make_trusted(&place.path().join("link"), 0o700).is_err());
        assert!(!place.path().join("nowhere").exists());
    }

    #[test]
    fn a_folder_is_reached_through_one_that_cannot_be_listed() {
        let place = temporary();
        let deep = place.path().join("closed/own");
        fs::create_dir_all(&deep).expect("made");
        let mode = |bits| {
            let closed = place.path().join("closed");
            fs::set_permissions(closed, Permissions::from_mode(bits)).expect("a mode");
        };
        mode(0o311);
        let opened = Folder::open_trusted(&deep).and_then(|folder| folder.names());
        mode(0o700);
        assert_eq!(opened.expect("listed"), [""; 0]);
    }

    #[test]
    fn a_link_is_not_modified_and_only_an_empty_folder_is_removed() {
        let place = temporary();
        let victim = place.path().join("victim");
        fs::write(&victim, "precious").expect("written");
        symlink(&victim, place.path().join("link")).expect("a link");
        let folder = Folder::open(place.path()).expect("a folder");
        assert!(folder.modify(name("link")).is_err());
        let mut opened = folder.modify(name("victim")).expect("a file");
        opened.write_all(b"new").expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("read"), "newcious");
        folder.make(name("sub"), 0o700).expect("made");
        fs::write(place.path().join("sub/file"), "").expect("written");
        assert!(folder.remove_folder(name("sub")).is_err());
        fs::remove_file(place.path().join("sub/file")).expect("removed");
        folder.remove_folder(name("sub")).expect("removed");
        assert!(folder.remove_folder(name("../x")).is_err());
    }

    #[test]
    fn a_new_folder_has_its_mode_and_a_taken_name_is_an_error() {
        let place = temporary();
        let folder = Folder::open_guarded(place.path()).expect("our own");
        let new = name("new");
        folder.make_new(new, 0o775).expect("made");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        // The usual umask would leave 0755.
        assert_eq!(mode(&place.path().join("new")), 0o775);
        symlink("/", place.path().join("link")).expect("a link");
        for taken in ["new", "link"] {
            let refused = folder.make_new(name(taken), 0o700).expect_err("taken");
            assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{taken}");
        }
    }

    #[test]
    fn a_folder_is_guarded_if_nobody_else_can_exchange_its_entries() {
        let place = temporary();
        let open = place.path().join("open");
        fs::create_dir(&open).expect("a folder");
        for (mode, is_guarded) in [(0o755, true), (0o777, false), (0o1777, true)] {
            fs::set_permissions(&open, Permissions::from_mode(mode)).expect("a mode");
            assert_eq!(Folder::open_guarded(&open).is_ok(), is_guarded, "{mode:o}");
        }
    }

    #[test]
    fn names_are_listed_each_time() {
        let place = temporary();
        let folder = Folder::open(place.path()).expect("a folder");
        folder.create_new(name("one"), 0o600).expect("made");
        assert_eq!(folder.names().expect("listed"), ["one"]);
        folder.rename(name("one"), name("two")).expect("renamed");
        assert_eq!(folder.names().expect("listed"), ["two"]);
    }
}
