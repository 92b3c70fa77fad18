//! Tests that `MODULES` lists all modules of the Python script that checks a statement against the
//! rows of its recording. Also tests that the versions of the script's dependencies are pinned.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// Names of the script's modules, except for the one that is run directly.
const MODULES: [&str; 10] = [
    "accounting",
    "beats",
    "books",
    "noise",
    "paced",
    "pages",
    "realtime",
    "rows",
    "victim",
    "waits",
];

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/witness"))
}

fn read(file: &str) -> String {
    fs::read_to_string(folder().join(file)).expect(file)
}

/// Returns the script's modules that are imported by a module with the source code `text`.
fn imports(text: &str) -> BTreeSet<&str> {
    let words = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let verb = words.next()?;
        matches!(verb, "import" | "from").then(|| words.next())?
    });
    words.filter(|name| MODULES.contains(name)).collect()
}

#[test]
fn every_module_is_part_of_the_check() {
    let files = fs::read_dir(folder()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let found: BTreeSet<String> = names
        .filter(|name| name.strip_suffix(".py").is_some())
        .collect();
    let listed: BTreeSet<String> = MODULES.iter().map(|name| format!("{name}.py")).collect();
    let run = "check.py".to_owned();
    assert_eq!(found, listed.iter().cloned().chain([run]).collect());
    let check = read("check.py");
    let texts: Vec<String> = listed.iter().map(|file| read(file)).collect();
    let mut reached = imports(&check);
    for text in &texts {
        reached.extend(imports(text));
    }
    assert_eq!(reached, MODULES.into());
}

#[test]
fn dependencies_are_pinned() {
    let needs = read("requirements.txt");
    assert!(needs.lines().count() >= 2, "{needs}");
    for line in needs.lines() {
        assert!(line.contains("=="), "{line}");
    }
}
