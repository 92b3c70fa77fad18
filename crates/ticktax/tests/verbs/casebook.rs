//! Tests for the casebook: every page must equal the one in `docs/casebook`, a user's own case must
//! work, and invalid files must be refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{complaint, text};

fn case(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktax"));
    command.arg("case").args(arguments).output().unwrap()
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// To write the pages, run `UPDATE_DOCS=1 cargo test -p ticktax --test verbs casebook`.
#[test]
fn every_page_matches_the_documentation() {
    let list = text(&case(&["list"]).stdout);
    let names = list.lines().filter_map(|line| line.split(' ').next());
    let mut other = Vec::new();
    let mut count = 0;
    for name in names {
        let output = case(&["run", name]);
        assert!(output.status.success(), "{name}");
        let page = text(&output.stdout);
        let file = docs().join("casebook").join(format!("{name}.txt"));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::create_dir_all(docs().join("casebook")).unwrap();
            fs::write(&file, &page).unwrap();
        } else if fs::read_to_string(&file).unwrap_or_default() != page {
            other.push(name.to_owned());
        }
        count += 1;
    }
    assert_eq!(count, 6, "{list}");
    assert!(other.is_empty(), "not as in docs/casebook: {other:?}");
}

/// Each page opens with its title and five lines, which fit in 100 columns. All figures of the
/// model must be filled in.
#[test]
fn every_page_opens_with_five_lines() {
    let pages = fs::read_dir(docs().join("casebook")).unwrap();
    let mut count = 0;
    for page in pages {
        let page = fs::read_to_string(page.unwrap().path()).unwrap();
        let lines: Vec<&str> = page.lines().skip(1).take(6).collect();
        let names = [
            "Claim ",
            "Verdict ",
            "Model ",
            "Kernel ",
            "Today ",
            "  Source: ",
        ];
        for (line, name) in lines.iter().zip(names) {
            assert!(line.starts_with(name), "{page}");
        }
        for line in page.lines().take(6) {
            assert!(line.chars().count() <= 100, "{line}");
        }
        assert!(!page.contains(" @ "), "{page}");
        count += 1;
    }
    assert_eq!(count, 6);
}

/// The figures in a page's line about a real kernel must be in the results of the lab.
#[test]
fn figures_of_real_kernels_are_results_of_the_lab() {
    let lab = fs::read_to_string(docs().join("lab-cases.txt")).unwrap();
    let is_digit = |text: char| text.is_ascii_digit() || text == '.';
    let figures = |text: &str| -> Vec<String> {
        let words = text.split(|character| !is_digit(character));
        let words = words.map(|word| word.trim_matches('.').to_owned());
        words.filter(|word| !word.is_empty()).collect()
    };
    let known = figures(&lab);
    for name in ["frame-rate-vs-hz", "idle-cost-vs-hz"] {
        let file = docs().join("casebook").join(format!("{name}.txt"));
        let page = fs::read_to_string(file).unwrap();
        let line = page
            .lines()
            .find(|line| line.starts_with("Kernel "))
            .unwrap();
        let (_, results) = line.split_once("Linux 6.1").unwrap();
        let used: Vec<String> = figures(results);
        assert!(used.len() >= 4, "{line}");
        // The tick rate is in the page as well, as a label.
        for figure in used {
            assert!(known.contains(&figure), "{figure} in {line}");
        }
    }
}

/// Writes the two files in the documentation's worked example: a scenario and a case. Returns the
/// path of the case.
fn worked_example(folder: &Path) -> PathBuf {
    let page = fs::read_to_string(docs().join("reference/case.md")).unwrap();
    let blocks = page.split("```toml\n").skip(1);
    let files: Vec<&str> = blocks
        .map(|block| block.split_once("```").unwrap().0)
        .collect();
    assert_eq!(files.len(), 2);
    fs::write(folder.join("server.toml"), files[0]).unwrap();
    let case = folder.join("my-server.toml");
    fs::write(&case, files[1]).unwrap();
    case
}

#[test]
fn the_worked_example_matches_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let example = worked_example(folder.path());
    let example = example.to_str().unwrap();
    let output = case(&["run", example]);
    let page = text(&output.stdout);
    assert!(output.status.success(), "{page}");
    assert!(page.contains("4 of 4 predicted rows match"), "{page}");
    let fitted = case(&["fit", example]);
    assert!(fitted.status.success());
    let fitted = text(&fitted.stdout);
    assert!(
        fitted.contains("5.03") && fitted.contains("the file has 5"),
        "{fitted}"
    );
    let shown = case(&["show", example, "--format", "json"]);
    assert!(shown.status.success());
}

#[test]
fn the_documented_scenario_runs() {
    let page = fs::read_to_string(docs().join("reference/scenario.md")).unwrap();
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (scenario, _) = rest.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("documented.toml");
    fs::write(&path, scenario).unwrap();
    let results = folder.path().join("points.parquet");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktax"));
    let command = command
        .arg("sweep")
        .arg(&path)
        .arg("--results")
        .arg(&results);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(results.exists());
}

#[test]
fn tcp_is_measured_on_this_machine_with_here() {
    let output = case(&["run", "tcp-cpu-cost", "--here"]);
    let page = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (_, measured) = page.split_once("Measured on this machine").unwrap();
    assert!(
        measured.trim_start().starts_with("TCP over loopback: "),
        "{page}"
    );
    assert!(measured.contains(" cycles per byte"), "{page}");
    let output = case(&["run", "silent-rtc", "--here"]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("omit --here"), "{error}");
}

/// Tries a missing file, a directory, a text file, and a document of a different kind. All of them
/// must be refused.
#[test]
fn invalid_traffic_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("text"), "once upon a time").unwrap();
    let list = case(&["list", "--format", "json"]).stdout;
    fs::write(path("list"), list).unwrap();
    for (name, hint) in [
        ("nowhere", "no such file"),
        ("", "directory"),
        ("text", "not JSON output of `ticktax net`"),
        ("list", "not JSON output of `ticktax net`"),
    ] {
        let output = case(&["run", "tcp-cpu-cost", "--traffic", &path(name)]);
        let error = complaint(&output);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(
            error.contains(hint) && error.contains("--format json"),
            "{error}"
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn invalid_cases_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let example = fs::read_to_string(worked_example(folder.path())).unwrap();
    let broken = [
        ("", "missing field `name`"),
        ("name = ", "my.toml:1: "),
        ("title", "missing field `title`"),
        ("[model]", "no [model]"),
        ("hz", "herz"),
        ("task.game.fps", "no column `nothing`"),
        ("value = 31.3", "a value"),
        ("sets = \"task.game.work\"", "must have `sets`"),
        ("100 / 8", "is not a formula"),
        ("server.toml", "no such file"),
        ("5ms ± 500us", "is longer than 24h"),
        ("rows = [", "give at most 1000"),
        ("a pipe", "is not a regular file"),
    ];
    nix::unistd::mkfifo(&folder.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (place, (from, what)) in broken.into_iter().enumerate() {
        let text_of = match from {
            "" => String::new(),
            "name = " => "name = ".to_owned(),
            "title" => example.replace("title = ", "# "),
            "[model]" => {
                let (before, after) = example.split_once("[model]").unwrap();
                let (_, after) = after.split_once("row = \"hz\"").unwrap();
                format!("{before}{after}").replace("measure", "# measure")
            }
            "hz" => example.replace("row = \"hz\"", "row = \"herz\""),
            "task.game.fps" => example.replace(from, "nothing"),
            "value = 31.3" => example.replace(from, "value = 31.3, range = [1, 2]"),
            "sets = \"task.game.work\"" => example.replace(from, ""),
            "100 / 8" => example.replace(from, "100 /"),
            "5ms ± 500us" => {
                let scenario = fs::read_to_string(folder.path().join("server.toml")).unwrap();
                let long = scenario.replace("20s", "1000h");
                fs::write(folder.path().join("long.toml"), long).unwrap();
                example.replace("server.toml", "long.toml")
            }
            "rows = [" => {
                let row = |n| format!("  {{ at = \"{n}\" }},\n");
                let rows: Vec<String> = (1_001..21_001).map(row).collect();
                let rows = rows.concat();
                example.replacen(from, &format!("{from}\n{rows}"), 1)
            }
            "a pipe" => example.replace("server.toml", "pipe"),
            _ => example.replace(from, "gone.toml"),
        };
        let path = folder.path().join("my.toml");
        fs::write(&path, text_of).unwrap();
        let output = case(&["run", path.to_str().unwrap()]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{place}: {error}");
        assert!(error.contains(what), "{place}: {error}");
        assert_eq!(error.lines().count(), 1, "{place}: {error}");
    }
    let error = text(&case(&["run", "frame-rate"]).stderr);
    assert!(error.contains("unknown case `frame-rate`"), "{error}");
    let error = text(&case(&["run", folder.path().to_str().unwrap()]).stderr);
    assert!(error.contains("is a directory"), "{error}");
    let error = text(&case(&["run", "gone.toml"]).stderr);
    assert!(error.contains("gone.toml: no such file"), "{error}");
}
