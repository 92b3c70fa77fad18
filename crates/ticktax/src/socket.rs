//! Unix sockets. Their files are created, given to a user and removed relative to a directory
//! handle, never through a symbolic link.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, socket};
use nix::sys::stat::{
    FchmodatFlags, FileStat, Mode, SFlag, fchmod, fchmodat, fstat, fstatat, mode_t,
};
use nix::unistd::{User, fchownat};
use ticktax_store::disk::Folder;

/// The file of a Unix socket. It is removed when this value is dropped, unless another file has
/// taken its name.
pub(crate) struct SocketFile {
    folder: Folder,
    name: Box<OsStr>,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// Binds a new socket to the file `name` in the directory. The file's mode is `mode` when the
    /// function returns, and is never more permissive than that.
    ///
    /// # Errors
    /// Returns `AddrInUse` if the name is taken, or any other I/O error.
    pub(crate) fn bind(
        folder: Folder,
        name: &OsStr,
        kind: SockType,
        mode: mode_t,
    ) -> io::Result<(OwnedFd, Self)> {
        let socket = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None)?;
        let mode = Mode::from_bits_truncate(mode);
        // The kernel derives the file's mode from the socket's mode and the umask. The umask
        // applies to all threads, so it must not be changed here.
        fchmod(&socket, mode)?;
        let address = UnixAddr::new(&through_handle(&folder, name))?;
        bind(socket.as_raw_fd(), &address)?;
        let facts = socket_facts(&folder, name).ok_or(io::ErrorKind::NotFound)?;
        let file = Self {
            folder,
            name: name.into(),
            identity: (facts.st_dev, facts.st_ino),
        };
        if Mode::from_bits_truncate(facts.st_mode & 0o777) != mode {
            fchmodat(&file.folder, name, mode, FchmodatFlags::NoFollowSymlink)?;
        }
        Ok((socket, file))
    }

    /// Makes `user` the owner of the file.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if another file has taken the name, or any other I/O error.
    pub(crate) fn give(&self, user: &User) -> io::Result<()> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let handle = openat(&self.folder, &*self.name, flags, Mode::empty())?;
        if !self.is_same(&fstat(&handle)?) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (uid, gid) = (Some(user.uid), Some(user.gid));
        Ok(fchownat(&handle, "", uid, gid, AtFlags::AT_EMPTY_PATH)?)
    }

    fn is_same(&self, facts: &FileStat) -> bool {
        (facts.st_dev, facts.st_ino) == self.identity
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let facts = socket_facts(&self.folder, &self.name);
        if facts.is_some_and(|facts| self.is_same(&facts)) {
            // Ignore errors: the next process that listens on this path will remove the file.
            let _ = self.folder.remove(&self.name);
        }
    }
}

pub(crate) fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    Ok((path.parent().unwrap_or(Path::new("")), name))
}

/// Removes the file `name` if it is a socket. Leaves other files alone.
pub(crate) fn remove(folder: &Folder, name: &OsStr) {
    if socket_facts(folder, name).is_some() {
        // If the removal fails, the next attempt to bind reports the error.
        let _ = folder.remove(name);
    }
}

/// Removes the file of a stream socket that no process listens on.
pub(crate) fn remove_stale(folder: &Folder, name: &OsStr) {
    let connects = || {
        let socket = socket(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            None,
        )?;
        let address = UnixAddr::new(&through_handle(folder, name))?;
        nix::sys::socket::connect(socket.as_raw_fd(), &address)
    };
    if socket_facts(folder, name).is_some() && connects() == Err(Errno::ECONNREFUSED) {
        remove(folder, name);
    }
}

/// Returns a socket file's metadata, or `None` if `name` does not exist or is not a socket.
fn socket_facts(folder: &Folder, name: &OsStr) -> Option<FileStat> {
    let facts = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
    let kind = SFlag::from_bits_truncate(facts.st_mode & SFlag::S_IFMT.bits());
    (kind == SFlag::S_IFSOCK).then_some(facts)
}

/// Returns a path to the file through the directory's handle, because no system call binds a socket
/// relative to a directory. No matter how deep the directory is, this path fits into the 107 bytes
/// that a socket address has for it.
fn through_handle(folder: &Folder, name: &OsStr) -> PathBuf {
    Path::new("/proc/self/fd")
        .join(folder.as_fd().as_raw_fd().to_string())
        .join(name)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    const NAME: &str = "socket";

    fn bound(place: &Path, mode: mode_t) -> io::Result<(OwnedFd, SocketFile)> {
        let folder = Folder::open(place)?;
        SocketFile::bind(folder, OsStr::new(NAME), SockType::Datagram, mode)
    }

    #[test]
    fn a_socket_has_its_mode_whatever_the_umask() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(NAME);
        // With the usual umask (022), a plain bind would give mode 0755, and binding with mode 0660
        // would lose the group's write permission.
        for wanted in [0o600, 0o660, 0o666] {
            let (_socket, file) = bound(place.path(), wanted).unwrap();
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, wanted, "{mode:o}");
            let sender = UnixDatagram::unbound().unwrap();
            sender.send_to(b"words", &path).unwrap();
            drop(file);
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_symbolic_link_of_its_name_is_neither_followed_nor_removed() {
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        drop(UnixListener::bind(&victim).unwrap());
        let path = place.path().join(NAME);
        let folder = Folder::open(place.path()).unwrap();
        symlink(&victim, &path).unwrap();
        remove_stale(&folder, OsStr::new(NAME));
        remove(&folder, OsStr::new(NAME));
        assert!(path.is_symlink() && victim.exists());
        let refused = bound(place.path(), 0o600).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        // Another process replaces the file while the socket is bound.
        fs::remove_file(&path).unwrap();
        let (_socket, file) = bound(place.path(), 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&victim, &path).unwrap();
        let user = User::from_uid(nix::unistd::geteuid()).unwrap().unwrap();
        assert!(file.give(&user).is_err());
        drop(file);
        assert!(path.is_symlink() && victim.exists());
    }

    #[test]
    fn another_file_or_another_socket_of_its_name_stays() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(NAME);
        let (_socket, file) = bound(place.path(), 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        let folder = Folder::open(place.path()).unwrap();
        remove(&folder, OsStr::new(NAME));
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
        // `remove_stale` removes the file of a killed process, but keeps the file if a process
        // listens on its socket.
        let listener = UnixListener::bind(&path).unwrap();
        remove_stale(&folder, OsStr::new(NAME));
        assert!(path.exists());
        drop(listener);
        remove_stale(&folder, OsStr::new(NAME));
        assert!(!path.exists());
    }
}
