//! Output to a path given by the user, which may be a file, a device, a pipe or an open descriptor.
//!
//! A file is written under a temporary name in the same directory and then renamed. If another user
//! put a symbolic link at the path, the link is replaced and its target stays unchanged. Links are
//! followed only in `/dev` and in this process's `/proc/self/fd`, so that paths such as
//! `/dev/stdout` work.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::geteuid;

use super::folder::{Distrust, or_here};
use super::temporary::Temporary;

/// Writes a file that appears either complete or not at all. Devices, pipes and open descriptors
/// are written to directly.
///
/// # Errors
/// Returns a [`Distrust`] if the path is refused. Also returns an error if a [`Temporary`] cannot
/// be created or a system call fails.
pub fn write_output(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(mut stream) = open_stream(path, true)? {
        return stream.write_all(bytes);
    }
    let temporary = Temporary::beside(path)?;
    temporary.handle()?.write_all(bytes)?;
    temporary.appear()
}

/// Checks that [`write_output`] would succeed now, without changing an existing file.
///
/// # Errors
/// Returns the error that [`write_output`] would return.
pub fn check_output(path: &Path) -> io::Result<()> {
    match open_stream(path, false)? {
        Some(_) => Ok(()),
        None => Temporary::beside(path).map(drop),
    }
}

/// Opens a path that leads to a device, a pipe or an open descriptor; `None` if it leads to
/// anything else or does not exist. If `truncate` is set and the descriptor refers to a regular
/// file, the file is truncated.
fn open_stream(path: &Path, truncate: bool) -> io::Result<Option<File>> {
    let Some(pinned) = PinnedPath::find(path)? else {
        return Ok(None);
    };
    let Some(found) = pinned.look()? else {
        return Ok(None);
    };
    match kind(&found) {
        SFlag::S_IFLNK if pinned.holds_descriptors() => {
            let truncate = if truncate {
                OFlag::O_TRUNC
            } else {
                OFlag::empty()
            };
            match pinned.open(OFlag::O_WRONLY | truncate) {
                // The descriptor refers to a directory.
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(None),
                opened => opened.map(Some),
            }
        }
        SFlag::S_IFREG | SFlag::S_IFDIR | SFlag::S_IFLNK => Ok(None),
        _ => {
            check_pipe(path, &found)?;
            pinned.open_as_found(path, &found).map(Some)
        }
    }
}

/// A path whose directory is opened only once. Otherwise, another user who controls part of the
/// path could replace the directory between the check and the opening.
pub(super) struct PinnedPath {
    folder: OwnedFd,
    name: OsString,
}

impl PinnedPath {
    /// Opens the directory that contains `path`; `None` if the path has no last component, or if
    /// the directory does not exist or cannot be accessed.
    pub(super) fn find(path: &Path) -> io::Result<Option<Self>> {
        let Some(name) = path.file_name() else {
            return Ok(None);
        };
        let folder = or_here(path.parent().unwrap_or(Path::new("")));
        match open_folder(folder) {
            Ok(folder) => Ok(Some(Self {
                folder,
                name: name.to_owned(),
            })),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the attributes of the entry itself, even if it is a link; `None` if the entry does
    /// not exist or cannot be accessed.
    pub(super) fn look(&self) -> io::Result<Option<FileStat>> {
        match fstatat(&self.folder, &*self.name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::ENOENT | Errno::EACCES) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the directory is `/dev` or this process's `/proc/self/fd`. The links there
    /// lead to open descriptors of this process, and only root can create others. The links of
    /// another process in `/proc` are not trusted, because that process's user chooses their
    /// targets.
    pub(super) fn holds_descriptors(&self) -> bool {
        let identity = |facts: FileStat| (facts.st_dev, facts.st_ino);
        let Ok(own) = fstat(&self.folder).map(identity) else {
            return false;
        };
        ["/dev", "/proc/self/fd"].iter().any(|known| {
            let known = open_folder(Path::new(known)).and_then(fstat);
            known.is_ok_and(|known| identity(known) == own)
        })
    }

    /// Opens the entry, following it if it is a link.
    pub(super) fn open(&self, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let opened = openat(&self.folder, &*self.name, flags, Mode::empty())?;
        Ok(File::from(opened))
    }

    /// Opens for writing the device or pipe that was `found` here. If a regular file has taken its
    /// place, it is neither opened nor truncated. `path` is used in messages.
    fn open_as_found(&self, path: &Path, found: &FileStat) -> io::Result<File> {
        let stream = self.open(OFlag::O_WRONLY | OFlag::O_NOFOLLOW)?;
        let opened = fstat(&stream)?;
        // Compare the kind as well, because a new file can have the same inode number as a pipe
        // that was removed.
        let is_other = (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino);
        if is_other || kind(&opened) == SFlag::S_IFREG {
            let path = path.to_owned();
            return Err(Distrust::NotRegular { path }.into());
        }
        Ok(stream)
    }
}

fn open_folder(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty())
}

fn kind(facts: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(facts.st_mode & SFlag::S_IFMT.bits())
}

pub(super) fn is_pipe(facts: &FileStat) -> bool {
    kind(facts) == SFlag::S_IFIFO
}

/// Returns an error if the entry is another user's named pipe, because that user may never open its
/// other end.
pub(super) fn check_pipe(path: &Path, found: &FileStat) -> io::Result<()> {
    let owner = found.st_uid;
    if !is_pipe(found) || owner == 0 || owner == geteuid().as_raw() {
        return Ok(());
    }
    let path = path.to_owned();
    Err(Distrust::Owner { path, owner }.into())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::{Read, Seek};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    fn place() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder")
    }

    #[test]
    fn a_link_is_replaced_and_its_target_stays() {
        let place = place();
        let [victim, link] = ["victim", "link"].map(|name| place.path().join(name));
        fs::write(&victim, "precious").expect("written");
        symlink(&victim, &link).expect("a link");
        check_output(&link).expect("it can be written");
        assert!(link.is_symlink(), "the check changes nothing");
        write_output(&link, b"page").expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("read"), "precious");
        assert_eq!(fs::read_to_string(&link).expect("read"), "page");
        assert!(!link.is_symlink());
    }

    #[test]
    fn a_dangling_link_creates_no_file() {
        let place = place();
        let [nowhere, link] = ["nowhere", "link"].map(|name| place.path().join(name));
        symlink(&nowhere, &link).expect("a link");
        check_output(&link).expect("it can be written");
        write_output(&link, b"page").expect("written");
        assert!(!nowhere.exists());
    }

    #[test]
    fn a_file_that_took_the_place_of_a_pipe_is_refused_and_not_emptied() {
        let place = place();
        let path = place.path().join("path");
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe");
        let opened = PinnedPath::find(&path).expect("opened").expect("there");
        let found = opened.look().expect("seen").expect("a pipe");
        fs::remove_file(&path).expect("removed");
        fs::write(&path, "precious").expect("written");
        let refused = opened.open_as_found(&path, &found);
        let refused = refused.expect_err("it is a file now");
        assert!(refused.to_string().contains("regular"), "{refused}");
        assert_eq!(fs::read_to_string(&path).expect("read"), "precious");
    }

    /// Another user's process could hold any file open, if only for reading.
    #[test]
    fn descriptors_of_other_processes_are_not_written_to() {
        let place = place();
        let (file, link) = (place.path().join("file"), place.path().join("link"));
        fs::write(&file, "precious").expect("written");
        let mut command = std::process::Command::new("sleep");
        let held = File::open(&file).expect("opened");
        let mut other = command.arg("60").stdin(held).spawn().expect("started");
        symlink(format!("/proc/{}/fd", other.id()), &link).expect("a link");
        let refused = [
            write_output(&link.join("0"), b"page"),
            check_output(&link.join("0")),
        ];
        other.kill().expect("killed");
        other.wait().expect("ended");
        assert!(refused.iter().all(Result::is_err), "{refused:?}");
        assert_eq!(fs::read_to_string(&file).expect("read"), "precious");
    }

    /// After the path was checked, its directory is replaced with one that contains a link to a
    /// file.
    #[test]
    fn a_link_in_an_exchanged_directory_is_not_followed() {
        let place = place();
        let [out, other, victim] = ["out", "other", "victim"].map(|name| place.path().join(name));
        let own = tempfile::tempfile().expect("a file");
        let name = own.as_raw_fd().to_string();
        fs::write(&victim, "precious").expect("written");
        fs::create_dir(&other).expect("a folder");
        symlink(&victim, other.join(&name)).expect("a link");
        symlink("/proc/self/fd", &out).expect("a link");
        let found = PinnedPath::find(&out.join(&name))
            .expect("opened")
            .expect("there");
        assert!(found.holds_descriptors());
        fs::rename(&out, place.path().join("away")).expect("renamed");
        fs::rename(&other, &out).expect("renamed");
        let mut opened = found
            .open(OFlag::O_WRONLY | OFlag::O_TRUNC)
            .expect("opened");
        opened.write_all(b"page").expect("written");
        assert_eq!(own.metadata().expect("a file").len(), 4);
        write_output(&out.join(&name), b"page").expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("read"), "precious");
    }

    #[test]
    fn descriptors_and_devices_are_written_to() {
        let mut file = tempfile::tempfile().expect("a file");
        let path = format!("/dev/fd/{}", file.as_raw_fd());
        file.write_all(b"older and longer").expect("written");
        check_output(Path::new(&path)).expect("it can be written");
        write_output(Path::new(&path), b"page").expect("written");
        file.rewind().expect("a file");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "page");
        for device in ["/dev/null", "/dev/full"] {
            check_output(Path::new(device)).expect("it can be written");
        }
        write_output(Path::new("/dev/null"), b"page").expect("written");
        let full = write_output(Path::new("/dev/full"), b"page").expect_err("full");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn the_mode_of_an_own_file_is_not_widened() {
        let place = place();
        let path = place.path().join("page");
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a mode");
        write_output(&path, b"new").expect("written");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_check_leaves_no_file() {
        let place = place();
        check_output(&place.path().join("page")).expect("it can be written");
        assert_eq!(fs::read_dir(place.path()).expect("listed").count(), 0);
        let missing = check_output(&place.path().join("none/page")).expect_err("no folder");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    mod root {
        use std::os::unix::fs::{chown, lchown};

        use nix::sys::stat::Mode;

        use super::*;

        /// User id of `nobody` on all distributions.
        const SOMEBODY: u32 = 65_534;

        #[test]
        fn entries_of_others_in_a_sticky_directory_are_not_followed_or_written_to() {
            if !geteuid().is_root() {
                return;
            }
            let place = place();
            let shared = place.path().join("shared");
            fs::create_dir(&shared).expect("a folder");
            fs::set_permissions(&shared, Permissions::from_mode(0o1777)).expect("a mode");
            let victim = place.path().join("victim");
            fs::write(&victim, "precious").expect("written");
            let [link, pipe] = ["link", "pipe"].map(|name| shared.join(name));
            symlink(&victim, &link).expect("a link");
            lchown(&link, Some(SOMEBODY), Some(SOMEBODY)).expect("root gives it away");
            nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
            chown(&pipe, Some(SOMEBODY), Some(SOMEBODY)).expect("root gives it away");
            write_output(&link, b"page").expect("written");
            assert_eq!(fs::read_to_string(&victim).expect("read"), "precious");
            let refused = check_output(&pipe).expect_err("theirs").to_string();
            assert!(refused.contains("belongs to user 65534"), "{refused}");
        }
    }
}
