//! The packages of this workspace, their manifests and their files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A package's name and its dependencies, except those that only its tests need.
pub(crate) struct Manifest {
    pub(crate) name: String,
    pub(crate) dependencies: BTreeSet<String>,
}

impl Manifest {
    /// Parses the subset of TOML that these manifests use: tables with one key per line.
    pub(crate) fn read(folder: &Path) -> Self {
        let mut name = String::new();
        let mut dependencies = BTreeSet::new();
        let mut table = String::new();
        for line in read(&folder.join("Cargo.toml")).lines() {
            if let Some(header) = line.strip_prefix('[') {
                header.trim_matches(['[', ']']).clone_into(&mut table);
                if let Some((_, name)) = table.split_once("dependencies.")
                    && !table.contains("dev-dependencies")
                {
                    dependencies.insert(name.to_owned());
                }
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let key = key
                .split('.')
                .next()
                .unwrap_or_default()
                .trim()
                .trim_matches('"');
            if table == "package" && key == "name" {
                value.trim().trim_matches('"').clone_into(&mut name);
            } else if table.ends_with("dependencies") && !table.ends_with("dev-dependencies") {
                dependencies.insert(key.to_owned());
                // The manifest uses a name for the dependency that differs from the package's.
                if let Some((_, renamed)) = value.split_once("package = \"") {
                    dependencies.extend(renamed.split('"').next().map(str::to_owned));
                }
            }
        }
        assert!(!name.is_empty(), "{} has no name", folder.display());
        Self { name, dependencies }
    }
}

/// Returns the workspace's directory, from the value that cargo sets at run time. The value at
/// build time could name a different checkout that shares the target directory.
pub(crate) fn root() -> PathBuf {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask
        .parent()
        .expect("xtask lies in the workspace")
        .to_owned()
}

/// Returns the directories of the workspace's packages.
pub(crate) fn packages() -> Vec<PathBuf> {
    let mut packages = entries(&root().join("crates"));
    packages.extend(entries(&root().join("testing")));
    packages.extend(["bench", "xtask"].map(|name| root().join(name)));
    packages.retain(|folder| folder.join("Cargo.toml").is_file());
    packages
}

/// Returns all files in the workspace's packages that have this extension.
pub(crate) fn sources(extension: &str) -> Vec<PathBuf> {
    let mut sources: Vec<PathBuf> = packages().iter().flat_map(|folder| files(folder)).collect();
    sources.retain(|file| file.extension().is_some_and(|found| found == extension));
    sources
}

/// Returns all files in and below a directory, sorted, except for installed Node packages. Returns
/// an empty list if the directory does not exist.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let all = entries(folder).into_iter();
    all.filter(|path| !path.ends_with("node_modules"))
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Returns the sorted entries of a directory, or an empty list if it does not exist.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(listing) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut entries: Vec<PathBuf> = listing
        .map(|entry| entry.expect("a folder can be listed").path())
        .collect();
    entries.sort();
    entries
}

pub(crate) fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the path relative to the workspace, for messages.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}
