//! Checks for files that no test reads: snapshots of pages that were removed, and forgotten data.

use std::path::Path;

use crate::workspace::{files, packages, read, root, shown, sources};

/// File name extensions that do not mark test data.
const OTHERS: &[&str] = &["rs", "snap", "toml", "c", "h", "o", "md"];

/// Checks that there is a test for each snapshot. [insta](https://insta.rs) names a snapshot
/// `crate__module__NAME.snap`. NAME is the test's name, or one that the test chooses, and may be
/// followed by a number.
#[test]
fn every_snapshot_belongs_to_a_test() {
    let mut wrong = Vec::new();
    for package in packages() {
        let code = rust_of(&package);
        let snapshots = files(&package).into_iter();
        for snapshot in snapshots.filter(|file| has_ending(file, &["snap"])) {
            let stem = stem_of(&snapshot);
            let name = stem.rsplit("__").next().unwrap_or_default();
            let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let numbered = stem.len() < name.len() && code.contains(&format!("\"{stem}{{"));
            let given = code.contains(&format!("\"{name}\"")) || numbered;
            if !given && !code.contains(&format!("fn {name}()")) {
                wrong.push(format!("{} belongs to no test", shown(&snapshot)));
            }
        }
    }
    crate::report(&wrong);
}

/// Checks that a program or a test mentions the name of each data file, either with its extension
/// or without it as a separate string.
#[test]
fn every_file_beside_the_code_is_read() {
    let code: Vec<String> = sources("rs").iter().map(|file| read(file)).collect();
    let is_named = |words: &str| code.iter().any(|text| text.contains(words));
    let mut wrong = Vec::new();
    let beside = packages().into_iter().flat_map(|folder| files(&folder));
    let scenarios = files(&root().join("scenarios"));
    for file in beside
        .filter(|file| !has_ending(file, OTHERS))
        .chain(scenarios)
    {
        // No code needs to name these files: proptest finds its own, and esbuild finds the files of
        // the script that `cargo xtask script` builds.
        let shown = shown(&file);
        if shown.contains("/proptest-regressions/") || shown.starts_with("crates/report/script/") {
            continue;
        }
        if is_imported(&file) {
            continue;
        }
        let name = file.file_name().map(|name| name.to_string_lossy());
        let listed = format!("\"{}\"", stem_of(&file));
        if !name.is_some_and(|name| is_named(&name)) && !is_named(&listed) {
            wrong.push(format!("{shown} is read by nothing"));
        }
    }
    crate::report(&wrong);
}

/// Returns whether a Python program or a Node script in the same directory imports `file` as a
/// module.
fn is_imported(file: &Path) -> bool {
    let (ending, import) = if has_ending(file, &["py"]) {
        ("py", format!("from {} import ", stem_of(file)))
    } else if has_ending(file, &["mjs"]) {
        ("mjs", format!("from \"./{}.mjs\"", stem_of(file)))
    } else {
        return false;
    };
    let beside = file.parent().map(files).unwrap_or_default().into_iter();
    let mut scripts = beside.filter(|script| has_ending(script, &[ending]));
    scripts.any(|script| read(&script).contains(&import))
}

/// Returns the contents of all Rust files in a package.
fn rust_of(package: &Path) -> String {
    let files = files(package).into_iter();
    let files = files.filter(|file| has_ending(file, &["rs"]));
    files.map(|file| read(&file)).collect()
}

fn has_ending(file: &Path, endings: &[&str]) -> bool {
    let ending = file.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| endings.contains(&ending))
}

fn stem_of(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}
