//! Kernel sources: a distribution's package, a tarball or a folder, copied into the cache once.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ticktax_host::helper;

use super::Wanted;
use super::cache::Cache;
use super::package;
use super::tool::{run, sha256, sha256_of, text};
use crate::error::LabError;

/// Origin of a kernel's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelSource {
    /// A Debian package with a tarball, or one that depends on such a package.
    Package(String),
    /// A tarball, or a folder with an unpacked source. It is copied and stays unchanged.
    Path(PathBuf),
}

impl FromStr for KernelSource {
    type Err = String;

    /// A text with a `/` is a folder or a tarball, and all others are packages.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(Wanted::File(path)) => Ok(Self::Path(path)),
            Ok(Wanted::Package(name)) => Ok(Self::Package(name)),
            _ => Err(format!(
                "invalid source `{text}`: give a Debian package, or a folder or tarball with a / \
                 in it"
            )),
        }
    }
}

impl std::fmt::Display for KernelSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Package(name) => f.write_str(name),
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The source file that defines the available rates.
const RATES: &str = "kernel/Kconfig.hz";

/// The lab's additions to [`RATES`], one at the end of the choice and one at its values. They make
/// any rate available.
const CHOICE: (&str, &str) = (
    "endchoice\n",
    "\tconfig HZ_OTHER\n\t\tbool \"another rate, HZ_VALUE\"\n\nendchoice\n\n\
     config HZ_VALUE\n\tint \"Timer frequency in Hz\" if HZ_OTHER\n\
     \trange 24 2000\n\tdefault 250\n",
);
const VALUE: (&str, &str) = (
    "\tdefault 1000 if HZ_1000\n",
    "\tdefault 1000 if HZ_1000\n\tdefault HZ_VALUE if HZ_OTHER\n",
);

/// A source that is ready to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// Its folder.
    pub(super) folder: PathBuf,
    /// Its release, and a digest of its origin.
    pub(super) identity: String,
    /// Its release.
    pub(super) release: String,
}

/// Prepares a source: fetches, checks, unpacks and extends it, unless that is already done.
pub(super) fn ready(
    from: &KernelSource,
    cache: &Cache,
    tell: &mut dyn FnMut(&str),
) -> Result<Source, LabError> {
    let _held = cache.hold("source")?;
    match from {
        KernelSource::Package(name) => {
            if let Some(source) = known(name, cache)? {
                return Ok(source);
            }
            let package = package::fetch(name, "linux-source-", cache, tell)?;
            let tarball = tarball_in(&package.files.join("usr/src")).ok_or_else(|| {
                LabError::NoKernel(format!("the package {name} has no source in /usr/src"))
            })?;
            let source = from_tarball(&tarball, cache, tell)?;
            remember(name, &source, cache)?;
            Ok(source)
        }
        KernelSource::Path(path) if path.is_dir() => from_folder(path, cache, tell),
        KernelSource::Path(path) => from_tarball(path, cache, tell),
    }
}

/// The source from a package that was unpacked earlier.
fn known(package: &str, cache: &Cache) -> Result<Option<Source>, LabError> {
    let note = cache.folder("source")?.join(format!("{package}.is"));
    let Ok(name) = fs::read_to_string(note) else {
        return Ok(None);
    };
    let folder = cache.folder("source")?.join(name.trim());
    Ok(if folder.join(RATES).is_file() {
        Some(source_in(folder)?)
    } else {
        None
    })
}

fn remember(package: &str, source: &Source, cache: &Cache) -> Result<(), LabError> {
    let note = cache.folder("source")?.join(format!("{package}.is"));
    fs::write(&note, &source.identity).map_err(LabError::file("write", &note))
}

fn from_tarball(
    tarball: &Path,
    cache: &Cache,
    tell: &mut dyn FnMut(&str),
) -> Result<Source, LabError> {
    let digest = sha256_of(tarball)?;
    tell("unpacking the kernel source");
    settle(&digest, cache, |fresh| {
        let mut tar = helper("tar");
        tar.arg("-xf")
            .arg(tarball)
            .arg("-C")
            .arg(fresh)
            .arg("--strip-components=1");
        run(&mut tar, "tar xz-utils").map(drop)
    })
}

fn from_folder(
    folder: &Path,
    cache: &Cache,
    tell: &mut dyn FnMut(&str),
) -> Result<Source, LabError> {
    // Rejects folders without a kernel's source before anything is copied.
    release_of(folder)?;
    let digest = state_of(folder)?;
    tell("copying the kernel source");
    settle(&digest, cache, |fresh| {
        let mut copy = helper("cp");
        copy.args(["-a", "--reflink=auto"])
            .arg(folder.join("."))
            .arg(fresh);
        run(&mut copy, "coreutils")?;
        // Remove build results, which would disturb a build elsewhere.
        run(
            helper("make")
                .arg("-s")
                .arg("-C")
                .arg(fresh)
                .arg("mrproper"),
            "make",
        )
        .map(drop)
    })
}

/// Digest that changes whenever the folder does, from its path and the sizes and times of all its
/// files.
fn state_of(folder: &Path) -> Result<String, LabError> {
    let failed = LabError::file("read", folder);
    let place = fs::canonicalize(folder).map_err(failed)?;
    let mut lines = vec![place.to_string_lossy().into_owned()];
    let mut open = vec![place];
    while let Some(inside) = open.pop() {
        let entries = fs::read_dir(&inside).map_err(LabError::file("list", &inside))?;
        for entry in entries {
            let entry = entry.map_err(LabError::file("list", &inside))?;
            let path = entry.path();
            let about = entry.metadata().map_err(LabError::file("inspect", &path))?;
            if about.is_dir() {
                // A repository's own files do not affect the build.
                if entry.file_name() != ".git" {
                    open.push(path);
                }
                continue;
            }
            let (seconds, nanos) = (about.mtime(), about.mtime_nsec());
            lines.push(format!(
                "{} {} {seconds}.{nanos}",
                path.display(),
                about.len()
            ));
        }
    }
    lines.sort_unstable();
    Ok(sha256(lines.join("\n").as_bytes()))
}

/// Moves a filled folder to its place in the cache, so that a partial source is never there.
fn settle(
    digest: &str,
    cache: &Cache,
    fill: impl FnOnce(&Path) -> Result<(), LabError>,
) -> Result<Source, LabError> {
    let root = cache.folder("source")?;
    let short = &digest[..12];
    if let Ok(listing) = fs::read_dir(&root) {
        let mut names = listing.flatten().map(|entry| entry.path());
        let ready = |folder: &PathBuf| folder.to_string_lossy().ends_with(&format!("-{short}"));
        if let Some(folder) = names.find(ready) {
            return source_in(folder);
        }
    }
    let fresh = tempfile::tempdir_in(&root).map_err(LabError::file("create a folder in", &root))?;
    fill(fresh.path())?;
    extend(fresh.path())?;
    let release = release_of(fresh.path())?;
    let folder = root.join(format!("linux-{release}-{short}"));
    fs::rename(fresh.path(), &folder).map_err(LabError::file("move into place", &folder))?;
    source_in(folder)
}

fn source_in(folder: PathBuf) -> Result<Source, LabError> {
    let name = folder.file_name().unwrap_or_default();
    Ok(Source {
        identity: name.to_string_lossy().into_owned(),
        release: release_of(&folder)?,
        folder,
    })
}

/// Makes any tick rate available.
fn extend(source: &Path) -> Result<(), LabError> {
    let file = source.join(RATES);
    let text = fs::read_to_string(&file).map_err(LabError::file("read", &file))?;
    let extended = with_any_rate(&text).ok_or_else(|| {
        LabError::NoKernel(format!(
            "{RATES} of this source differs from Linux: it has no choice of tick rates"
        ))
    })?;
    fs::write(&file, extended).map_err(LabError::file("write", &file))
}

fn with_any_rate(text: &str) -> Option<String> {
    let additions = [CHOICE, VALUE];
    if additions
        .iter()
        .any(|(place, _)| text.matches(place).count() != 1)
    {
        return None;
    }
    Some(additions.iter().fold(text.to_owned(), |text, (from, to)| {
        text.replacen(from, to, 1)
    }))
}

/// The lab's additions, as part of a build's identity.
pub(super) fn extension() -> String {
    [CHOICE.1, VALUE.1].concat()
}

fn release_of(source: &Path) -> Result<String, LabError> {
    let makefile = source.join("Makefile");
    if !makefile.is_file() {
        return Err(LabError::NoKernel(format!(
            "{} contains no kernel source",
            source.display()
        )));
    }
    let mut make = helper("make");
    make.arg("-s").arg("-C").arg(source).arg("kernelversion");
    run(&mut make, "make gcc").map(|output| text(&output))
}

fn tarball_in(folder: &Path) -> Option<PathBuf> {
    let mut files = fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    files.find(|file| file.to_string_lossy().contains(".tar."))
}

#[cfg(test)]
mod tests {
    use super::with_any_rate;

    #[test]
    fn any_tick_rate_can_be_chosen() {
        let text = "choice\n\tdefault HZ_250\n\tconfig HZ_1000\n\t\tbool \"1000 HZ\"\n\nendchoice\n\n\
                    config HZ\n\tint\n\tdefault 250 if HZ_250\n\tdefault 1000 if HZ_1000\n";
        let extended = with_any_rate(text).unwrap();
        assert!(extended.contains("bool \"another rate, HZ_VALUE\"\n\nendchoice\n"));
        assert!(extended.ends_with("default 1000 if HZ_1000\n\tdefault HZ_VALUE if HZ_OTHER\n"));
        assert_eq!(with_any_rate("config HZ\n"), None);
    }
}
