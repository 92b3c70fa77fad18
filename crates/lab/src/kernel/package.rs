//! Fetches and unpacks Debian packages, which apt verifies against the archive's signature.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ticktax_host::helper;

use super::Kernel;
use super::apt::PackageSource;
use super::cache::{Cache, Keep};
use super::tool::{run, text};
use crate::arch::Arch;
use crate::error::{LabError, NO_SPACE};

/// Maximum time to wait for another lab that fetches the same kernel.
const FETCH_PATIENCE: Duration = Duration::from_mins(10);

/// A Debian package that has been unpacked.
#[derive(Debug)]
pub struct Unpacked {
    /// Name of the package.
    pub name: String,
    /// Version of the package.
    pub version: String,
    /// Directory that contains the package's files.
    pub files: PathBuf,
    depends: String,
    /// Temporary directory with `files`. Dropping this field removes it.
    _folder: tempfile::TempDir,
}

/// Fetches the kernel package `name`, and stores its kernel in the cache as `kept`.
pub(super) fn fetch_kernel(
    name: &str,
    kept: &str,
    arch: Arch,
    cache: &Cache,
    tell: &mut dyn FnMut(&str),
) -> Result<Kernel, LabError> {
    let _held = cache.hold_after(kept, FETCH_PATIENCE, tell)?;
    if let Some(kernel) = cache.kernel(kept)? {
        return Ok(kernel);
    }
    let (source, name) = PackageSource::parse(name, arch);
    let package = fetch_from(source, name, "linux-image-", cache, tell)?;
    let mut parts = vec![package];
    // Since version 6.19, the package itself is empty and depends on two others: one with the image
    // and one with the configuration.
    for part in ["linux-binary-", "linux-base-"] {
        let depends = packages_in(&parts[0].depends).find(|name| name.starts_with(part));
        if let Some(name) = depends.map(str::to_owned) {
            tell(&format!("fetching {name} with apt"));
            parts.push(unpack(download(source, &name, cache)?, name)?);
        }
    }
    let package = &parts[0];
    let none =
        |what: &str| LabError::NoKernel(format!("the package {} contains no {what}", package.name));
    let images = parts.iter().find_map(|part| kernel_in(&part.files));
    let (release, image) = images.ok_or_else(|| none("kernel"))?;
    let places = [
        format!("boot/config-{release}"),
        format!("usr/lib/modules/{release}/config"),
    ];
    let each = parts
        .iter()
        .flat_map(|part| places.iter().map(|place| part.files.join(place)));
    let config_file = each.into_iter().find(|file| file.is_file());
    let config_file = config_file.ok_or_else(|| none("configuration"))?;
    let config = fs::read(&config_file).map_err(LabError::file("read", &config_file))?;
    cache.keep(&Keep {
        name: kept,
        release: &release,
        origin: &format!("Debian package {} {}", package.name, package.version),
        image: &image,
        config: &config,
    })?;
    cache
        .kernel(kept)?
        .ok_or_else(|| LabError::NoKernel(format!("{kept} disappeared from the cache")))
}

/// Fetches and unpacks the package `name`. If it depends on a package whose name starts with
/// `prefix`, fetches that one instead.
pub(super) fn fetch(
    name: &str,
    prefix: &str,
    cache: &Cache,
    tell: &mut dyn FnMut(&str),
) -> Result<Unpacked, LabError> {
    let (source, name) = PackageSource::parse(name, Arch::HOST);
    fetch_from(source, name, prefix, cache, tell)
}

/// Fetches and unpacks the package with the kernel `name`, or the one that it depends on. It also
/// contains the kernel's modules.
///
/// # Errors
/// Returns an error if apt or the package is missing, or if it cannot be unpacked.
pub fn fetch_kernel_package(
    name: &str,
    cache: &Cache,
    tell: &mut dyn FnMut(&str),
) -> Result<Unpacked, LabError> {
    fetch(name, "linux-image-", cache, tell)
}

/// Same as [`fetch`], but fetches the package from `source`.
fn fetch_from(
    source: PackageSource<'_>,
    name: &str,
    prefix: &str,
    cache: &Cache,
    tell: &mut dyn FnMut(&str),
) -> Result<Unpacked, LabError> {
    source.update(cache, tell)?;
    let mut name = name.to_owned();
    // Follow dependencies such as linux-source → linux-source-6.1 or linux-image-rt-amd64 →
    // linux-image-6.1.0-9-rt-amd64.
    for _ in 0..3 {
        tell(&format!("fetching {name} with apt"));
        let package = download(source, &name, cache)?;
        let other = depends(&package)?;
        let other = packages_in(&other).find(|word| word.starts_with(prefix));
        let Some(other) = other.filter(|other| *other != name) else {
            tell(&format!("unpacking {name}"));
            return unpack(package, name);
        };
        other.clone_into(&mut name);
    }
    Err(LabError::NoKernel(format!(
        "the package {name} contains no kernel, only dependencies"
    )))
}

/// Fetches the packages `names` and all libraries that they depend on, directly or indirectly.
/// Leaves out the C library: ticktax needs it, so the guest already contains the host's.
///
/// # Errors
/// Returns an error if apt or a package is missing, or if a package cannot be unpacked.
pub fn fetch_with_libraries(
    names: &[&str],
    cache: &Cache,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<Unpacked>, LabError> {
    let mut wanted: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let (source, _) = PackageSource::parse("", Arch::HOST);
    let mut all = Vec::new();
    while let Some(name) = wanted.get(all.len()).cloned() {
        tell(&format!("fetching {name} with apt"));
        let package = download(source, &name, cache)?;
        for library in libraries_in(&depends(&package)?) {
            if !wanted.contains(&library) {
                wanted.push(library);
            }
        }
        all.push(unpack(package, name)?);
    }
    Ok(all)
}

/// Returns the library packages in a `Depends` field such as
/// `libc6 (>= 2.34), libnuma1, python3 | perl`. If there are alternatives, only the first counts.
fn libraries_in(depends: &str) -> Vec<String> {
    let first = |choice: &str| {
        let word = choice
            .split(['|', ' ', ':', '('])
            .find(|word| !word.is_empty());
        word.unwrap_or_default().trim().to_owned()
    };
    let names = depends.split(',').map(first);
    let library = |name: &String| name.starts_with("lib") && name != "libc6";
    names.filter(library).collect()
}

/// Lists the names of the packages in a `Depends` field, without version constraints.
fn packages_in(depends: &str) -> impl Iterator<Item = &str> {
    let each = depends.split([',', '|']);
    each.filter_map(|word| word.split_whitespace().next())
}

fn depends(package: &Download) -> Result<String, LabError> {
    let field = helper("dpkg-deb")
        .arg("-f")
        .arg(&package.0)
        .arg("Depends")
        .output();
    let field = field.map_err(|error| LabError::start("dpkg-deb", "dpkg", &error))?;
    Ok(text(&field))
}

/// Path of a downloaded package file, and the temporary directory that contains it.
type Download = (PathBuf, tempfile::TempDir);

fn download(source: PackageSource<'_>, name: &str, cache: &Cache) -> Result<Download, LabError> {
    let root = cache.folder("fresh")?;
    let folder =
        tempfile::tempdir_in(&root).map_err(LabError::file("create a directory in", &root))?;
    let mut apt = source.apt_get(cache)?;
    apt.args(["download", name]).current_dir(folder.path());
    run(&mut apt, "apt").map_err(|error| match error {
        LabError::Missing { .. } => LabError::Missing {
            program: "apt-get".to_owned(),
            remedy: format!(
                "it is needed to download the package {name}; or give the kernel \
                as a file"
            ),
        },
        LabError::Tool { program, why } if why != NO_SPACE => LabError::Tool {
            program,
            why: format!("{why}; try `apt-get update`"),
        },
        other => other,
    })?;
    let listing = fs::read_dir(folder.path());
    let listing = listing.map_err(LabError::file("list", folder.path()))?;
    let mut files = listing.flatten().map(|entry| entry.path());
    match files.next() {
        Some(file) => Ok((file, folder)),
        None => Err(LabError::NoKernel(format!(
            "apt-get downloaded no file for {name}"
        ))),
    }
}

fn unpack(package: Download, name: String) -> Result<Unpacked, LabError> {
    let depends = depends(&package)?;
    let (file, folder) = package;
    let files = folder.path().join("files");
    run(helper("dpkg-deb").arg("-x").arg(&file).arg(&files), "dpkg")?;
    let version = run(
        helper("dpkg-deb").arg("-f").arg(&file).arg("Version"),
        "dpkg",
    )?;
    drop(fs::remove_file(&file));
    Ok(Unpacked {
        name,
        version: text(&version),
        files,
        depends,
        _folder: folder,
    })
}

/// Finds the kernel in an unpacked package. Returns its release and the path of its image, or
/// `None` if the package contains no kernel.
fn kernel_in(files: &Path) -> Option<(String, PathBuf)> {
    let names = |folder: &str| {
        let entries = fs::read_dir(files.join(folder))
            .into_iter()
            .flatten()
            .flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok())
    };
    let boot = names("boot").find_map(|name| {
        let release = name.strip_prefix("vmlinuz-")?.to_owned();
        Some((release, files.join("boot").join(name)))
    });
    boot.or_else(|| {
        let modules = "usr/lib/modules";
        names(modules).find_map(|release| {
            let image = files.join(modules).join(&release).join("vmlinuz");
            image.is_file().then_some((release, image))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{kernel_in, libraries_in, packages_in};

    #[test]
    fn a_kernel_is_found_in_all_layouts_of_packages() {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path();
        assert_eq!(kernel_in(files), None);
        let modules = files.join("usr/lib/modules/7.3.4+deb13-cloud-arm64");
        std::fs::create_dir_all(&modules).unwrap();
        assert_eq!(kernel_in(files), None);
        std::fs::write(modules.join("vmlinuz"), "").unwrap();
        let found = kernel_in(files).unwrap();
        assert_eq!(found.0, "7.3.4+deb13-cloud-arm64");
        std::fs::create_dir_all(files.join("boot")).unwrap();
        std::fs::write(files.join("boot/vmlinuz-6.1.0-50-arm64"), "").unwrap();
        assert_eq!(kernel_in(files).unwrap().0, "6.1.0-50-arm64");
        let depends = "kmod, linux-base-7.3 (= 7.3.4-1) | x, linux-binary-7.3 (= 7.3.4-1)";
        let packages: Vec<&str> = packages_in(depends).collect();
        assert_eq!(
            packages,
            ["kmod", "linux-base-7.3", "x", "linux-binary-7.3"]
        );
    }

    #[test]
    fn libraries_are_selected_from_a_packages_dependencies() {
        let depends = "libc6 (>= 2.34), libtraceevent1 (>= 5.4),libtracefs1(>= 1.3), python3:any, \
                       libnuma1 | libnuma2";
        assert_eq!(
            libraries_in(depends),
            ["libtraceevent1", "libtracefs1", "libnuma1"]
        );
        assert_eq!(libraries_in(""), [""; 0]);
    }
}
