//! Gets the third-party programs for a guest (rtla and cyclictest) from Debian's packages, and
//! keeps them in the cache together with a digest of every file.

use std::fs;
use std::path::{Path, PathBuf};

use ticktax_lab::kernel::{Cache, Unpacked, fetch_with_libraries, sha256, sha256_of};
use ticktax_lab::{LabError, Program};

/// The packages to download, and the program needed from each.
const PROGRAMS: [(&str, &str); 2] = [("rtla", "rtla"), ("rt-tests", "cyclictest")];
/// Name of the programs' subdirectory in the cache, and of its lock.
const NAME: &str = "tools";
/// Name of the file in that subdirectory that lists all the other files in it.
const MANIFEST: &str = "manifest";

/// Third-party programs for a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    folder: PathBuf,
    /// Names and versions of the packages that contained the programs.
    pub packages: Vec<(String, String)>,
}

impl Tools {
    /// Finds the programs in the cache, or downloads them. Calls `tell` with a message before each
    /// slow step.
    ///
    /// # Errors
    /// Returns an error if apt cannot download the packages, or if files in the cache were
    /// modified.
    pub fn find(cache: &Cache, tell: &mut dyn FnMut(&str)) -> Result<Self, LabError> {
        if let Some(tools) = Self::kept(cache)? {
            return Ok(tools);
        }
        let _held = cache.hold(NAME)?;
        // Check again: another process may have stored the programs since the first check.
        if let Some(tools) = Self::kept(cache)? {
            return Ok(tools);
        }
        let packages = PROGRAMS.map(|(package, _)| package);
        keep(&fetch_with_libraries(&packages, cache, tell)?, cache)?;
        let gone = || LabError::NoKernel(format!("{NAME} have gone from the cache meanwhile"));
        Self::kept(cache)?.ok_or_else(gone)
    }

    /// Returns the programs. Their libraries are in the same directory.
    pub fn programs(&self) -> Vec<Program> {
        let program = |(_, name): (&str, &str)| Program {
            name: name.to_owned(),
            file: self.folder.join(name),
            libraries: Some(self.folder.clone()),
        };
        PROGRAMS.map(program).into()
    }

    /// Finds the programs in the cache. Returns `None` if they are not there, and an error if they
    /// were modified.
    fn kept(cache: &Cache) -> Result<Option<Self>, LabError> {
        let folder = cache.place(NAME);
        if !folder.exists() {
            return Ok(None);
        }
        let damaged = |why: String| LabError::Damaged {
            what: "rtla and cyclictest".to_owned(),
            why,
            path: folder.clone(),
        };
        let text = fs::read_to_string(folder.join(MANIFEST))
            .map_err(|_| damaged("their manifest cannot be read".to_owned()))?;
        let mut packages = Vec::new();
        let mut files = Vec::new();
        for line in text.lines() {
            match *line.split(' ').collect::<Vec<_>>() {
                ["package", name, version] => packages.push((name.to_owned(), version.to_owned())),
                ["file", name, digest] => {
                    let found = sha256_of(&folder.join(name));
                    if found.ok().as_deref() != Some(digest) {
                        return Err(damaged(format!("{name} is not what was stored")));
                    }
                    files.push(name);
                }
                _ => return Err(damaged("their manifest is not what was stored".to_owned())),
            }
        }
        for (_, program) in PROGRAMS {
            if !files.contains(&program) {
                return Err(damaged(format!("{program} is missing")));
            }
        }
        Ok(Some(Self { folder, packages }))
    }
}

/// Stores the files that a guest needs from `packages` in the cache.
fn keep(packages: &[Unpacked], cache: &Cache) -> Result<(), LabError> {
    let fresh = cache.folder("fresh")?.join(NAME);
    drop(fs::remove_dir_all(&fresh));
    fs::create_dir_all(&fresh).map_err(LabError::file("create", &fresh))?;
    let mut manifest: Vec<String> = Vec::new();
    for package in packages {
        manifest.push(format!("package {} {}\n", package.name, package.version));
        for file in files_of(package) {
            let Some(name) = file.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            // Follow links: each library must be stored under the name by which programs ask for
            // it.
            let bytes = fs::read(&file).map_err(LabError::file("read", &file))?;
            let to = fresh.join(name);
            fs::write(&to, &bytes).map_err(LabError::file("write", &to))?;
            manifest.push(format!("file {name} {}\n", sha256(&bytes)));
        }
    }
    let to = fresh.join(MANIFEST);
    fs::write(&to, manifest.concat()).map_err(LabError::file("write", &to))?;
    let folder = cache.place(NAME);
    fs::rename(&fresh, &folder).map_err(LabError::file("move into place", &folder))
}

/// Returns the files that a guest needs from a package, sorted: programs listed in [`PROGRAMS`],
/// and libraries named `libNAME.so.N`.
fn files_of(package: &Unpacked) -> Vec<PathBuf> {
    let mine = PROGRAMS.iter().filter(|(name, _)| *name == package.name);
    let mut files: Vec<PathBuf> = mine
        .map(|(_, program)| package.files.join("usr/bin").join(program))
        .collect();
    for folder in ["lib", "usr/lib"] {
        let folder = package.files.join(folder);
        let nested = fs::read_dir(&folder).into_iter().flatten().flatten();
        for folder in nested.map(|entry| entry.path()).chain([folder.clone()]) {
            let listed = fs::read_dir(folder).into_iter().flatten().flatten();
            files.extend(
                listed
                    .map(|entry| entry.path())
                    .filter(|file| is_library(file)),
            );
        }
    }
    files.sort();
    files
}

/// Returns whether this file's name is one by which programs ask for a library: `libNAME.so.N`.
fn is_library(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    let version = name.and_then(|name| Some(name.strip_prefix("lib")?.split_once(".so.")?.1));
    version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{MANIFEST, NAME, Tools, is_library};
    use ticktax_lab::LabError;
    use ticktax_lab::kernel::{Cache, sha256};

    /// Creates a cache that contains two fake programs and a fake library.
    fn cache_with_tools(root: &Path) -> Cache {
        let folder = root.join(NAME);
        fs::create_dir_all(&folder).unwrap();
        let files = ["cyclictest", "libnuma.so.1", "rtla"].map(|name| {
            fs::write(folder.join(name), name).unwrap();
            format!("file {name} {}\n", sha256(name.as_bytes()))
        });
        let packages = "package rtla 6.1.1-1\npackage rt-tests 2.4-1\n";
        fs::write(
            folder.join(MANIFEST),
            format!("{packages}{}", files.concat()),
        )
        .unwrap();
        Cache::at(root.to_owned())
    }

    /// Finds the tools in the cache. Panics if there is a message, because only a download produces
    /// one.
    fn find(cache: &Cache) -> Result<Tools, LabError> {
        Tools::find(cache, &mut |words| panic!("{words}"))
    }

    #[test]
    fn tools_that_were_kept_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let tools = find(&cache_with_tools(folder.path())).unwrap();
        let versions: Vec<&str> = tools
            .packages
            .iter()
            .map(|(_, version)| version.as_str())
            .collect();
        assert_eq!(versions, ["6.1.1-1", "2.4-1"]);
        for program in tools.programs() {
            assert_eq!(fs::read(&program.file).unwrap(), program.name.as_bytes());
        }
    }

    #[test]
    fn damaged_tools_are_refused() {
        for (file, says) in [
            ("rtla", "rtla is not"),
            ("libnuma.so.1", "libnuma.so.1 is not"),
            (MANIFEST, "manifest"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let cache = cache_with_tools(folder.path());
            let path = folder.path().join(NAME).join(file);
            for gone in [false, true] {
                if gone {
                    fs::remove_file(&path).unwrap();
                } else {
                    fs::write(&path, "x").unwrap();
                }
                let error = find(&cache).unwrap_err();
                assert!(matches!(error, LabError::Damaged { .. }), "{error}");
                assert!(error.to_string().contains(says), "{error}");
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let cache = cache_with_tools(folder.path());
        fs::write(folder.path().join(NAME).join(MANIFEST), "").unwrap();
        let error = find(&cache).unwrap_err().to_string();
        assert!(error.contains("rtla is missing"), "{error}");
    }

    #[test]
    fn two_labs_do_not_fetch_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let _first = cache.hold(NAME).unwrap();
        assert!(matches!(find(&cache), Err(LabError::Busy(_))));
    }

    #[test]
    fn libraries_are_recognized_by_the_names_that_programs_request() {
        assert!(is_library(Path::new("/a/libnuma.so.1")));
        for other in ["libnuma.so.1.0.0", "libnuma.so", "libnuma.a", "x.so.1"] {
            assert!(!is_library(Path::new(other)), "{other}");
        }
    }
}
