//! Checks rules for the structure of the crates: dependencies, the locations of unsafe code,
//! complete lists of tests, and maximum file lengths. Every test reports all violations together.

mod code;
mod errors;
mod format;
mod lists;
mod orphans;
mod parameters;
mod paths;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use code::code_of;
use workspace::{Manifest, entries, files, packages, read, root, shown, sources};

/// The dependencies within this workspace that a crate may have. Its tests may depend on anything.
enum Arrows {
    /// Only these.
    Only(&'static [&'static str]),
    /// All except these.
    Never(&'static [&'static str]),
}

/// Each crate's dependencies, in the order in which data flows.
const ARROWS: &[(&str, Arrows)] = &[
    ("ticktax-model", Arrows::Only(&[])),
    ("ticktax-store", Arrows::Only(&["ticktax-model"])),
    (
        "ticktax-import",
        Arrows::Only(&["ticktax-model", "ticktax-store"]),
    ),
    ("ticktax-host", Arrows::Only(&["ticktax-model"])),
    (
        "ticktax-probes",
        Arrows::Only(&["ticktax-model", "ticktax-host"]),
    ),
    ("ticktax-symbols", Arrows::Only(&[])),
    (
        "ticktax-trace",
        Arrows::Only(&["ticktax-model", "ticktax-symbols"]),
    ),
    (
        "ticktax-knobs",
        Arrows::Only(&["ticktax-model", "ticktax-store"]),
    ),
    ("ticktax-fixture", Arrows::Only(&["ticktax-model"])),
    (
        "ticktax-inject",
        Arrows::Only(&["ticktax-model", "ticktax-fixture"]),
    ),
    ("ticktax-sim", Arrows::Only(&["ticktax-model"])),
    (
        "ticktax-mem",
        Arrows::Only(&["ticktax-model", "ticktax-probes", "ticktax-sim"]),
    ),
    (
        "ticktax-observe",
        Arrows::Only(&[
            "ticktax-model",
            "ticktax-host",
            "ticktax-trace",
            "ticktax-probes",
        ]),
    ),
    (
        "ticktax-storage",
        Arrows::Only(&[
            "ticktax-model",
            "ticktax-host",
            "ticktax-trace",
            "ticktax-experiment",
        ]),
    ),
    (
        "ticktax-lab",
        Arrows::Only(&["ticktax-model", "ticktax-store", "ticktax-host"]),
    ),
    (
        "ticktax-experiment",
        Arrows::Only(&["ticktax-model", "ticktax-analysis", "ticktax-sim"]),
    ),
    (
        "ticktax-predict",
        Arrows::Only(&[
            "ticktax-model",
            "ticktax-store",
            "ticktax-analysis",
            "ticktax-experiment",
            "ticktax-import",
            "ticktax-probes",
            "ticktax-sim",
        ]),
    ),
    (
        "ticktax-casebook",
        Arrows::Only(&[
            "ticktax-model",
            "ticktax-store",
            "ticktax-experiment",
            "ticktax-host",
            "ticktax-predict",
            "ticktax-probes",
            "ticktax-sim",
        ]),
    ),
    (
        "ticktax-traffic",
        Arrows::Only(&[
            "ticktax-model",
            "ticktax-analysis",
            "ticktax-experiment",
            "ticktax-host",
            "ticktax-probes",
        ]),
    ),
    (
        "ticktax-trial",
        Arrows::Only(&[
            "ticktax-model",
            "ticktax-store",
            "ticktax-analysis",
            "ticktax-experiment",
            "ticktax-host",
            "ticktax-import",
            "ticktax-knobs",
            "ticktax-observe",
            "ticktax-probes",
        ]),
    ),
    ("ticktax-beats", Arrows::Only(&["ticktax-model"])),
    (
        "ticktax-analysis",
        Arrows::Only(&["ticktax-model", "ticktax-beats"]),
    ),
    ("ticktax-report", Arrows::Only(&["ticktax-model"])),
    (
        "ticktax",
        Arrows::Never(&[
            "xtask",
            "ticktax-bench",
            "ticktax-fixture",
            "ticktax-inject",
        ]),
    ),
    ("ticktax-bench", Arrows::Never(&["xtask"])),
    (
        "ticktax-fuzz",
        Arrows::Never(&["xtask", "ticktax-bench", "ticktax-inject"]),
    ),
    ("xtask", Arrows::Only(&[])),
];

/// Crates that forbid unsafe code, by directory name.
const WITHOUT_UNSAFE: &[&str] = &[
    "analysis",
    "beats",
    "casebook",
    "experiment",
    "host",
    "import",
    "mem",
    "model",
    "observe",
    "predict",
    "report",
    "sim",
    "store",
    "symbols",
    "trial",
];

/// Crates that may have unsafe code in `sys.rs` or in a directory called `sys`, by directory name.
const WITH_UNSAFE: &[&str] = &["inject", "knobs", "lab", "probes", "trace", "traffic"];

const MAX_LINES: usize = 600;

#[test]
fn dependencies_follow_the_arrows() {
    let manifests: Vec<Manifest> = packages()
        .iter()
        .map(|folder| Manifest::read(folder))
        .collect();
    let ours: BTreeSet<&str> = manifests
        .iter()
        .map(|manifest| manifest.name.as_str())
        .collect();
    let rows: BTreeMap<&str, &Arrows> = ARROWS.iter().map(|(name, row)| (*name, row)).collect();
    let mut wrong = Vec::new();
    for Manifest { name, dependencies } in &manifests {
        let Some(row) = rows.get(name.as_str()) else {
            wrong.push(format!("{name} has no row in ARROWS"));
            continue;
        };
        for other in dependencies
            .iter()
            .map(String::as_str)
            .filter(|other| ours.contains(other))
        {
            let allowed = match row {
                Arrows::Only(names) => names.contains(&other),
                Arrows::Never(names) => !names.contains(&other),
            };
            if !allowed {
                wrong.push(format!("{name} depends on {other}"));
            }
        }
    }
    report(&wrong);
}

/// Crates that leave all I/O to their callers, by directory name.
const WITHOUT_FILES: &[&str] = &["analysis", "model", "report"];

/// Modules that those crates may use only in their tests.
const FILES: &[&str] = &["std::fs", "std::env", "std::net", "std::process"];

#[test]
fn crates_without_files_open_none() {
    let mut wrong = Vec::new();
    for file in sources("rs") {
        let path = shown(&file);
        let parts: Vec<&str> = path.split('/').collect();
        let is_test = parts
            .iter()
            .any(|part| matches!(*part, "tests" | "tests.rs"));
        let ["crates", package, "src", ..] = &parts[..] else {
            continue;
        };
        if is_test || !WITHOUT_FILES.contains(package) {
            continue;
        }
        let text = read(&file);
        let product = text.split("#[cfg(test)]\nmod tests {").next();
        let product = code_of(product.unwrap_or_default());
        let used = FILES.iter().filter(|word| product.contains(**word));
        wrong.extend(used.map(|word| format!("{path} uses {word}")));
    }
    report(&wrong);
}

#[test]
fn unsafe_code_is_only_in_permitted_files() {
    let mut wrong = Vec::new();
    for name in WITHOUT_UNSAFE {
        let file = root().join("crates").join(name).join("src/lib.rs");
        let Ok(text) = fs::read_to_string(&file) else {
            wrong.push(format!("{} cannot be read", file.display()));
            continue;
        };
        if !text.contains("#![forbid(unsafe_code)]") {
            wrong.push(format!(
                "crates/{name}/src/lib.rs lacks #![forbid(unsafe_code)]"
            ));
        }
    }
    for file in sources("rs") {
        let text = read(&file);
        let code = code_of(&text);
        let words: Vec<&str> = code
            .split(|c: char| !c.is_alphanumeric() && c != '_' && c != '{')
            .filter(|word| !word.is_empty())
            .collect();
        if !words.iter().any(|word| is_unsafe(word)) {
            continue;
        }
        let path = shown(&file);
        if !may_be_unsafe(&path) {
            wrong.push(format!("{path} has unsafe code"));
        }
        let claims = words
            .windows(2)
            .filter(|pair| is_claim(pair[0], pair[1]))
            .count();
        let reasons = text
            .lines()
            .filter(|line| line.trim().starts_with("// SAFETY:"))
            .count();
        if reasons < claims {
            wrong.push(format!(
                "{path}: {claims} unsafe blocks and impls, {reasons} SAFETY lines"
            ));
        }
    }
    report(&wrong);
}

/// Returns the part of `word` after the keyword `unsafe`. Returns `None` if the word does not start
/// with that keyword.
fn after_unsafe(word: &str) -> Option<&str> {
    let rest = word.strip_prefix("unsafe")?;
    (rest.is_empty() || rest.starts_with('{')).then_some(rest)
}

fn is_unsafe(word: &str) -> bool {
    after_unsafe(word).is_some()
}

/// Returns whether two words start an unsafe block or an unsafe impl, whose author claims that it
/// is sound. By contrast, an `unsafe fn` or an `unsafe trait` states requirements for its users.
fn is_claim(word: &str, next: &str) -> bool {
    let begins = |rest: &str| !rest.is_empty() || next.starts_with('{') || next == "impl";
    after_unsafe(word).is_some_and(begins)
}

fn may_be_unsafe(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let ["crates" | "testing", package, "src", inner @ ..] = &parts[..] else {
        return false;
    };
    WITH_UNSAFE.contains(package) && inner.iter().any(|part| *part == "sys" || *part == "sys.rs")
}

/// Source files that may start programs without `ticktax_host::helper`, which makes root look for
/// programs only in a fixed PATH.
const STARTS_PROGRAMS: &[&str] = &[
    // The helpers themselves.
    "crates/host/src/helper.rs",
    // The audited command.
    "crates/observe/src/command.rs",
    // These files start ticktax itself, by its path, and the command of a trial.
    "crates/trial/src/run/held.rs",
    // A shell command that the user gave, in a shell with a fixed path.
    "crates/trial/src/run/before.rs",
    "crates/ticktax/src/trial.rs",
    // Programs that run inside a guest.
    "crates/lab/src/guest.rs",
];

#[test]
fn root_starts_helper_programs_by_a_fixed_path() {
    let mut wrong = Vec::new();
    for file in sources("rs") {
        let name = shown(&file);
        let is_product = name.starts_with("crates/") && name.contains("/src/");
        if !is_product || STARTS_PROGRAMS.contains(&name.as_str()) {
            continue;
        }
        let text = read(&file);
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        if code_of(product).contains("Command::new(") {
            wrong.push(format!("{name} starts a program: use ticktax_host::helper"));
        }
    }
    report(&wrong);
}

#[test]
fn every_file_of_tests_is_tested() {
    let mut wrong = Vec::new();
    // A fuzz target has no `main`, so it cannot have tests.
    let tested = |package: &PathBuf| !package.ends_with("testing/fuzz");
    for package in packages().into_iter().filter(tested) {
        let manifest = package.join("Cargo.toml");
        for line in read(&manifest).lines().map(|line| line.replace(' ', "")) {
            if line == "autotests=false" || line == "test=false" {
                wrong.push(format!("{} leaves tests out: {line}", shown(&manifest)));
            }
        }
        let tests = package.join("tests");
        let mut reached = BTreeSet::new();
        for path in entries(&tests) {
            if path.extension().is_some_and(|extension| extension == "rs") {
                reach(&path, &tests, &mut reached);
            } else if path.join("main.rs").is_file() {
                reach(&path.join("main.rs"), &path, &mut reached);
            }
        }
        let unreached = files(&tests).into_iter().filter(|file| {
            file.extension().is_some_and(|extension| extension == "rs") && !reached.contains(file)
        });
        wrong.extend(unreached.map(|file| format!("{} belongs to no test", shown(&file))));
    }
    report(&wrong);
}

/// Returns the file named by the `path` attribute of a module in `file`.
fn resolved(file: &Path, path: &str) -> PathBuf {
    let mut found = file.parent().unwrap_or(file).to_owned();
    for part in Path::new(path) {
        if part == ".." {
            found.pop();
        } else {
            found.push(part);
        }
    }
    found
}

/// Adds a file and the modules it declares to `reached`. `folder` is the directory that contains
/// those modules.
fn reach(file: &Path, folder: &Path, reached: &mut BTreeSet<PathBuf>) {
    if !reached.insert(file.to_owned()) {
        return;
    }
    let text = read(file);
    for line in text.lines() {
        // `code_of` would remove the string, so search the raw text.
        let path = line.trim().strip_prefix("#[path = \"");
        if let Some(path) = path.and_then(|path| path.strip_suffix("\"]")) {
            let module = resolved(file, path);
            let inner = module.parent().unwrap_or(folder).to_owned();
            reach(&module, &inner, reached);
        }
    }
    let code = code_of(&text);
    for line in code.lines() {
        let Some((_, name)) = line.trim().trim_end_matches(';').rsplit_once("mod ") else {
            continue;
        };
        let inner = folder.join(name);
        for module in [folder.join(format!("{name}.rs")), inner.join("mod.rs")] {
            if module.is_file() {
                reach(&module, &inner, reached);
            }
        }
    }
}

#[test]
fn no_file_is_too_long() {
    let mut wrong = Vec::new();
    for file in ["rs", "c", "h"].into_iter().flat_map(sources) {
        let text = read(&file);
        let lines = text.lines().count();
        // A generated file cannot be shortened by hand.
        let is_generated = text
            .lines()
            .take(3)
            .any(|line| line.starts_with("//! Generated by"));
        if lines > MAX_LINES && !is_generated {
            wrong.push(format!(
                "{} has {lines} lines, {MAX_LINES} at most",
                shown(&file)
            ));
        }
    }
    report(&wrong);
}

/// Fails if there are violations, and lists them all.
fn report(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
