//! Output to a path given by the user: a file, a device, a pipe or an open descriptor.
//!
//! A file is written under a temporary name in the same directory, then renamed. If another user
//! put a symbolic link at the path, the link is replaced and its target stays unchanged. Links are
//! only followed in `/dev` and `/proc`, for paths such as `/dev/stdout`.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use super::folder::{Distrust, or_here};
use super::temporary::Temporary;

/// Writes a file that appears complete or not at all. Devices, pipes and open descriptors are
/// written directly.
///
/// # Errors
/// Returns a [`Distrust`] if the path is refused, an error if a [`Temporary`] cannot be created, or
/// the error of a failed system call.
pub fn write_output(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(mut stream) = open_stream(path, true)? {
        return stream.write_all(bytes);
    }
    let temporary = Temporary::beside(path)?;
    temporary.handle()?.write_all(bytes)?;
    temporary.appear()
}

/// Checks whether [`write_output`] would succeed now. Does not change an existing file.
///
/// # Errors
/// Returns the error that [`write_output`] would return.
pub fn check_output(path: &Path) -> io::Result<()> {
    match open_stream(path, false)? {
        Some(_) => Ok(()),
        None => Temporary::beside(path).map(drop),
    }
}

/// Whether `path` is in `/dev` or below `/proc`, which contain the paths of open descriptors.
pub(super) fn names_descriptor(path: &Path) -> bool {
    let folder = or_here(path.parent().unwrap_or(Path::new("")));
    fs::canonicalize(folder)
        .is_ok_and(|folder| folder == Path::new("/dev") || folder.starts_with("/proc"))
}

/// Opens a path that does not lead to a regular file. Returns `None` if it leads to one or does not
/// exist. `truncate` applies to descriptors of regular files.
fn open_stream(path: &Path, truncate: bool) -> io::Result<Option<File>> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(None);
    };
    if found.is_symlink() {
        // Follows links only where nobody but root can create them.
        let follows = names_descriptor(path) && !path.is_dir();
        let mut options = OpenOptions::new();
        let options = options.write(true).truncate(truncate);
        return follows.then(|| options.open(path)).transpose();
    }
    if found.is_file() || found.is_dir() {
        return Ok(None);
    }
    check_pipe(path, &found)?;
    open_as_found(path, &found).map(Some)
}

/// Opens a device or pipe that was `found` at `path`. If the path leads to a regular file by now,
/// refuses to open it and does not truncate it.
fn open_as_found(path: &Path, found: &Metadata) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NOCTTY;
    let mut options = OpenOptions::new();
    let options = options.write(true).custom_flags(flags.bits());
    let stream = options.open(path)?;
    let opened = stream.metadata()?;
    // A new file can have the same inode number as a removed pipe.
    if opened.is_file() || (opened.dev(), opened.ino()) != (found.dev(), found.ino()) {
        let path = path.to_owned();
        return Err(Distrust::NotRegular { path }.into());
    }
    Ok(stream)
}

/// Refuses another user's named pipe, because that user may never open the other end.
pub(super) fn check_pipe(path: &Path, found: &Metadata) -> io::Result<()> {
    let owner = found.uid();
    if !found.file_type().is_fifo() || owner == 0 || owner == geteuid().as_raw() {
        return Ok(());
    }
    let path = path.to_owned();
    Err(Distrust::Owner { path, owner }.into())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
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
        let found = fs::symlink_metadata(&path).expect("a pipe");
        fs::remove_file(&path).expect("removed");
        fs::write(&path, "precious").expect("written");
        let refused = open_as_found(&path, &found).expect_err("it is a file now");
        assert!(refused.to_string().contains("regular"), "{refused}");
        assert_eq!(fs::read_to_string(&path).expect("read"), "precious");
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
