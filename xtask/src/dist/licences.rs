//! Lists the licences of everything that is linked into the command: what each component declares,
//! and the texts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use super::packages::{Package, Packages};

/// Components of every static program that are not cargo packages.
const OTHERS: &str = "\
Rust's standard library, MIT OR Apache-2.0: https://github.com/rust-lang/rust
musl, the C library, MIT: https://musl.libc.org
";

/// Prefixes of licence file names.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// Lists the components with their declared licences, and then each licence text once, with the
/// packages that it applies to.
pub(super) fn make(packages: &Packages) -> Result<String, String> {
    let mut page = "What is linked into ticktax, and its licences (SPDX).\n\n".to_owned();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages.foreign() {
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "{} {}, {}",
            package.name, package.version, package.licence
        );
        for text in texts_of(package)? {
            let users = texts.entry(text).or_default();
            users.push(format!("{} {}", package.name, package.version));
        }
    }
    page.push_str(OTHERS);
    let mut ordered: Vec<(Vec<String>, String)> = texts
        .into_iter()
        .map(|(text, users)| (users, text))
        .collect();
    ordered.sort();
    for (users, text) in ordered {
        let _ = write!(
            page,
            "\n{}\n{}\n\n{text}\n",
            "=".repeat(80),
            users.join(", ")
        );
    }
    Ok(page)
}

/// Returns the licence texts in a package's directory.
fn texts_of(package: &Package) -> Result<Vec<String>, String> {
    let folder = &package.folder;
    let listing = fs::read_dir(folder)
        .map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let mut files: Vec<_> = listing
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .to_uppercase();
            path.is_file() && NAMES.iter().any(|begin| name.starts_with(begin))
        })
        .collect();
    files.sort();
    let read = |path| fs::read_to_string(path).map(|text| text.trim().to_owned());
    Ok(files.iter().filter_map(|path| read(path).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::super::packages::{Package, Packages};
    use super::make;

    #[test]
    fn a_shared_text_is_listed_once() {
        let folder = std::env::temp_dir().join(format!("ticktax-licences-{}", std::process::id()));
        let package = |name: &str| {
            let folder = folder.join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("LICENSE-MIT"), "Permission is granted\n").unwrap();
            std::fs::write(folder.join("README.md"), "no licence\n").unwrap();
            Package {
                name: name.to_owned(),
                version: "1.0.0".to_owned(),
                licence: "MIT".to_owned(),
                folder,
                foreign: true,
                digest: None,
                depends: Vec::new(),
            }
        };
        let all = vec![package("a"), package("b")];
        let page = make(&Packages { all }).unwrap();
        assert_eq!(page.matches("Permission is granted").count(), 1);
        assert!(page.contains("a 1.0.0, MIT\nb 1.0.0, MIT\n"), "{page}");
        assert!(page.contains("\na 1.0.0, b 1.0.0\n"), "{page}");
        assert!(!page.contains("no licence"), "{page}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
