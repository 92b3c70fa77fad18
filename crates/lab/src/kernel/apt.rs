//! Sources that apt gets packages from: either this machine's package lists, or the lab's own lists
//! for another architecture or Debian suite. The machine's configuration stays unchanged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use ticktax_host::helper;

use super::cache::Cache;
use super::tool::run;
use crate::arch::Arch;
use crate::error::LabError;

/// URL of Debian's archive, used for suites that are not configured on this machine.
const ARCHIVE: &str = "http://deb.debian.org/debian";
/// Path of the keys with which apt verifies Debian's archive (package `debian-archive-keyring`).
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Maximum age of the lab's own package lists, after which they are updated.
const FRESH: Duration = Duration::from_hours(24);

/// A package source: an architecture and a Debian suite. If `suite` is `None`, apt uses the sources
/// configured on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackageSource<'a> {
    arch: Arch,
    suite: Option<&'a str>,
}

impl<'a> PackageSource<'a> {
    /// Splits `SUITE:PACKAGE` into the package source and the package's name. `SUITE:` is optional.
    pub(super) fn parse(name: &'a str, arch: Arch) -> (Self, &'a str) {
        match name.split_once(':') {
            Some((suite, name)) => (
                Self {
                    arch,
                    suite: Some(suite),
                },
                name,
            ),
            None => (Self { arch, suite: None }, name),
        }
    }

    pub(super) fn apt_get(self, cache: &Cache) -> Result<Command, LabError> {
        let mut apt = helper("apt-get");
        apt.args(["-qq", "-o", "APT::Sandbox::User=root"]);
        if let Some(folder) = self.folder(cache)? {
            apt.args(self.options(&folder));
        }
        Ok(apt)
    }

    /// Updates the lab's own package lists if this source uses them and they are too old.
    pub(super) fn update(self, cache: &Cache, tell: &mut dyn FnMut(&str)) -> Result<(), LabError> {
        let Some(folder) = self.folder(cache)? else {
            return Ok(());
        };
        let stamp = folder.join("updated");
        if age(&stamp).is_some_and(|age| age < FRESH) {
            return Ok(());
        }
        tell(&format!("fetching package lists for {self}"));
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = folder.join(part);
            fs::create_dir_all(&part).map_err(LabError::file("create", &part))?;
        }
        if let Some(suite) = self.suite {
            let sources = folder.join("sources.list");
            let line = format!("deb [signed-by={KEYS}] {ARCHIVE} {suite} main\n");
            fs::write(&sources, line).map_err(LabError::file("write", &sources))?;
        }
        run(self.apt_get(cache)?.arg("update"), "apt")?;
        fs::write(&stamp, "").map_err(LabError::file("write", &stamp))
    }

    /// Returns the directory that holds the lab's own package lists. Returns `None` if the
    /// machine's lists suffice.
    fn folder(self, cache: &Cache) -> Result<Option<PathBuf>, LabError> {
        if self.suite.is_none() && self.arch == Arch::HOST {
            return Ok(None);
        }
        let suite = self.suite.unwrap_or("here");
        cache
            .folder(&format!("apt/{suite}-{}", self.arch))
            .map(Some)
    }

    fn options(self, folder: &Path) -> Vec<String> {
        let folder = folder.display();
        let mut options = vec![
            format!("APT::Architecture={}", self.arch),
            format!("APT::Architectures={}", self.arch),
            format!("Dir::State::Lists={folder}/lists"),
            format!("Dir::Cache={folder}/cache"),
            "Dir::State::Status=/dev/null".to_owned(),
        ];
        if self.suite.is_some() {
            options.push(format!("Dir::Etc::SourceList={folder}/sources.list"));
            options.push("Dir::Etc::SourceParts=/dev/null".to_owned());
        }
        let each = options.into_iter();
        each.flat_map(|option| ["-o".to_owned(), option]).collect()
    }
}

impl std::fmt::Display for PackageSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.suite {
            Some(suite) => write!(f, "{suite}, {}", self.arch),
            None => write!(f, "{}", self.arch),
        }
    }
}

fn age(file: &Path) -> Option<Duration> {
    let written = fs::metadata(file).ok()?.modified().ok()?;
    SystemTime::now().duration_since(written).ok()
}

#[cfg(test)]
mod tests {
    use super::PackageSource;
    use crate::arch::Arch;
    use crate::kernel::Cache;

    #[test]
    fn the_machines_own_lists_are_used_if_sufficient() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let arguments = |name: &str, arch| {
            let (source, name) = PackageSource::parse(name, arch);
            let apt = source.apt_get(&cache).unwrap();
            let words = apt
                .get_args()
                .map(|word| word.to_string_lossy().into_owned());
            (words.collect::<Vec<_>>().join(" "), name.to_owned())
        };
        let (own, name) = arguments("linux-image-rt-amd64", Arch::HOST);
        assert_eq!(own, "-qq -o APT::Sandbox::User=root");
        assert_eq!(name, "linux-image-rt-amd64");
        let other = Arch::ALL.into_iter().find(|&arch| arch != Arch::HOST);
        let (foreign, _) = arguments("linux-image-rt-arm64", other.unwrap());
        assert!(foreign.contains("apt/here-"), "{foreign}");
        assert!(!foreign.contains("SourceList"), "{foreign}");
        let (suite, name) = arguments("sid:linux-image-rt-amd64", Arch::HOST);
        assert!(suite.contains("SourceList="), "{suite}");
        assert_eq!(name, "linux-image-rt-amd64");
    }
}
