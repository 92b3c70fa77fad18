//! Input from a path given by the user, which may be a file, a pipe from the shell, or a device.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::stat;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use super::output::{PinnedPath, check_pipe, is_pipe};
use super::{Distrust, error_words};

/// Opens a path for reading. Another user's named pipe is refused, because reading from it would
/// block until that user writes, possibly forever. Descriptors that are already open, such as
/// `/dev/stdin` and the shell's `<(command)`, may belong to any user.
///
/// # Errors
/// Returns a [`Distrust`](super::Distrust) if a pipe is refused. Also returns an error if a system
/// call fails.
pub fn open_input(path: &Path) -> io::Result<File> {
    let pinned = PinnedPath::find(path)?;
    if let Some(pinned) = pinned.filter(PinnedPath::holds_descriptors) {
        return pinned.open(OFlag::O_RDONLY);
    }
    let found = stat(path)?;
    check_pipe(path, &found)?;
    if is_pipe(&found) {
        return File::open(path);
    }
    open_promptly(path)
}

/// Opens a file for reading without ever waiting, either for a device or pipe or for a program that
/// holds a lease on the file (`fcntl(2)`, `F_SETLEASE`), which could take 45 s. If a later read
/// would have to wait, it fails instead.
///
/// # Errors
/// Returns [`Distrust::InProc`] if the file is in `/proc`, because reading some of these files
/// waits or removes what is read. Also returns an error if a system call fails.
pub fn open_promptly(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    options.custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits());
    let file = options.open(path)?;
    if fstatfs(&file)?.filesystem_type() == PROC_SUPER_MAGIC {
        let path = path.to_owned();
        return Err(Distrust::InProc { path }.into());
    }
    Ok(file)
}

/// Error for an input that could not be read. The message names the file only if the file is
/// refused ([`Distrust`]).
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file cannot be opened or read.
    #[error("{}", error_words(.0))]
    Io(#[from] io::Error),
    /// The file is larger than the caller accepts.
    #[error("it is larger than {max_mib} MiB")]
    TooLarge {
        /// Largest accepted size, in MiB.
        max_mib: u32,
    },
}

/// Reads a file of at most `max_mib` MiB.
///
/// # Errors
/// Returns [`InputError::Io`] if the file cannot be read, and [`InputError::TooLarge`] if it is
/// larger than `max_mib` MiB.
pub fn read_input(path: &Path, max_mib: u32) -> Result<Vec<u8>, InputError> {
    let limit = u64::from(max_mib) << 20;
    let mut bytes = Vec::new();
    open_input(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(InputError::TooLarge { max_mib });
    }
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
        for (length, is_read) in [(5, true), (1 << 20, true), ((1 << 20) + 1, false)] {
            fs::write(&path, vec![b'1'; length]).expect("written");
            assert_eq!(read_input(&path, 1).is_ok(), is_read, "{length}");
        }
        let endless = read_input(Path::new("/dev/zero"), 1).expect_err("it has no end");
        assert_eq!(endless.to_string(), "it is larger than 1 MiB");
    }

    /// Reading `/proc/kmsg` would wait for the kernel's next message and remove it from the log.
    #[test]
    fn files_in_proc_are_refused_even_through_a_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("lag.csv");
        std::os::unix::fs::symlink("/proc/version", &link).expect("a link");
        for path in [&link, Path::new("/proc/version")] {
            let refused = read_input(path, 1).expect_err("in /proc").to_string();
            assert!(refused.contains("is in /proc"), "{refused}");
        }
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
            let refused = read_input(&path, 1).expect_err("theirs");
            let message = refused.to_string();
            assert!(message.contains("belongs to user 65534"), "{message}");
        }

        /// Under `sudo`, standard input can be a pipe that belongs to the user who called it.
        #[test]
        fn an_open_descriptor_of_any_user_is_read() {
            if !nix::unistd::geteuid().is_root() {
                return;
            }
            let (reader, writer) = nix::unistd::pipe().expect("a pipe");
            std::os::unix::fs::fchown(&reader, Some(65_534), None).expect("root gives it away");
            drop(writer);
            let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
            let read = read_input(Path::new(&path), 1).expect("read");
            assert!(read.is_empty(), "{read:?}");
        }
    }

    /// A pipe that the user's shell creates belongs to that user.
    #[test]
    fn an_own_pipe_is_read() {
        let (reader, writer) = nix::unistd::pipe().expect("a pipe");
        nix::unistd::write(&writer, b"1 2 3").expect("written");
        drop(writer);
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        let read = read_input(Path::new(&path), 1).expect("read");
        assert_eq!(read, b"1 2 3");
    }
}
