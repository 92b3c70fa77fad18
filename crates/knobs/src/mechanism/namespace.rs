//! Files whose contents differ between network namespaces. A thread enters the namespace to read or
//! write such a file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::sched::{CloneFlags, setns};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use crate::error::Trouble;
use crate::system::System;
use crate::target::Target;

pub(super) fn read(system: &System, target: &Target, path: &str) -> Result<String, Trouble> {
    within(system, target, || super::file::read(system, path))
}

pub(super) fn write(
    system: &System,
    target: &Target,
    path: &str,
    value: &str,
) -> Result<(), Trouble> {
    within(system, target, || super::file::write(system, path, value))
}

/// Runs `act` in the target's network namespace. Uses a temporary thread, so that no existing
/// thread has to leave its own namespace.
fn within<T: Send>(
    system: &System,
    target: &Target,
    act: impl FnOnce() -> Result<T, Trouble> + Send,
) -> Result<T, Trouble> {
    let Target::Net(place) = target else {
        return Err(Trouble::new(format!("{target} is not a network namespace")));
    };
    // If this thread is in that namespace already, entering it would change nothing but would still
    // require a privilege.
    if target.presence(system) == Target::Net("/proc/self/ns/net".into()).presence(system) {
        return act();
    }
    let entered = || {
        enter(&system.path(place))?;
        act()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, entered);
        let refused = |error: std::io::Error| {
            Trouble::new(format!("cannot start a thread: {}", error.kind()))
        };
        thread
            .map_err(refused)?
            .join()
            .unwrap_or_else(|_| Err(Trouble::new("the thread that entered it crashed")))
    })
}

fn enter(place: &Path) -> Result<(), Trouble> {
    let cannot = |why: String| Trouble::new(format!("cannot enter {}: {why}", place.display()));
    let words = |error: &io::Error| match error.get_ref() {
        Some(own) => own.to_string(),
        None => error.kind().to_string(),
    };
    let file = open(place).map_err(|error| cannot(words(&error)))?;
    setns(file, CloneFlags::CLONE_NEWNET)
        .map_err(|errno| cannot(Trouble::of_call(errno).to_string()))
}

/// Opens a namespace file. Opening a device or a pipe can have side effects, so this first checks,
/// through an `O_PATH` handle, that the file is on the namespace file system.
fn open(place: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_PATH);
    let found = options.open(place)?;
    if fstatfs(&found)?.filesystem_type() != NSFS_MAGIC {
        let why = "not a network namespace; give a file, for example /run/netns/NAME";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::open;

    #[test]
    fn only_namespace_files_are_opened() {
        open(Path::new("/proc/self/ns/net")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        // Opening a pipe would block until something writes to it.
        let pipe = folder.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        for path in [&*pipe, folder.path(), Path::new("/proc/version")] {
            let why = open(path).unwrap_err().to_string();
            assert!(why.contains("not a network namespace"), "{why}");
        }
    }
}
