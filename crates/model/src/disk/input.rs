//! Input from a path that a person typed: a file, a pipe of the shell, or a device.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::unistd::geteuid;

use super::folder::Distrust;

/// Opens a path for reading. A named pipe of another user is refused: opening it would wait until
/// that user writes, which may be never. The pipes of a shell's `<(command)` belong to the caller.
///
/// # Errors
/// Those of the system, and a [`Distrust`].
pub fn open_input(path: &Path) -> io::Result<File> {
    let found = fs::metadata(path)?;
    let owner = found.uid();
    if found.file_type().is_fifo() && owner != geteuid().as_raw() {
        let path = path.to_owned();
        return Err(Distrust::Owner { path, owner }.into());
    }
    File::open(path)
}

/// Reads at most `most` bytes, and one more if there are more: the caller refuses what is longer.
///
/// # Errors
/// As [`open_input`].
pub fn read_input(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_input(path)?.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::read_input;

    #[test]
    fn input_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("input");
        fs::write(&path, "12345").expect("written");
        for (most, expected) in [(3, "1234"), (4, "12345"), (9, "12345")] {
            assert_eq!(read_input(&path, most).expect("read"), expected.as_bytes());
        }
        let endless = read_input(Path::new("/dev/zero"), 1 << 16).expect("read");
        assert_eq!(endless.len(), (1 << 16) + 1);
    }

    mod root {
        use nix::sys::stat::Mode;

        use super::*;

        #[test]
        fn a_pipe_of_another_user_is_refused() {
            if !nix::unistd::geteuid().is_root() {
                return;
            }
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("pipe");
            nix::unistd::mkfifo(&path, Mode::S_IRWXU).expect("a pipe");
            std::os::unix::fs::chown(&path, Some(65_534), None).expect("root gives it away");
            let refused = read_input(&path, 9).expect_err("theirs").to_string();
            assert!(refused.contains("belongs to user 65534"), "{refused}");
        }
    }

    /// A pipe of the shell's.
    #[test]
    fn an_own_pipe_is_read() {
        let (reader, writer) = nix::unistd::pipe().expect("a pipe");
        nix::unistd::write(&writer, b"1 2 3").expect("written");
        drop(writer);
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        let read = read_input(Path::new(&path), 100).expect("read");
        assert_eq!(read, b"1 2 3");
    }
}
