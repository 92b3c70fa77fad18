//! Opens a directory one component at a time, refusing a path that another user could change.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::{DIRECTORY, Distrust, Folder, is, is_ours_or_roots, single};

/// Maximum number of links followed in a path, the same as in the kernel.
const MOST_LINKS: usize = 40;

/// Flags for opening the directories along a path. They do not require permission to list a
/// directory, because directories such as `/home` are often unreadable.
const PASSING: OFlag = DIRECTORY.union(OFlag::O_PATH);

/// A component of a path that has been opened.
enum PathComponent {
    Folder(Folder),
    Link(PathBuf),
}

impl Folder {
    /// Opens the directory at `path`. Only root and the effective user may be able to change the
    /// directories and links along the path. Otherwise, another user's link could lead root
    /// elsewhere.
    pub(super) fn walk(path: &Path) -> io::Result<Self> {
        let mut folder = root()?;
        folder.check_parent()?;
        // The remaining components, in reverse order.
        let mut left = Vec::new();
        push(&mut left, &std::path::absolute(super::or_here(path))?);
        let mut links = 0;
        while let Some(name) = left.pop() {
            folder = match folder.step(&name)? {
                PathComponent::Folder(next) => next,
                PathComponent::Link(_) if links == MOST_LINKS => return Err(Errno::ELOOP.into()),
                PathComponent::Link(target) => {
                    links += 1;
                    push(&mut left, &target);
                    if target.is_absolute() {
                        root()?
                    } else {
                        folder
                    }
                }
            };
        }
        folder.handle = openat(&folder.handle, ".", DIRECTORY, Mode::empty())?;
        Ok(folder)
    }

    /// Opens a component of the path, which may be `..`. Fails if another user can change it.
    fn step(&self, name: &OsStr) -> io::Result<PathComponent> {
        let path = match name.to_str() {
            Some("..") => self.path.parent().unwrap_or(&self.path).to_owned(),
            _ => self.path.join(single(name)?),
        };
        match openat(self, name, PASSING, Mode::empty()) {
            Ok(handle) => {
                let folder = Self { handle, path };
                folder.check_parent()?;
                return Ok(PathComponent::Folder(folder));
            }
            Err(Errno::ENOTDIR | Errno::ELOOP) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let handle = openat(self, name, flags, Mode::empty())?;
        let facts = fstat(&handle)?;
        if !is(&facts, SFlag::S_IFLNK) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let owner = facts.st_uid;
        if !is_ours_or_roots(owner) {
            return Err(Distrust::Owner { path, owner }.into());
        }
        Ok(PathComponent::Link(readlinkat(&handle, "")?.into()))
    }
}

fn root() -> io::Result<Folder> {
    Ok(Folder {
        handle: open("/", PASSING, Mode::empty())?,
        path: PathBuf::from("/"),
    })
}

/// Adds the components of `path` to the remaining components, so that they are opened next.
fn push(left: &mut Vec<OsString>, path: &Path) {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let names: Vec<OsString> = names.collect();
    left.extend(names.into_iter().rev());
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    use nix::unistd::geteuid;

    use super::*;

    #[test]
    fn links_of_our_own_are_followed_as_the_kernel_does() {
        let place = tempfile::tempdir().expect("a folder");
        let inner = place.path().join("one/two");
        fs::create_dir_all(&inner).expect("folders");
        symlink(&inner, place.path().join("absolute")).expect("a link");
        symlink("one/../one/two", place.path().join("relative")).expect("a link");
        symlink("../..", inner.join("up")).expect("a link");
        symlink("loop", place.path().join("loop")).expect("a link");
        let wanted = fs::canonicalize(&inner).expect("there");
        for path in [
            "absolute",
            "relative",
            "relative/up/one/two/.",
            "one/two/../two",
        ] {
            let folder = Folder::walk(&place.path().join(path)).expect(path);
            assert_eq!(folder.path(), wanted, "{path}");
        }
        let kind =
            |path: &str| Folder::walk(&place.path().join(path)).map_err(|error| error.kind());
        let endless = Folder::walk(&place.path().join("loop")).expect_err("endless");
        assert_eq!(endless.raw_os_error(), Some(Errno::ELOOP as i32));
        assert_eq!(kind("absent").err(), Some(io::ErrorKind::NotFound));
        fs::write(place.path().join("file"), "").expect("written");
        assert_eq!(kind("file").err(), Some(io::ErrorKind::NotADirectory));
    }

    #[test]
    fn a_link_of_another_users_is_refused_wherever_it_leads() {
        if !geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().expect("a folder");
        let own = place.path().join("own");
        fs::create_dir(&own).expect("a folder");
        let link = place.path().join("link");
        symlink(&own, &link).expect("a link");
        Folder::open_trusted(&link).expect("a link of our own");
        lchown(&link, Some(4_321), Some(4_321)).expect("given away");
        for refused in [
            Folder::open_trusted(&link).err(),
            Folder::open_guarded(&link).err(),
            Folder::make_trusted(&link.join("new"), 0o700).err(),
        ] {
            let refused = refused.expect("refused").to_string();
            assert!(refused.contains("belongs to user 4321"), "{refused}");
        }
        assert!(!own.join("new").exists());
    }
}
