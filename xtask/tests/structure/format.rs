//! Checks files that no `mod` line declares, because a macro declares them or because somebody
//! forgot to.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::code::code_of;
use crate::workspace::{packages, read, root, shown, sources};

/// `cargo fmt` finds only modules with a `mod` line. Modules declared by macros (cases and document
/// pages) must be formatted with `rustfmt FILE`.
#[test]
fn modules_that_macros_declare_are_formatted() {
    let unseen = undeclared();
    assert!(!unseen.is_empty(), "cases are declared by a macro");
    let mut wrong = Vec::new();
    for file in unseen {
        let status = Command::new("rustfmt")
            .args(["--check", "--quiet", "--edition", "2024"])
            .arg(&file)
            .current_dir(root())
            .output();
        match status {
            Ok(output) if output.status.success() => {}
            Ok(_) => wrong.push(format!("{0}: run rustfmt --edition 2024 {0}", shown(&file))),
            // Skip the test if rustfmt is missing.
            Err(_) => return,
        }
    }
    crate::report(&wrong);
}

/// The compiler silently ignores files that are not declared as modules. Most modules are declared
/// by `mod` lines. Cases are declared by a build script, and modules that contain pages by the
/// macro `each_document`.
#[test]
fn every_source_file_is_compiled() {
    let documents = read(&root().join("crates/model/src/lib.rs"));
    let mut wrong = Vec::new();
    for file in undeclared() {
        let path = shown(&file);
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let is_case = path == format!("crates/casebook/src/cases/{stem}.rs");
        let is_page = path == format!("crates/report/src/text/{stem}.rs")
            && documents.contains(&format!(" {stem} {{\n"));
        if !is_case && !is_page {
            wrong.push(format!("{path} is declared by no module"));
        }
    }
    crate::report(&wrong);
}

/// Returns the source files that no `mod` line declares.
fn undeclared() -> Vec<PathBuf> {
    let declared: BTreeSet<PathBuf> = sources("rs")
        .iter()
        .flat_map(|file| modules(file))
        .collect();
    let roots = packages().into_iter().flat_map(|folder| {
        let src = folder.join("src");
        [src.join("main.rs"), src.join("lib.rs"), src.join("bin")]
    });
    let roots: Vec<PathBuf> = roots.collect();
    sources("rs")
        .into_iter()
        .filter(|file| file.components().any(|part| part.as_os_str() == "src"))
        .filter(|file| !declared.contains(file) && !roots.contains(file))
        .collect()
}

/// Returns the files of the modules that a file declares in `mod` lines.
fn modules(file: &Path) -> Vec<PathBuf> {
    let folder = match file.file_name().and_then(|name| name.to_str()) {
        Some("lib.rs" | "main.rs" | "mod.rs") => file.parent().map(Path::to_owned),
        _ => Some(file.with_extension("")),
    };
    let Some(folder) = folder else {
        return Vec::new();
    };
    let code = code_of(&read(file));
    let names = code.lines().filter_map(|line| {
        let (before, name) = line.trim().strip_suffix(';')?.rsplit_once("mod ")?;
        let declares = before.is_empty() || before.starts_with("pub");
        (declares && !name.contains('$')).then_some(name)
    });
    let files = names.flat_map(|name| {
        let inner = folder.join(name);
        [inner.with_extension("rs"), inner.join("mod.rs")]
    });
    files.collect()
}
