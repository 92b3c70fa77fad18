//! An on-disk cache of kernels. Each kernel has a directory with a manifest that lists the digests
//! of its files.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use ticktax_model::kernels::{CachedKernel, KernelList};
use ticktax_store::disk::Folder;

use super::Kernel;
use super::tool::{sha256, sha256_of};
use crate::arch::Arch;
use crate::error::LabError;

const MANIFEST: &str = "manifest";
const IMAGE: &str = "vmlinuz";
const CONFIG: &str = "config";

/// A cache directory for kernels, kernel sources and build directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

/// A kernel that is about to be stored in the cache.
pub(super) struct Keep<'a> {
    pub(super) name: &'a str,
    pub(super) release: &'a str,
    pub(super) origin: &'a str,
    pub(super) image: &'a Path,
    pub(super) config: &'a [u8],
}

/// A lock on a cache entry, held while the entry is being created.
pub struct EntryLock(#[expect(dead_code, reason = "dropping it releases the lock")] Flock<File>);

impl Cache {
    /// Creates a cache in the directory `root`, which need not exist yet.
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns the lab's cache in the user's cache directory (XDG Base Directory Specification).
    /// The arguments are the values of `XDG_CACHE_HOME` and `HOME`.
    ///
    /// # Errors
    /// Returns an error if neither variable is set.
    pub fn of_user(cache_home: Option<OsString>, home: Option<OsString>) -> Result<Self, LabError> {
        let set = |value: Option<OsString>| value.filter(|value| !value.is_empty());
        let folder = set(cache_home)
            .map(PathBuf::from)
            .filter(|folder| folder.is_absolute())
            .or_else(|| set(home).map(|home| PathBuf::from(home).join(".cache")));
        let folder = folder.ok_or_else(|| {
            let why = "no cache directory for kernels: set HOME or XDG_CACHE_HOME";
            LabError::NoKernel(why.to_owned())
        })?;
        Ok(Self::at(folder.join("ticktax/lab")))
    }

    /// Lists all kernels in the cache, sorted by name, without verifying their digests.
    pub fn list(&self) -> KernelList {
        let kernels = self.root.join("kernels");
        let Ok(listing) = fs::read_dir(&kernels) else {
            return KernelList {
                kernels: Vec::new(),
            };
        };
        let mut all = Vec::new();
        for entry in listing.flatten() {
            let folder = entry.path();
            let Ok(text) = fs::read_to_string(folder.join(MANIFEST)) else {
                continue;
            };
            let config = fs::read_to_string(folder.join(CONFIG)).unwrap_or_default();
            let image = fs::metadata(folder.join(IMAGE));
            all.push(CachedKernel {
                name: entry.file_name().to_string_lossy().into_owned(),
                release: value(&text, "release").unwrap_or_default().to_owned(),
                origin: value(&text, "origin").unwrap_or_default().to_owned(),
                hz: hz(&config),
                image_bytes: image.map_or(0, |image| image.len()),
            });
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        KernelList { kernels: all }
    }

    /// Returns the kernel called `name`, or `None` if it is not in the cache.
    ///
    /// # Errors
    /// Returns an error if the files have changed since they were stored, or if another user can
    /// modify them.
    pub fn kernel(&self, name: &str) -> Result<Option<Kernel>, LabError> {
        let folder = self.folder_of(name);
        if !folder.exists() {
            return Ok(None);
        }
        let damaged = |why: &str| LabError::Damaged {
            what: format!("kernel {name}"),
            why: why.to_owned(),
            path: folder.clone(),
        };
        Folder::open_trusted(&folder).map_err(LabError::file("use", &folder))?;
        let text = fs::read_to_string(folder.join(MANIFEST))
            .map_err(|_| damaged("its manifest is unreadable"))?;
        let image = folder.join(IMAGE);
        let config = fs::read(folder.join(CONFIG)).map_err(|_| damaged("its config is missing"))?;
        if !image.is_file() {
            return Err(damaged("its vmlinuz is missing"));
        }
        if value(&text, IMAGE) != Some(&sha256_of(&image)?) {
            return Err(damaged("its vmlinuz has changed"));
        }
        if value(&text, CONFIG) != Some(&sha256(&config)) {
            return Err(damaged("its config has changed"));
        }
        let release = value(&text, "release").unwrap_or_default().to_owned();
        Ok(Some(Kernel {
            name: name.to_owned(),
            arch: Arch::HOST,
            image,
            config: Some((release, config)),
        }))
    }

    pub(super) fn is_from(&self, name: &str, origin: &str) -> bool {
        let text = fs::read_to_string(self.folder_of(name).join(MANIFEST));
        text.is_ok_and(|text| value(&text, "origin") == Some(origin))
    }

    /// Stores a kernel. Replaces any kernel of the same name.
    pub(super) fn keep(&self, kernel: &Keep<'_>) -> Result<(), LabError> {
        let folder = self.folder_of(kernel.name);
        let fresh = self.folder("fresh")?.join(kernel.name);
        drop(fs::remove_dir_all(&fresh));
        fs::create_dir_all(&fresh).map_err(LabError::file("create", &fresh))?;
        let image = fresh.join(IMAGE);
        fs::copy(kernel.image, &image).map_err(LabError::file("write", &image))?;
        let config = fresh.join(CONFIG);
        fs::write(&config, kernel.config).map_err(LabError::file("write", &config))?;
        let manifest = fresh.join(MANIFEST);
        let text = format!(
            "release {}\norigin {}\n{IMAGE} {}\n{CONFIG} {}\n",
            kernel.release,
            kernel.origin,
            sha256_of(&image)?,
            sha256(kernel.config)
        );
        fs::write(&manifest, text).map_err(LabError::file("write", &manifest))?;
        self.folder("kernels")?;
        drop(fs::remove_dir_all(&folder));
        fs::rename(&fresh, &folder).map_err(LabError::file("move into place", &folder))
    }

    /// Returns the cache's directory `part`, creating it if necessary. No other user may own it,
    /// because the lab runs programs from there. (Under `sudo`, `HOME` may belong to another user.)
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created, or if another user can modify it.
    pub fn folder(&self, part: &str) -> Result<PathBuf, LabError> {
        let folder = self.root.join(part);
        Folder::make_trusted(&folder, 0o755).map_err(LabError::file("create", &folder))?;
        Ok(folder)
    }

    /// Locks the cache entry `what`, so that no other process creates it at the same time. Dropping
    /// the result releases the lock.
    ///
    /// # Errors
    /// Returns an error if another process holds the lock, or if the lock file cannot be created.
    pub fn hold(&self, what: &str) -> Result<EntryLock, LabError> {
        let path = self.folder("locks")?.join(what);
        let file = File::create(&path).map_err(LabError::file("create", &path))?;
        let held = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        held.map(EntryLock)
            .map_err(|_| LabError::Busy(what.to_owned()))
    }

    /// Locks the cache entry `what` as [`hold`](Self::hold) does, but first waits up to `patience`
    /// if another process holds the lock. The entry can exist by then.
    ///
    /// # Errors
    /// Returns an error if the other process still holds the lock, or if the lock file cannot be
    /// created.
    pub(super) fn hold_after(
        &self,
        what: &str,
        patience: Duration,
        tell: &mut dyn FnMut(&str),
    ) -> Result<EntryLock, LabError> {
        let mut left = patience;
        loop {
            match self.hold(what) {
                Err(LabError::Busy(_)) if !left.is_zero() => {
                    if left == patience {
                        tell(&format!(
                            "waiting for another ticktax lab that creates {what}"
                        ));
                    }
                    let pause = left.min(Duration::from_millis(100));
                    std::thread::sleep(pause);
                    left -= pause;
                }
                held => return held,
            }
        }
    }

    /// Returns the path of `part` in the cache, which need not exist.
    pub fn place(&self, part: &str) -> PathBuf {
        self.root.join(part)
    }

    fn folder_of(&self, name: &str) -> PathBuf {
        self.root.join("kernels").join(name)
    }
}

/// Returns the value of `key` in the manifest, that is, the rest of the line that starts with
/// `key`. Returns `None` if there is no such line.
fn value<'a>(manifest: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = manifest.lines();
    lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
}

pub(super) fn hz(config: &str) -> Option<u32> {
    let mut lines = config.lines();
    lines.find_map(|line| line.strip_prefix("CONFIG_HZ=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::{Cache, Keep};
    use crate::error::LabError;

    fn cache_with_a_kernel(root: &std::path::Path) -> Cache {
        let cache = Cache::at(root.join("cache"));
        let image = root.join("image");
        fs::write(&image, b"a kernel").unwrap();
        let kernel = Keep {
            name: "hz100",
            release: "6.1.0",
            origin: "linux 6.1.0, built",
            image: &image,
            config: b"CONFIG_HZ_100=y\nCONFIG_HZ=100\n",
        };
        cache.keep(&kernel).unwrap();
        cache
    }

    #[test]
    fn a_stored_kernel_is_found_and_listed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache_with_a_kernel(folder.path());
        let kernel = cache.kernel("hz100").unwrap().unwrap();
        assert_eq!(fs::read(kernel.image).unwrap(), b"a kernel");
        assert_eq!(kernel.config.unwrap().0, "6.1.0");
        assert_eq!(cache.kernel("hz250").unwrap(), None);
        let all = cache.list().kernels;
        assert_eq!(
            (all.len(), all[0].hz, all[0].image_bytes),
            (1, Some(100), 8)
        );
        assert!(cache.is_from("hz100", "linux 6.1.0, built"));
        assert!(!cache.is_from("hz100", "linux 6.1.1, built"));
    }

    #[test]
    fn a_damaged_kernel_is_refused() {
        for (file, says) in [
            ("vmlinuz", "vmlinuz"),
            ("config", "config"),
            ("manifest", "vmlinuz"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let cache = cache_with_a_kernel(folder.path());
            let path = folder.path().join("cache/kernels/hz100").join(file);
            fs::write(&path, b"something else").unwrap();
            let error = cache.kernel("hz100").unwrap_err();
            assert!(matches!(error, LabError::Damaged { .. }), "{file}: {error}");
            assert!(error.to_string().contains(says), "{file}: {error}");
            fs::remove_file(&path).unwrap();
            assert!(matches!(
                cache.kernel("hz100"),
                Err(LabError::Damaged { .. })
            ));
        }
    }

    #[test]
    fn two_labs_cannot_hold_the_same_lock() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let first = cache.hold("hz100").unwrap();
        assert!(matches!(cache.hold("hz100"), Err(LabError::Busy(_))));
        assert!(cache.hold("hz250").is_ok());
        drop(first);
        assert!(cache.hold("hz100").is_ok());
    }

    #[test]
    fn a_lab_waits_for_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let mut first = Some(cache.hold("hz100").unwrap());
        let mut told = Vec::new();
        let patience = Duration::from_millis(1);
        let refused = cache.hold_after("hz100", patience, &mut |text| told.push(text.to_owned()));
        assert!(matches!(refused, Err(LabError::Busy(_))));
        assert_eq!(told, ["waiting for another ticktax lab that creates hz100"]);
        let mut release = |_: &str| drop(first.take());
        let patience = Duration::from_hours(1);
        assert!(cache.hold_after("hz100", patience, &mut release).is_ok());
    }

    #[test]
    fn a_cache_that_others_can_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("lab");
        let cache = Cache::at(root.clone());
        cache.folder("kernels").unwrap();
        fs::create_dir(root.join("kernels/planted")).unwrap();
        fs::set_permissions(&root, Permissions::from_mode(0o777)).unwrap();
        for refused in [
            cache.folder("build").map(drop),
            cache.kernel("planted").map(drop),
        ] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("other users can write to"), "{refused}");
        }
        assert!(!root.join("build").exists());
    }
}
