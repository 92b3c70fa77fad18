//! Files that appear under their final names either complete or not at all.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::LockedFile;
use super::folder::Folder;
use super::output::PinnedPath;

/// A file with a temporary name, in the directory where it will appear. If it is dropped before it
/// appears, the file is removed.
///
/// A killed process leaves behind a file called `.NAME.PID-N.part`. The file is locked for as long
/// as its writer lives, so the next process that writes a file of the same name recognizes
/// abandoned files and removes them.
#[derive(Debug)]
pub struct Temporary {
    file: LockedFile,
    folder: Folder,
    here: OsString,
    name: OsString,
    /// Whether the file must still be removed when this value is dropped.
    armed: bool,
}

const ENDING: &str = ".part";

impl Temporary {
    /// Maximum number of names to try. A name can be taken only if a killed process with the same
    /// id left a file behind.
    const ATTEMPTS: u32 = 1000;

    /// Creates an empty file that will appear as `path`. If `path` is a link, the link is replaced
    /// and its target stays unchanged. If a file is replaced, users who could not read the old file
    /// cannot read the new one.
    ///
    /// # Errors
    /// Returns `IsADirectory` or `InvalidInput` if `path` is a directory or device, or leads to
    /// one, because the final rename would replace the device itself. Also returns an error if a
    /// system call fails.
    pub fn beside(path: &Path) -> io::Result<Self> {
        // This check helps users who name a device by mistake. A file that appears at `path` later
        // is replaced but never written to.
        match fs::metadata(path) {
            Ok(facts) if facts.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(facts) if !facts.is_file() => return Err(io::ErrorKind::InvalidInput.into()),
            // Without this check, root would replace `/dev/stdout` itself.
            Ok(_) if PinnedPath::find(path)?.is_some_and(|pinned| pinned.holds_descriptors()) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            _ => {}
        }
        // A path without a last component (one that is empty or ends in `..`) names a directory.
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let folder = Folder::open(path.parent().unwrap_or(Path::new("")))?;
        let old = fs::symlink_metadata(path).ok().filter(Metadata::is_file);
        let mode = old.as_ref().map_or(0o666, |old| old.mode() & 0o666);
        let new = Self::in_folder(folder, name, mode)?;
        let file = new.handle()?;
        let facts = file.metadata()?;
        // In some directories, a new file gets the directory's group, whose members must not be
        // able to read the file.
        if old.is_some_and(|old| old.gid() != facts.gid()) {
            file.set_permissions(Permissions::from_mode(facts.mode() & 0o706))?;
        }
        Ok(new)
    }

    /// Creates an empty file that will appear in `folder` as `name`. Its mode is `mode`, restricted
    /// by the umask.
    ///
    /// # Errors
    /// Returns an error if a system call fails.
    pub fn in_folder(folder: Folder, name: &OsStr, mode: u32) -> io::Result<Self> {
        remove_abandoned(&folder, name);
        for attempt in 0..Self::ATTEMPTS {
            let mut here = prefix(name);
            here.push(format!("{}-{attempt}{ENDING}", std::process::id()));
            let file = match folder.create_new(&here, mode) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            // Another process may have found and removed the file before it was locked.
            if let Ok(file) = LockedFile::lock(file)
                && file.metadata()?.nlink() > 0
            {
                return Ok(Self {
                    file,
                    folder,
                    here,
                    name: name.to_owned(),
                    armed: true,
                });
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Returns another handle for writing to the file.
    ///
    /// # Errors
    /// Returns an error if the system call fails.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Syncs the file to disk and then gives it its final name.
    ///
    /// # Errors
    /// Returns an error if a system call fails. The file then does not appear.
    pub fn appear(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.folder.rename(&self.here, &self.name)?;
        self.armed = false;
        self.folder.sync();
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.armed {
            // Ignore errors: `drop` cannot report them.
            let _ = self.folder.remove(&self.here);
        }
    }
}

fn prefix(name: &OsStr) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    prefix
}

/// Removes temporary files for `name` whose writers were killed. Errors are ignored, because such
/// files only waste space.
pub fn remove_abandoned(folder: &Folder, name: &OsStr) {
    let prefix = prefix(name);
    for found in folder.names().unwrap_or_default() {
        let rest = found.as_bytes().strip_prefix(prefix.as_bytes());
        let number = rest.and_then(|rest| rest.strip_suffix(ENDING.as_bytes()));
        // Accept only `PID-N` after the prefix, because the temporary names of a longer name, such
        // as `NAME.x`, start with the same prefix.
        let is_number = |bytes: &[u8]| {
            let mut parts = bytes.split(|&byte| byte == b'-');
            let mut digits = || {
                let part = parts.next();
                part.is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))
            };
            digits() && digits() && parts.next().is_none()
        };
        if !number.is_some_and(is_number) {
            continue;
        }
        // A free lock means that the writer has ended. Hold the lock until the file is removed, so
        // that no other process can take it.
        let abandoned = folder.write(&found, false, 0).ok();
        if let Some(_lock) = abandoned.and_then(|file| LockedFile::lock(file).ok()) {
            let _ = folder.remove(&found);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        let mut names = Folder::open(folder)
            .and_then(|folder| folder.names())
            .expect("names");
        names.sort_unstable();
        names
    }

    /// Only root can change the owner of a file.
    #[test]
    fn a_replaced_file_of_another_user_stays_private() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().expect("a folder");
        // New files in this directory get the directory's group.
        chown(place.path(), None, Some(4_321)).expect("given away");
        fs::set_permissions(place.path(), Permissions::from_mode(0o2775)).expect("set");
        for (name, mode, owner, kept) in [
            ("private", 0o600, 4_321, 0o600),
            ("of-a-group", 0o640, 0, 0o600),
        ] {
            let path = place.path().join(name);
            fs::write(&path, "old").expect("written");
            chown(&path, Some(owner), Some(0)).expect("given away");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
            Temporary::beside(&path)
                .and_then(Temporary::appear)
                .expect("replaced");
            let facts = fs::metadata(&path).expect("there");
            assert_eq!(facts.mode() & 0o777, kept, "{name}");
        }
    }

    #[test]
    fn a_link_is_replaced_and_its_target_stays() {
        let place = tempfile::tempdir().expect("a folder");
        let victim = place.path().join("victim");
        fs::write(&victim, "precious").expect("written");
        let link = place.path().join("link");
        symlink(&victim, &link).expect("a link");
        let temporary = Temporary::beside(&link).expect("begun");
        temporary
            .handle()
            .and_then(|mut file| file.write_all(b"new"))
            .expect("written");
        temporary.appear().expect("there");
        assert_eq!(fs::read_to_string(&victim).expect("read"), "precious");
        assert_eq!(fs::read_to_string(&link).expect("read"), "new");
        assert!(!link.is_symlink());
    }

    #[test]
    fn a_link_to_a_device_or_a_folder_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let link = place.path().join("link");
        for (target, kind) in [
            ("/dev/null", io::ErrorKind::InvalidInput),
            ("/", io::ErrorKind::IsADirectory),
        ] {
            symlink(target, &link).expect("a link");
            let refused = Temporary::beside(&link).expect_err("refused");
            assert_eq!(refused.kind(), kind, "{target}");
            fs::remove_file(&link).expect("removed");
        }
    }

    #[test]
    fn a_descriptor_is_refused_even_if_a_file_is_open_there() {
        let file = tempfile::tempfile().expect("a file");
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        for path in [
            format!("/dev/fd/{number}"),
            format!("/proc/self/fd/{number}"),
        ] {
            let refused = Temporary::beside(Path::new(&path)).expect_err("refused");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }

    #[test]
    fn abandoned_files_are_removed_and_those_of_live_writers_stay() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = || Folder::open(place.path()).expect("a folder");
        let path = place.path().join("page");
        for left in [".page.17-0.part", ".page.17-1.part"] {
            fs::write(place.path().join(left), "half").expect("written");
        }
        let others = [
            ".page.md.17-0.part",
            ".page.x-0.part",
            ".page.17.part",
            "page.17-0.part",
        ];
        for other in others {
            fs::write(place.path().join(other), "another file's").expect("written");
        }
        let first = Temporary::beside(&path).expect("begun");
        let second = Temporary::beside(&path).expect("begun while another is written");
        let mut expected: Vec<OsString> = others.iter().map(OsString::from).collect();
        expected.extend([first.here.clone(), second.here.clone()]);
        expected.sort_unstable();
        assert_eq!(names(place.path()), expected);
        first.appear().expect("there");
        drop(second);
        remove_abandoned(&folder(), OsStr::new("page"));
        let mut expected: Vec<OsString> = others.iter().map(OsString::from).collect();
        expected.push("page".into());
        expected.sort_unstable();
        assert_eq!(names(place.path()), expected);
    }
}
