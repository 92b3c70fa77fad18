//! Kernel sources from Debian packages, tarballs or directories. Each source is copied into the
//! cache once.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ticktax_host::helper;

use super::Wanted;
use super::cache::Cache;
use super::package;
use super::tool::{run, sha256, sha256_of, text};
use crate::error::{LabError, NameError};

/// Origin of a kernel's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelSource {
    /// A Debian package that contains a source tarball, or depends on a package that does.
    Package(String),
    /// A tarball, or a directory with an unpacked source. The original is never modified.
    Path(PathBuf),
}

impl FromStr for KernelSource {
    type Err = NameError;

    /// Parses any text that contains a `/` as a path, and all other text as a package.
    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.parse() {
            Ok(Wanted::File(path)) => Ok(Self::Path(path)),
            Ok(Wanted::Package(name)) => Ok(Self::Package(name)),
            _ => Err(NameError::Source(text.to_owned())),
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

/// The file in a kernel source that defines the choice of tick rates.
const RATES: &str = "kernel/Kconfig.hz";

/// The lab's additions to [`RATES`], which allow any tick rate to be selected. Each pair contains a
/// line to find and the text that replaces it. `CHOICE` adds an option to the list of rates, and
/// `VALUE` sets the rate that this option stands for.
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

/// A kernel source that is ready to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) folder: PathBuf,
    /// Identifier of the source: its release and a digest of its origin.
    pub(super) identity: String,
    pub(super) release: String,
}

/// Fetches, unpacks and extends a source, unless the cache already contains it.
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

/// Returns the source from `package` if that package has already been unpacked, otherwise `None`.
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
    // Reject a directory without a kernel source before copying anything.
    release_of(folder)?;
    let digest = state_of(folder)?;
    tell("copying the kernel source");
    settle(&digest, cache, |fresh| {
        let mut copy = helper("cp");
        copy.args(["-a", "--reflink=auto"])
            .arg(folder.join("."))
            .arg(fresh);
        run(&mut copy, "coreutils")?;
        // Remove build results from the copy, because they would prevent builds in a separate
        // directory.
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

/// Returns a digest of the directory's path and of the sizes and modification times of its files.
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
                // Skip .git, because it does not affect the build.
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

/// Fills a temporary directory with a source and then renames it into the cache, so that the cache
/// never contains an incomplete source. If the cache already contains a source with this digest,
/// returns that one.
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
    let fresh =
        tempfile::tempdir_in(&root).map_err(LabError::file("create a directory in", &root))?;
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

/// Extends the source so that any tick rate can be selected.
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

/// Returns the text that the lab adds to a kernel source. It is part of the digest that identifies
/// a build.
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
        let text = "choice\n\tdefault HZ_250\n\tconfig HZ_1000\n\t\tbool \"1000 \
            HZ\"\n\nendchoice\n\n\
                    config HZ\n\tint\n\tdefault 250 if HZ_250\n\tdefault 1000 if HZ_1000\n";
        let extended = with_any_rate(text).unwrap();
        assert!(extended.contains("bool \"another rate, HZ_VALUE\"\n\nendchoice\n"));
        assert!(extended.ends_with("default 1000 if HZ_1000\n\tdefault HZ_VALUE if HZ_OTHER\n"));
        assert_eq!(with_any_rate("config HZ\n"), None);
    }
}
