//! `--html`: a page of every document that can be had without root, and what Chromium makes of them.
//!
//! What opens pages is Node with the packages of `tests/browser` (`npm ci` there, by `package.json` and
//! `package-lock.json`) and a Chromium; where these are not
//! installed, the tests named `browser::…` are reported as ignored.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use ticktax_fixture::{books, header, process, whole};
use ticktax_model::recording::{RecordingWriter, RowSink};
use ticktax_model::{Owner, SourceTable};

use common::{GAME, complaint, simulate, text, ticktax};

/// What opens pages.
const CHECK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/check.mjs");

fn main() -> ExitCode {
    let found = Command::new("node").args([CHECK, "available"]).output();
    let is_there = found.is_ok_and(|output| output.status.success());
    let mut trials = vec![
        trial("every_document_has_a_page", every_document_has_a_page),
        trial("a_page_needs_a_file", a_page_needs_a_file),
        trial("what_fails_leaves_no_page", what_fails_leaves_no_page),
    ];
    for (name, check) in [
        ("browser::pages_render_and_fetch_nothing", "render"),
        ("browser::pages_are_for_everybody", "access"),
        ("browser::pages_fit_a_phone", "phone"),
        ("browser::pages_can_be_printed", "print"),
    ] {
        let in_browser = Trial::test(name, move || in_browser(check));
        trials.push(in_browser.with_ignored_flag(!is_there));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, run: fn()) -> Trial {
    Trial::test(name, move || {
        run();
        Ok(())
    })
}

/// A folder with what verbs are asked about.
struct Things {
    folder: tempfile::TempDir,
}

impl Things {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let things = Self { folder };
        fs::write(things.path("game.toml"), GAME.replace("30s", "4s")).unwrap();
        simulate(&things.path("game.toml"), &things.path("game.parquet"));
        hostile(&things.path("hostile.parquet"));
        fs::write(things.path("a.txt"), "1\n2\n3\n4\n5\n6\n7\n9\n").unwrap();
        fs::write(things.path("b.txt"), "11\n12\n13\n14\n15\n16\n17\n19\n").unwrap();
        fs::create_dir(things.path("incidents")).unwrap();
        things
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Command lines by the name of the document that each prints.
    fn asked(&self) -> Vec<(&'static str, Vec<String>)> {
        let line = |name, line: &str| {
            let word = |word: &str| match word.strip_prefix('@') {
                Some(file) => self.path(file).to_string_lossy().into_owned(),
                None => word.to_owned(),
            };
            (name, line.split(' ').map(word).collect())
        };
        vec![
            line("statement", "report @game.parquet --audit"),
            line("statement", "report @hostile.parquet"),
            line("pace", "report @game.parquet"),
            line("beats", "beats @game.parquet"),
            line("changes", "compare @game.parquet @game.parquet"),
            line("numbers", "compare @a.txt @b.txt"),
            line(
                "prediction",
                "sim --load @game.toml --resample 1 --vary hz=100",
            ),
            line(
                "sweep",
                "sweep @game.toml --vary hz=100,250 --results @sweep.parquet",
            ),
            line("cases", "case list"),
            line("case-sheet", "case show tcp-cpu-cost"),
            line("case", "case run tcp-cpu-cost"),
            line("incidents", "incidents list --dir @incidents"),
            line("knobs", "knob list"),
            line("knob", "knob show vm.swappiness"),
            line("knob-readings", "knob get vm.swappiness"),
            line("undo", "undo --journal @knobs.journal"),
        ]
    }

    /// The pages of all of them, by the name of their document.
    fn pages(&self) -> Vec<(&'static str, PathBuf)> {
        let made = self.asked().into_iter().enumerate();
        let made = made.map(|(place, (name, arguments))| {
            let page = self.path(&format!("{place}-{name}.html"));
            let html = ["--html", page.to_str().unwrap()];
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let output = ticktax(&[&*arguments, &html].concat());
            let said = text(&output.stderr);
            assert!(
                said.contains("open it in a browser"),
                "{arguments:?}: {said}"
            );
            (name, page)
        });
        made.collect()
    }
}

/// A recording of programs whose names would be more than names.
fn hostile(recording: &Path) {
    let names = [
        "<script>window.hostile = 1</script>".to_owned(),
        "<img src=x onerror='window.hostile=1'>".to_owned(),
        "</script><script>window.hostile = 1</script>".to_owned(),
        "</td></table><h1>hostile".to_owned(),
        "\" onmouseover=\"window.hostile = 1".to_owned(),
        "\u{202e}exe.gnp\u{2066}".to_owned(),
        "שלום עולם".to_owned(),
        "x".repeat(10_240),
    ];
    let mut sources = SourceTable::default();
    let mut header = header();
    "<b>host</b>".clone_into(&mut header.machine.host);
    let length = 100_000_000;
    header
        .books
        .push(books(0, 0, length * i64::try_from(names.len()).unwrap()));
    let mut writer = RecordingWriter::create(recording).unwrap();
    for (place, name) in (0..).zip(&names) {
        let pid = i32::try_from(place).unwrap() + 100;
        let source = sources.intern(process(Owner::Program, name, pid));
        writer.row(&sources, &whole(0, place * length, length, source));
    }
    writer.finish(&header).unwrap();
}

/// The document that a page holds.
fn data(page: &str) -> Value {
    let mark = "id=\"ticktax-document\">";
    let (_, rest) = page.split_once(mark).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn every_document_has_a_page() {
    let things = Things::new();
    for (name, path) in things.pages() {
        let page = fs::read_to_string(&path).unwrap();
        assert!(page.starts_with("<!doctype html>"), "{name}");
        assert_eq!(data(&page)["document"], name);
        for marks in ["<script>window", "<img", "onmouseover=\"window"] {
            assert!(!page.contains(marks), "{name}: {marks}");
        }
    }
    let left = fs::read_dir(things.folder.path()).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let parts: Vec<String> = left.filter(|name| name.contains(".part")).collect();
    assert!(parts.is_empty(), "{parts:?}");
}

fn a_page_needs_a_file() {
    for line in [
        "knob list --html -",
        "case list --html /nowhere/page.html",
        "knob show vm.swappiness --html /",
    ] {
        let output = ticktax(&line.split(' ').collect::<Vec<_>>());
        assert!(!output.status.success(), "{line}");
        assert!(output.stdout.is_empty(), "{line}: {}", text(&output.stdout));
        assert!(
            complaint(&output).contains("page") || line.ends_with('-'),
            "{line}"
        );
    }
}

fn what_fails_leaves_no_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    fs::write(&page, "what was there").unwrap();
    let output = ticktax(&[
        "report",
        "/nowhere.parquet",
        "--html",
        page.to_str().unwrap(),
    ]);
    assert!(!output.status.success());
    assert_eq!(fs::read_to_string(&page).unwrap(), "what was there");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Has every page checked in one browser.
fn in_browser(check: &str) -> Result<(), Failed> {
    let things = Things::new();
    let pages = things.pages().into_iter().map(|(_, page)| page);
    let output = Command::new("node")
        .args([CHECK, check])
        .args(pages)
        .output()?;
    let said = text(&output.stdout) + &text(&output.stderr);
    if output.status.success() && said.is_empty() {
        Ok(())
    } else {
        Err(said.into())
    }
}
