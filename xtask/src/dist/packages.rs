//! The packages linked into the command, as cargo resolves them for an architecture.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::cross::Target;
use crate::{read, root};

/// A package that is linked into the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) licence: String,
    /// Directory that contains the package's source.
    pub(super) folder: PathBuf,
    /// Whether the package comes from a registry rather than from this workspace.
    pub(super) foreign: bool,
    /// The package's SHA-256 digest in the registry.
    pub(super) digest: Option<String>,
    /// Indices of the package's dependencies in [`Packages::all`].
    pub(super) depends: Vec<usize>,
}

/// All packages linked into the command, sorted by name and version. Packages that are used only
/// for building or testing are not included.
#[derive(Clone, Debug)]
pub(super) struct Packages {
    pub(super) all: Vec<Package>,
}

impl Packages {
    /// Resolves the packages with cargo.
    pub(super) fn resolve(target: Target) -> Result<Self, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .current_dir(root())
            .args(["metadata", "--format-version", "1", "--locked"])
            .args(["--filter-platform", &target.triple()])
            .output()
            .map_err(|error| format!("cannot run cargo: {error}"))?;
        let metadata: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("cargo metadata is not understood: {error}"))?;
        let lock = String::from_utf8_lossy(&read("Cargo.lock")?).into_owned();
        Self::in_metadata(&metadata, &digests(&lock))
    }

    /// Finds all direct and indirect dependencies of `ticktax` that are linked.
    fn in_metadata(
        metadata: &Value,
        digests: &BTreeMap<(String, String), String>,
    ) -> Result<Self, String> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let nodes: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
            .into_iter()
            .map(|node| (text(&node["id"]), node))
            .collect();
        let packages: BTreeMap<String, Value> = list(&metadata["packages"])
            .into_iter()
            .map(|package| (text(&package["id"]), package))
            .collect();
        let linked = |id: &String| {
            let deps = nodes
                .get(id)
                .map(|node| list(&node["deps"]))
                .unwrap_or_default();
            let is_linked = |dep: &&Value| {
                list(&dep["dep_kinds"])
                    .iter()
                    .any(|kind| kind["kind"].is_null())
            };
            let ids = deps.iter().filter(is_linked).map(|dep| text(&dep["pkg"]));
            // Procedural macros run only in the compiler, so they are not linked.
            let is_macro = |id: &String| {
                let targets = packages
                    .get(id)
                    .map(|package| list(&package["targets"]))
                    .unwrap_or_default();
                let is_proc_macro =
                    |target: &Value| list(&target["kind"]).contains(&Value::from("proc-macro"));
                targets.iter().any(is_proc_macro)
            };
            ids.filter(|id| !is_macro(id)).collect::<Vec<_>>()
        };
        let mut own = packages
            .iter()
            .filter(|(_, package)| package["name"] == "ticktax");
        let (own, _) = own.next().ok_or("cargo metadata has no package ticktax")?;
        let (mut seen, mut left) = (BTreeSet::new(), vec![own.clone()]);
        while let Some(id) = left.pop() {
            if seen.insert(id.clone()) {
                left.extend(linked(&id));
            }
        }
        let key = |id: &&String| {
            (
                text(&packages[*id]["name"]),
                text(&packages[*id]["version"]),
            )
        };
        let mut ids: Vec<&String> = seen
            .iter()
            .filter(|id| packages.contains_key(*id))
            .collect();
        ids.sort_by_key(key);
        let place = |id: &String| ids.iter().position(|other| *other == id);
        let package = |id: &&String| {
            let package = &packages[*id];
            let (name, version) = key(id);
            let licence = package["license"].as_str().map(str::to_owned);
            let licence = licence.ok_or_else(|| format!("{name} {version} names no licence"))?;
            let folder = PathBuf::from(text(&package["manifest_path"]));
            let mut depends: Vec<usize> = linked(id).iter().filter_map(place).collect();
            depends.sort_unstable();
            depends.dedup();
            Ok(Package {
                licence,
                folder: folder.parent().map(PathBuf::from).unwrap_or_default(),
                foreign: !package["source"].is_null(),
                digest: digests.get(&(name.clone(), version.clone())).cloned(),
                depends,
                name,
                version,
            })
        };
        let all: Result<Vec<Package>, String> = ids.iter().map(package).collect();
        Ok(Self { all: all? })
    }

    /// Returns the version of the command.
    pub(super) fn own_version(&self) -> &str {
        let own = self.all.iter().find(|package| package.name == "ticktax");
        own.map_or("0", |package| &package.version)
    }

    /// Returns the packages that come from a registry.
    pub(super) fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.all.iter().filter(|package| package.foreign)
    }
}

/// Parses the digests in Cargo.lock. The key is a package's name and version.
fn digests(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |part: &str, name: &str| {
        let mut lines = part.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
        Some(value?.trim_end_matches('"').to_owned())
    };
    let digest = |part: &str| {
        let key = (field(part, "name")?, field(part, "version")?);
        Some((key, field(part, "checksum")?))
    };
    lock.split("[[package]]").filter_map(digest).collect()
}

#[cfg(test)]
mod tests {
    use super::{Packages, digests};
    use serde_json::json;

    #[test]
    fn only_linked_packages_are_listed() {
        let package = |name: &str, source: Option<&str>, kind: &str| {
            json!({
                "id": name, "name": name, "version": "1.0.0", "license": "MIT", "source": source,
                "manifest_path": format!("/x/{name}/Cargo.toml"), "targets": [{ "kind": [kind] }],
            })
        };
        let dep = |name: &str, kind: Option<&str>| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                package("ticktax", None, "bin"), package("zstd", Some("registry"), "lib"),
                package("derive", Some("registry"), "proc-macro"), package("cc", Some("registry"), "lib"),
                package("insta", Some("registry"), "lib"),
            ],
            "resolve": { "nodes": [
                { "id": "ticktax", "deps": [
                    dep("zstd", None), dep("derive", None), dep("cc", Some("build")), dep("insta", Some("dev")),
                ] },
                { "id": "zstd", "deps": [] },
            ] },
        });
        let lock = "[[package]]\nname = \"zstd\"\nversion = \"1.0.0\"\nchecksum = \"abc\"\n";
        let packages = Packages::in_metadata(&metadata, &digests(lock)).unwrap();
        let names: Vec<&str> = packages.all.iter().map(|package| &*package.name).collect();
        assert_eq!(names, ["ticktax", "zstd"]);
        assert_eq!(packages.all[0].depends, [1]);
        let foreign: Vec<_> = packages
            .foreign()
            .map(|package| package.digest.as_deref())
            .collect();
        assert_eq!(foreign, [Some("abc")]);
        assert_eq!(packages.own_version(), "1.0.0");
    }
}
