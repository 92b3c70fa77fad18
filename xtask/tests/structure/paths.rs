//! Checks that the paths in the documentation exist.

use std::path::PathBuf;

use crate::workspace::{entries, read, root, shown};

/// Directories in the workspace whose files the documentation may name.
const FOLDERS: &[&str] = &[
    "crates",
    "bench",
    "testing",
    "xtask",
    "docs",
    "cases",
    "contrib",
    "scenarios",
];

/// Checks the targets of links, and quoted paths that are relative to the workspace or to `crates`.
/// `{a,b}` stands for both names, and a part in capitals stands for any name.
#[test]
fn every_path_in_the_documentation_exists() {
    let mut wrong = Vec::new();
    let mut found = 0;
    for page in pages() {
        let text = read(&page);
        let quoted = text.split('`').skip(1).step_by(2);
        let quoted = quoted.flat_map(expanded).filter_map(|path| place(&path));
        let folder = page.parent().map(PathBuf::from).unwrap_or_default();
        let links = links(&text).map(|link| folder.join(link));
        for path in quoted.chain(links) {
            found += 1;
            if !path.exists() {
                wrong.push(format!("{} names {}", shown(&page), shown(&path)));
            }
        }
    }
    assert!(found > 100, "only {found} paths were found");
    crate::report(&wrong);
}

/// Returns the documentation pages that describe the layout of the workspace.
fn pages() -> Vec<PathBuf> {
    let above = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"];
    let mut pages: Vec<PathBuf> = above.iter().map(|name| root().join(name)).collect();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in entries(&folder) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|ending| ending == "md") {
                pages.push(entry);
            }
        }
    }
    pages
}

/// Expands a quoted path with braces into all the paths that it stands for.
fn expanded(quoted: &str) -> Vec<String> {
    let Some((before, rest)) = quoted.split_once('{') else {
        return vec![quoted.to_owned()];
    };
    let Some((inner, after)) = rest.split_once('}') else {
        return Vec::new();
    };
    let each = inner
        .split(',')
        .map(|part| format!("{before}{part}{after}"));
    each.collect()
}

/// Returns the path that a quoted word names, or `None` if the word is not a path relative to the
/// workspace or to `crates`.
fn place(quoted: &str) -> Option<PathBuf> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if !quoted.contains('/') || !quoted.chars().all(is_name) {
        return None;
    }
    let is_any = |part: &str| {
        let stem = part.split('.').next().unwrap_or_default();
        stem.len() > 2 && !stem.contains(|c: char| !c.is_ascii_uppercase())
    };
    let mut parts = quoted.split('/');
    let (first, second) = (parts.next()?, parts.next()?);
    if quoted.split('/').any(is_any) {
        return None;
    }
    if FOLDERS.contains(&first) {
        return Some(root().join(quoted));
    }
    let in_crates = root().join("crates").join(first).is_dir();
    (in_crates && matches!(second, "src" | "tests" | "bpf" | "benches"))
        .then(|| root().join("crates").join(quoted))
}

/// Returns the files that a page links to.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("](").skip(1);
    let links = links.filter_map(|rest| rest.split([')', '#', ' ']).next());
    links.filter(|link| !link.is_empty() && !link.contains(':'))
}
