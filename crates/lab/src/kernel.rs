//! Kernels to boot: the lab's own builds, a distribution's packages, or any file.

mod build;
mod cache;
pub(crate) mod package;
mod source;
pub(crate) mod tool;

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use build::{Building, KernelSource, build, build_all};
pub use cache::{Cache, Held};
pub use package::{Unpacked, fetch_with_libraries};
pub use tool::{sha256, sha256_of};

use crate::error::LabError;

/// A kernel as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// An image in a file.
    File(PathBuf),
    /// One that `lab build` made, by its tick rate in Hz.
    Built(u32),
    /// A Debian package with a kernel, or one that depends on such a package.
    Package(String),
}

impl FromStr for Wanted {
    type Err = String;

    /// `hz250` is one of the lab's own, what has a `/` in it a file, and anything else a package.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(Ok(hz)) = text.strip_prefix("hz").map(str::parse) {
            return Ok(Self::Built(hz));
        }
        if text.contains('/') {
            return Ok(Self::File(PathBuf::from(text)));
        }
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
        if !text.is_empty() && !text.starts_with(['-', '.']) && text.chars().all(fits) {
            return Ok(Self::Package(text.to_owned()));
        }
        Err(format!(
            "{text} is not a kernel: give a file with a / in it, a Debian package, or hz250 for \
             one \
             that `ticktax lab build` made"
        ))
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Built(hz) => write!(f, "hz{hz}"),
            Self::Package(name) => f.write_str(name),
        }
    }
}

/// A kernel that can be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// How people call it.
    pub name: String,
    /// Its image.
    pub image: PathBuf,
    /// The configuration that it was built with, where that is known and the kernel does not tell
    /// it itself: its release, and the file's contents.
    pub config: Option<(String, Vec<u8>)>,
}

impl Kernel {
    /// Its tick rate in Hz, where its configuration is known.
    pub fn hz(&self) -> Option<u32> {
        let (_, config) = self.config.as_ref()?;
        cache::hz(&String::from_utf8_lossy(config))
    }
}

/// Finds the kernel that is wanted; fetches it where it is a package that is not in the cache.
/// `tell` hears what takes a while.
///
/// # Errors
/// There is no such kernel, or it cannot be fetched or unpacked.
pub fn find(
    wanted: &Wanted,
    cache: &Cache,
    tell: &mut dyn FnMut(&str),
) -> Result<Kernel, LabError> {
    match wanted {
        Wanted::File(path) => {
            if !path.is_file() {
                return Err(LabError::NoKernel(format!("no kernel {}", path.display())));
            }
            Ok(Kernel {
                name: wanted.to_string(),
                image: path.clone(),
                config: config_beside(path),
            })
        }
        Wanted::Built(hz) => cache.kernel(&wanted.to_string())?.ok_or_else(|| {
            LabError::NoKernel(format!(
                "no kernel with a tick of {hz} Hz yet: `ticktax lab build --hz {hz}` \
                 makes one"
            ))
        }),
        Wanted::Package(name) => match cache.kernel(name)? {
            Some(kernel) => Ok(kernel),
            None => package::fetch_kernel(name, cache, tell),
        },
    }
}

/// A kernel in `/boot/vmlinuz-RELEASE` has its configuration beside it.
fn config_beside(image: &Path) -> Option<(String, Vec<u8>)> {
    let release = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
    let config = image.with_file_name(format!("config-{release}"));
    Some((release.to_owned(), fs::read(config).ok()?))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::Wanted;

    #[test]
    fn a_kernel_is_told_from_its_name() {
        for (text, wanted) in [
            ("hz250", Wanted::Built(250)),
            ("./hz250", Wanted::File(PathBuf::from("./hz250"))),
            (
                "/boot/vmlinuz",
                Wanted::File(PathBuf::from("/boot/vmlinuz")),
            ),
            (
                "linux-image-6.12.107+deb12-rt-amd64",
                Wanted::Package("linux-image-6.12.107+deb12-rt-amd64".to_owned()),
            ),
        ] {
            assert_eq!(text.parse(), Ok(wanted.clone()));
            assert_eq!(wanted.to_string(), text);
        }
        for nothing in ["", "--force-yes", "a b", "..", "Linux"] {
            assert!(nothing.parse::<Wanted>().is_err(), "{nothing}");
        }
    }
}
