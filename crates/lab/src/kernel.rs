//! Kernels that a guest can boot: built by the lab, from Debian packages, or image files.

mod apt;
mod build;
mod cache;
pub(crate) mod package;
mod source;
pub(crate) mod tool;

use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use build::{Building, KernelSource, build, build_all};
pub use cache::{Cache, EntryLock};
pub use package::{Unpacked, fetch_kernel_package, fetch_with_libraries};
pub use tool::{sha256, sha256_of};

use crate::arch::Arch;
use crate::error::{LabError, NameError};
use crate::input;

/// A kernel that the user requested by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A kernel image file.
    File(PathBuf),
    /// A kernel built by `lab build`. Its name is `hz250` if it has no additional configuration,
    /// and `hz250+NAME` if it does. For a foreign architecture, the name also ends with that
    /// architecture, as in `+arm64`.
    Built(String),
    /// A Debian package that contains a kernel, or depends on a package that does. `SUITE:PACKAGE`
    /// takes the package from the Debian suite `SUITE`, which need not be configured on this
    /// machine.
    Package(String),
}

impl FromStr for Wanted {
    type Err = NameError;

    /// Parses a name such as `hz250` as a kernel built by the lab, anything with a `/` as a file,
    /// and all other text as a package.
    fn from_str(text: &str) -> Result<Self, NameError> {
        if is_built(text) {
            return Ok(Self::Built(text.to_owned()));
        }
        if text.contains('/') {
            return Ok(Self::File(PathBuf::from(text)));
        }
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
        let is_name = |text: &str| {
            !text.is_empty() && !text.starts_with(['-', '.']) && text.chars().all(fits)
        };
        let (suite, package) = text.split_once(':').unwrap_or(("none", text));
        if is_name(suite) && is_name(package) {
            return Ok(Self::Package(text.to_owned()));
        }
        Err(NameError::Kernel(text.to_owned()))
    }
}

/// Returns whether the name has the form that `lab build` uses: `hz250` or `hz250+NAME`.
fn is_built(name: &str) -> bool {
    let rate = name.strip_prefix("hz").map(|rest| rest.split_once('+'));
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-._".contains(c);
    let digits = match rate {
        Some(Some((digits, more))) if !more.is_empty() && more.chars().all(fits) => digits,
        Some(None) => &name[2..],
        _ => return false,
    };
    digits.parse::<u32>().is_ok()
}

impl Wanted {
    /// Returns the lab's kernel with a tick rate of `hz` and no additional configuration.
    pub fn with_rate(hz: u32) -> Self {
        Self::Built(format!("hz{hz}"))
    }

    /// Returns the architecture in the kernel's name, or `None` if the name contains none.
    pub fn arch(&self) -> Option<Arch> {
        let named = |arch: &Arch| match self {
            // Any part of the name may match: in `linux-image-arm64-16k`, the architecture isn't at
            // the end.
            Self::Package(name) => name.split('-').any(|part| part == arch.name()),
            Self::Built(name) => name.ends_with(&format!("+{arch}")),
            Self::File(_) => false,
        };
        Arch::ALL.into_iter().find(named)
    }
}

/// Returns the name under which the cache stores a kernel built by the lab. It includes `arch`
/// unless that is the host's architecture.
fn built_name(name: &str, arch: Arch) -> String {
    let ends = Arch::ALL.map(|arch| format!("+{arch}"));
    let bare = ends.iter().find_map(|end| name.strip_suffix(end.as_str()));
    let bare = bare.unwrap_or(name);
    if arch == Arch::HOST {
        bare.to_owned()
    } else {
        format!("{bare}+{arch}")
    }
}

fn how_to_build(name: &str, arch: Arch) -> String {
    let name = built_name(name, Arch::HOST);
    let (hz, more) = name.split_once('+').unwrap_or((&name, ""));
    let config = match more {
        "" => String::new(),
        more => format!(" --config {more}.config"),
    };
    let other = match arch {
        Arch::HOST => String::new(),
        other => format!(" --arch {other}"),
    };
    let hz = hz.strip_prefix("hz").unwrap_or(hz);
    format!("ticktax lab build --hz {hz}{config}{other}")
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Built(name) | Self::Package(name) => f.write_str(name),
        }
    }
}

/// A kernel that is ready to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name of the kernel, as shown to the user.
    pub name: String,
    /// Architecture that the kernel is built for.
    pub arch: Arch,
    /// Path of the kernel image.
    pub image: PathBuf,
    /// The kernel's release, and the contents of its build configuration. `None` if the kernel
    /// comes without its configuration.
    pub config: Option<(String, Vec<u8>)>,
}

impl Kernel {
    /// Returns the tick rate in Hz, or `None` if the configuration is unknown.
    pub fn hz(&self) -> Option<u32> {
        let (_, config) = self.config.as_ref()?;
        cache::hz(&String::from_utf8_lossy(config))
    }

    /// Returns whether the configuration selects 16 KiB pages, which only arm64 offers.
    pub fn has_pages_of_16k(&self) -> bool {
        let config = self.config.as_ref();
        let config = config.map(|(_, config)| String::from_utf8_lossy(config));
        config.is_some_and(|text| text.lines().any(|line| line == "CONFIG_ARM64_16K_PAGES=y"))
    }
}

/// Finds a kernel for the architecture in its name or, if the name contains none, for the host's
/// architecture. Fetches the kernel's package if it is not in the cache. `tell` receives progress
/// messages.
///
/// # Errors
/// Returns an error if the kernel does not exist, or if its package cannot be fetched or unpacked.
pub fn find(
    wanted: &Wanted,
    cache: &Cache,
    tell: &mut dyn FnMut(&str),
) -> Result<Kernel, LabError> {
    find_for(wanted, None, cache, tell)
}

/// Same as [`find`] but, if `arch` is given, the kernel must be for that architecture.
///
/// # Errors
/// Returns the same errors as [`find`]. Also returns an error if the name contains a different
/// architecture from `arch`.
pub fn find_for(
    wanted: &Wanted,
    arch: Option<Arch>,
    cache: &Cache,
    tell: &mut dyn FnMut(&str),
) -> Result<Kernel, LabError> {
    let named = wanted.arch();
    if let (Some(arch), Some(named)) = (arch, named)
        && arch != named
    {
        let why = format!("the kernel {wanted} is for {named}, not for {arch}");
        return Err(LabError::Senseless(why));
    }
    let arch = arch.or(named).unwrap_or(Arch::HOST);
    match wanted {
        Wanted::File(path) => {
            if !path.is_file() {
                return Err(LabError::NoKernel(format!("no kernel {}", path.display())));
            }
            Ok(Kernel {
                name: wanted.to_string(),
                arch,
                image: path.clone(),
                config: config_beside(path),
            })
        }
        Wanted::Built(name) => {
            let name = built_name(name, arch);
            let kernel = cache.kernel(&name)?.ok_or_else(|| {
                let how = how_to_build(&name, arch);
                LabError::NoKernel(format!("no kernel {name} yet: build it with `{how}`"))
            })?;
            Ok(Kernel { arch, ..kernel })
        }
        Wanted::Package(name) => {
            // If the package name contains no architecture, append `arch`. The cache can then store
            // a kernel for each architecture under the same package name.
            let kept = match named {
                Some(_) => name.clone(),
                None => format!("{name}:{arch}"),
            };
            let kernel = match cache.kernel(&kept)? {
                Some(kernel) => kernel,
                None => package::fetch_kernel(name, &kept, arch, cache, tell)?,
            };
            Ok(Kernel { arch, ..kernel })
        }
    }
}

/// For an image called `vmlinuz-RELEASE`, returns the release and the contents of `config-RELEASE`
/// in the same directory. Returns `None` if the image has a different name, or if the configuration
/// does not exist.
fn config_beside(image: &Path) -> Option<(String, Vec<u8>)> {
    let release = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
    let config = image.with_file_name(format!("config-{release}"));
    Some((release.to_owned(), input::read(&config, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Wanted, built_name, find_for, how_to_build};
    use crate::arch::Arch;

    #[test]
    fn a_kernels_kind_is_recognized_from_its_name() {
        for (text, wanted) in [
            ("hz250", Wanted::Built("hz250".to_owned())),
            ("hz250+rt", Wanted::Built("hz250+rt".to_owned())),
            ("hz250-tools", Wanted::Package("hz250-tools".to_owned())),
            ("./hz250", Wanted::File(PathBuf::from("./hz250"))),
            (
                "/boot/vmlinuz",
                Wanted::File(PathBuf::from("/boot/vmlinuz")),
            ),
            (
                "linux-image-6.12.107+deb12-rt-amd64",
                Wanted::Package("linux-image-6.12.107+deb12-rt-amd64".to_owned()),
            ),
            (
                "bullseye:linux-image-cloud-arm64",
                Wanted::Package("bullseye:linux-image-cloud-arm64".to_owned()),
            ),
        ] {
            assert_eq!(text.parse(), Ok(wanted.clone()));
            assert_eq!(wanted.to_string(), text);
        }
        for nothing in ["", "--force-yes", "a b", "..", "Linux", ":a", "a:", "a:b:c"] {
            assert!(nothing.parse::<Wanted>().is_err(), "{nothing}");
        }
    }

    #[test]
    fn a_packages_name_gives_its_architecture() {
        let wanted: Wanted = "sid:linux-image-rt-arm64".parse().unwrap();
        assert_eq!(wanted.arch(), Some(Arch::Arm));
        let large: Wanted = "linux-image-arm64-16k".parse().unwrap();
        assert_eq!(large.arch(), Some(Arch::Arm));
        assert_eq!("hz250".parse::<Wanted>().unwrap().arch(), None);
        assert_eq!(
            "hz250+rt+arm64".parse::<Wanted>().unwrap().arch(),
            Some(Arch::Arm)
        );
        let cache = super::Cache::at(PathBuf::from("/nonexistent"));
        let refused = find_for(&wanted, Some(Arch::X86), &cache, &mut |_| {}).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the kernel sid:linux-image-rt-arm64 is for arm64, not for amd64"
        );
    }

    #[test]
    fn another_architecture_is_part_of_a_built_kernels_name() {
        for (typed, arch, kept) in [
            ("hz250", Arch::HOST, "hz250"),
            ("hz250+rt", Arch::HOST, "hz250+rt"),
        ] {
            assert_eq!(built_name(typed, arch), kept);
        }
        for other in Arch::ALL.into_iter().filter(|&arch| arch != Arch::HOST) {
            assert_eq!(built_name("hz250", other), format!("hz250+{other}"));
            let full = format!("hz250+rt+{other}");
            assert_eq!(built_name("hz250+rt", other), full);
            assert_eq!(built_name(&full, other), full);
            assert_eq!(built_name(&full, Arch::HOST), "hz250+rt");
            assert_eq!(
                how_to_build(&full, other),
                format!("ticktax lab build --hz 250 --config rt.config --arch {other}")
            );
        }
        assert_eq!(
            how_to_build("hz100", Arch::HOST),
            "ticktax lab build --hz 100"
        );
    }
}
