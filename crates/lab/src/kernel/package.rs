//! Debian packages: fetched by apt, which checks them against the archive's signature.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Kernel;
use super::cache::{Cache, Keep};
use super::tool::{run, text};
use crate::error::{LabError, NO_SPACE};

/// A package that was fetched, and unpacked.
#[derive(Debug)]
pub struct Unpacked {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its files.
    pub files: PathBuf,
    /// Ends with it.
    _folder: tempfile::TempDir,
}

/// Fetches a kernel's package into the cache.
pub(super) fn fetch_kernel(
    name: &str,
    cache: &Cache,
    tell: &mut dyn FnMut(&str),
) -> Result<Kernel, LabError> {
    let _held = cache.hold(name)?;
    let package = fetch(name, "linux-image-", cache, tell)?;
    let boot = package.files.join("boot");
    let release = release_in(&boot).ok_or_else(|| {
        LabError::NoKernel(format!(
            "the package {} has no kernel in /boot",
            package.name
        ))
    })?;
    let config_file = boot.join(format!("config-{release}"));
    let config = fs::read(&config_file).map_err(LabError::file("read", &config_file))?;
    cache.keep(&Keep {
        name,
        release: &release,
        origin: &format!("Debian package {} {}", package.name, package.version),
        image: &boot.join(format!("vmlinuz-{release}")),
        config: &config,
    })?;
    cache
        .kernel(name)?
        .ok_or_else(|| LabError::NoKernel(format!("{name} has gone from the cache meanwhile")))
}

/// Fetches a package, or, where it has no files but depends on one whose name begins with `prefix`,
/// that one.
pub(super) fn fetch(
    name: &str,
    prefix: &str,
    cache: &Cache,
    tell: &mut dyn FnMut(&str),
) -> Result<Unpacked, LabError> {
    let mut name = name.to_owned();
    // linux-source, linux-source-6.1; linux-image-rt-amd64, linux-image-6.1.0-9-rt-amd64.
    for _ in 0..3 {
        tell(&format!("fetching {name} by apt"));
        let package = download(&name, cache)?;
        let other = depends(&package)?;
        let other = other
            .split([',', '|'])
            .filter_map(|word| word.split_whitespace().next())
            .find(|word| word.starts_with(prefix));
        let Some(other) = other.filter(|other| *other != name) else {
            tell(&format!("unpacking {name}"));
            return unpack(package, name);
        };
        other.clone_into(&mut name);
    }
    Err(LabError::NoKernel(format!(
        "the package {name} leads from one package to the next"
    )))
}

/// Fetches these packages, and those with libraries that they depend on, directly or not. The C
/// library is left out: a guest has the host's, which ticktax itself needs.
///
/// # Errors
/// apt is not there or has no such package, or one cannot be unpacked.
pub fn fetch_with_libraries(
    names: &[&str],
    cache: &Cache,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<Unpacked>, LabError> {
    let mut wanted: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut all = Vec::new();
    while let Some(name) = wanted.get(all.len()).cloned() {
        tell(&format!("fetching {name} by apt"));
        let package = download(&name, cache)?;
        for library in libraries_in(&depends(&package)?) {
            if !wanted.contains(&library) {
                wanted.push(library);
            }
        }
        all.push(unpack(package, name)?);
    }
    Ok(all)
}

/// The packages with libraries in a list such as `libc6 (>= 2.34), libnuma1, python3 | perl`: of each
/// choice the first.
fn libraries_in(depends: &str) -> Vec<String> {
    let first = |choice: &str| {
        let word = choice.split(['|', ' ', ':', '(']).find(|it| !it.is_empty());
        word.unwrap_or_default().trim().to_owned()
    };
    let names = depends.split(',').map(first);
    let library = |name: &String| name.starts_with("lib") && name != "libc6";
    names.filter(library).collect()
}

/// What a package says that it depends on.
fn depends(package: &Download) -> Result<String, LabError> {
    let field = Command::new("dpkg-deb")
        .arg("-f")
        .arg(&package.0)
        .arg("Depends")
        .output();
    let field = field.map_err(|error| LabError::start("dpkg-deb", "dpkg", &error))?;
    Ok(text(&field))
}

/// The file of a package, and the folder that it is in.
type Download = (PathBuf, tempfile::TempDir);

fn download(name: &str, cache: &Cache) -> Result<Download, LabError> {
    let root = cache.folder("fresh")?;
    let folder = tempfile::tempdir_in(&root).map_err(LabError::file("make a folder in", &root))?;
    let mut apt = Command::new("apt-get");
    apt.args(["-qq", "-o", "APT::Sandbox::User=root", "download", name])
        .current_dir(folder.path());
    run(&mut apt, "apt").map_err(|error| match error {
        LabError::Missing { .. } => LabError::Missing {
            program: "apt-get".to_owned(),
            remedy: format!("the package {name} comes by it; a kernel can also be given as a file"),
        },
        LabError::Tool { program, why } if why != NO_SPACE => LabError::Tool {
            program,
            why: format!("{why}; `apt-get update` may help"),
        },
        other => other,
    })?;
    let listing = fs::read_dir(folder.path());
    let listing = listing.map_err(LabError::file("list", folder.path()))?;
    let mut files = listing.flatten().map(|entry| entry.path());
    match files.next() {
        Some(file) => Ok((file, folder)),
        None => Err(LabError::NoKernel(format!(
            "apt-get brought no file for {name}"
        ))),
    }
}

fn unpack((file, folder): Download, name: String) -> Result<Unpacked, LabError> {
    let files = folder.path().join("files");
    run(
        Command::new("dpkg-deb").arg("-x").arg(&file).arg(&files),
        "dpkg",
    )?;
    let version = run(
        Command::new("dpkg-deb").arg("-f").arg(&file).arg("Version"),
        "dpkg",
    )?;
    drop(fs::remove_file(&file));
    Ok(Unpacked {
        name,
        version: text(&version),
        files,
        _folder: folder,
    })
}

/// The release whose kernel lies in this folder.
fn release_in(boot: &Path) -> Option<String> {
    let entries = fs::read_dir(boot).ok()?.flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.find_map(|name| Some(name.strip_prefix("vmlinuz-")?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::libraries_in;

    #[test]
    fn libraries_are_picked_out_of_what_a_package_depends_on() {
        let depends = "libc6 (>= 2.34), libtraceevent1 (>= 5.4),libtracefs1(>= 1.3), python3:any, \
                       libnuma1 | libnuma2";
        assert_eq!(
            libraries_in(depends),
            ["libtraceevent1", "libtracefs1", "libnuma1"]
        );
        assert_eq!(libraries_in(""), [""; 0]);
    }
}
