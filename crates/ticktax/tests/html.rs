//! `--html`: writes a page for every document that does not need root, and opens the pages in
//! Chromium.
//!
//! The browser tests need Chromium, and Node with the packages in `tests/browser` (`npm ci` there).
//! Without them, tests named `browser::…` are reported as ignored.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use ticktax_fixture::{books, header, left_out, process, row, timed_trial, whole};
use ticktax_model::document::Document;
use ticktax_model::kernels::{KernelBuild, KernelsStatement};
use ticktax_model::recording::RowSink;
use ticktax_model::{Kind, Owner, Source, SourceTable};
use ticktax_report::HtmlPage;
use ticktax_store::recording::RecordingWriter;
use ticktax_trial::judge;

use common::traffic::receiver;
use common::{GAME, complaint, simulate, text, ticktax};

const CHECK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/check.mjs");

fn main() -> ExitCode {
    let found = Command::new("node").args([CHECK, "available"]).output();
    let is_available = found.is_ok_and(|output| output.status.success());
    // The browser tests take minutes, so they run only in their own test tier.
    let left_out = left_out("browser");
    let in_browser = |trial: Trial| {
        let why = if is_available {
            left_out.clone()
        } else {
            Some("needs Chromium".to_owned())
        };
        trial
            .with_ignored_flag(why.is_some())
            .with_kind(why.unwrap_or_default())
    };
    let mut trials = vec![
        trial("every_document_has_a_page", every_document_has_a_page),
        trial("a_page_needs_a_file", a_page_needs_a_file),
        trial("failed_runs_leave_no_page", failed_runs_leave_no_page),
    ];
    let made = Arc::new(OnceLock::new());
    for (name, check) in [
        ("browser::pages_render_and_fetch_nothing", "render"),
        ("browser::pages_are_for_everybody", "access"),
        ("browser::pages_fit_a_phone", "phone"),
        ("browser::pages_can_be_printed", "print"),
        ("browser::timelines_go_down_to_a_microsecond", "timeline"),
    ] {
        let made = Arc::clone(&made);
        trials.push(in_browser(Trial::test(name, move || {
            run_check(check, &made.get_or_init(Pages::new).files)
        })));
    }
    let large = Trial::test("browser::a_timeline_may_have_a_million_spans", large);
    trials.push(in_browser(large));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, run: fn()) -> Trial {
    Trial::test(name, move || {
        run();
        Ok(())
    })
}

/// A directory with input files for all verbs.
struct Things {
    folder: tempfile::TempDir,
    incidents: tempfile::TempDir,
}

impl Things {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let incidents = common::incidents::folder();
        let things = Self { folder, incidents };
        fs::write(things.path("game.toml"), GAME.replace("30s", "4s")).unwrap();
        simulate(&things.path("game.toml"), &things.path("game.parquet"));
        hostile(&things.path("hostile.parquet"));
        fs::write(things.path("a.txt"), "1\n2\n3\n4\n5\n6\n7\n9\n").unwrap();
        fs::write(things.path("b.txt"), "11\n12\n13\n14\n15\n16\n17\n19\n").unwrap();
        things
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns command lines, each with the name of the document that it prints.
    fn commands(&self) -> Vec<(&'static str, Vec<String>)> {
        let line = |name, line: &str| {
            let word = |word: &str| match word.strip_prefix('@') {
                Some("incidents") => self.incidents.path().to_string_lossy().into_owned(),
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
            line(
                "pace",
                "pace --rate 200 --work 200us --for 1s --save @loop.parquet",
            ),
            line(
                "comparison",
                "pace --rate 200 --work 200us --for 400ms --vary sleep=nanosleep,timerfd",
            ),
            line("comparison", "compare @game.parquet @game.parquet"),
            line("comparison", "compare @a.txt @b.txt"),
            line(
                "comparison",
                "sim --load @game.toml --resample 1 --vary hz=100",
            ),
            line(
                "comparison",
                "sweep @game.toml --vary hz=100,250 --results @sweep.parquet",
            ),
            line(
                "comparison",
                "sweep @game.toml --vary hz=100,250,1000 --results @ranked.parquet --best task.game.fps",
            ),
            line("cases", "case list"),
            line("case-sheet", "case show tcp-cpu-cost"),
            line("case", "case run tcp-cpu-cost"),
            line("case", "case run frame-rate-vs-hz"),
            line("case", "case run every-30.999-seconds"),
            line("case-fit", "case fit idle-cost-vs-hz"),
            line("kernels", "lab list"),
            line("incidents", "incidents list --dir @incidents"),
            line("incident", "incidents show 1 --dir @incidents"),
            line("knobs", "knob list"),
            line("knob", "knob show vm.swappiness"),
            line("knob-readings", "knob get vm.swappiness"),
            line("undo", "undo --journal @knobs.journal"),
        ]
    }

    fn pages(&self) -> Vec<(&'static str, PathBuf)> {
        let pages = self.commands().into_iter().enumerate();
        let pages = pages.map(|(place, (name, arguments))| {
            let page = self.path(&format!("{place}-{name}.html"));
            let html = ["--html", page.to_str().unwrap()];
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let output = ticktax(&[&*arguments, &html].concat());
            let errors = text(&output.stderr);
            assert!(
                errors.contains("open it in a browser"),
                "{arguments:?}: {errors}"
            );
            (name, page)
        });
        pages
            .chain(self.traffic())
            .chain(self.without_verbs())
            .collect()
    }

    fn traffic(&self) -> Vec<(&'static str, PathBuf)> {
        let pages = ["received.html", "sent.html"].map(|name| self.path(name));
        let [received, sent] = pages.each_ref().map(|page| page.to_str().unwrap());
        let (child, address) = receiver(&["--html", received]);
        let output = ticktax(&[
            "net",
            "send",
            &address,
            "--untraced",
            "--for",
            "300ms",
            "--html",
            sent,
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        pages.into_iter().map(|page| ("net", page)).collect()
    }

    /// Creates the pages for documents whose verbs need root or guests.
    fn without_verbs(&self) -> Vec<(&'static str, PathBuf)> {
        let slots: Vec<(u64, u64, usize)> = (0..8)
            .flat_map(|block| {
                [0, 1, 1, 0]
                    .into_iter()
                    .enumerate()
                    .map(move |slot| (block, slot))
            })
            .map(|(block, (place, arm))| (block, place as u64, arm))
            .collect();
        let times: Vec<f64> = (0..slots.len())
            .map(|run| 2e9 + 1e7 * ((run * 7) % 5) as f64)
            .collect();
        let documents: [Document; 4] = [
            judge(timed_trial(&slots, &times, 0.1), &[], "0").into(),
            ticktax_fixture::comparison(LOOPS.as_bytes())
                .unwrap()
                .into(),
            serde_json::from_str::<KernelsStatement>(ON_KERNELS)
                .unwrap()
                .into(),
            serde_json::from_str::<KernelBuild>(BUILT).unwrap().into(),
        ];
        let write = |(place, document): (usize, &Document)| {
            let name = document.kind().name();
            let page = self.path(&format!("made-{place}-{name}.html"));
            fs::write(&page, HtmlPage::default().finish(document)).unwrap();
            (name, page)
        };
        documents.iter().enumerate().map(write).collect()
    }
}

/// A loop on two kernels, compared with the model of each.
const LOOPS: &str = r#"{
    "tool_version": "0", "machine": null, "began_unix_s": null,
    "experiment": {
        "kind": "kernels", "verb": "pace --rate 35", "clock": {"kind": "host"},
        "tolerance": {"rate_share": 0.01, "wait_period_share": 0.01, "sampled_share": 0.005},
        "published": [{"hz": 200, "rate_hz": 29.0, "shown_share": 0.005}]
    },
    "metrics": [{"id": "fps", "unit": "hz", "better": "higher"}, {"id": "late_mean_ns", "unit": "ns", "better": "lower"}],
    "arms": [
        {"label": "", "origin": "measured", "runs": 0, "failed": 0, "figures": [{"value": 35.0}, {"value": 81000.0}],
         "settings": [{"name": "kernel", "value": "hz250"}, {"name": "cmdline", "value": "nohz=off"}]},
        {"label": "", "origin": "predicted", "runs": 0, "failed": 0,
         "figures": [{"value": null, "interval": [34.9, 35.1]}, {"value": null, "interval": [60000.0, 120000.0]}],
         "settings": [{"name": "kernel", "value": "hz250"}, {"name": "cmdline", "value": "nohz=off"}]},
        {"label": "", "origin": "measured", "runs": 0, "failed": 0, "figures": [{"value": 33.1}, null],
         "settings": [{"name": "kernel", "value": "<b>hz1000"}, {"name": "cmdline", "value": ""}]}
    ],
    "effects": [
        {"metric": 0, "base": 1, "arm": 0, "scale": "absolute", "effect": {"value": 0.0, "low": 0.0, "high": 0.0},
         "corrected_probability": null, "verdict": {"id": "no-difference-beyond", "bound": 0.35}, "tolerance": 0.35}
    ]
}"#;

/// A case's results on kernels, in the publication's unit and in a different one.
const ON_KERNELS: &str = r#"{
    "head": {"name": "frames", "title": "Frames", "source": "a page", "mechanism": "rounding"},
    "release": "6.1.0", "clock": {"kind": "instructions", "each_ns": 4},
    "tables": [
        {"what": "frames", "cmdline": "nohz=off", "unit": "1/s", "kernel_unit": "1/s", "expectation": "the model of this kernel",
         "allowed": {"of": 0.5},
         "rows": [
            {"hz": 1000, "published": [33.8, 33.8], "modelled": 34.01, "expected": [35.6, 35.7], "fit": true, "kernel": 35.61},
            {"hz": 200, "published": [29.0, 29.5], "modelled": 28.57, "expected": [33.3, 33.4], "fit": false, "kernel": 30.1}]},
        {"what": "an idle guest", "cmdline": "", "unit": "MHz", "kernel_unit": "instructions a second",
         "expectation": "a straight line", "allowed": null,
         "rows": [{"hz": 100, "published": [20.0, 20.0], "modelled": null, "expected": null, "fit": false, "kernel": 169000.0}]}
    ],
    "remarks": []
}"#;

/// A kernel that was compiled, and one that was in the cache.
const BUILT: &str = r#"{
    "source": "<b>linux-source", "config": "rt.config",
    "kernels": [
        {"name": "hz1000+rt", "release": "6.1.170", "hz": 1000, "origin": "linux-6.1.170-0123456789ab built as ba9876543210",
         "image": "/var/cache/ticktax/lab/kernels/hz1000+rt/vmlinuz", "compiled": true, "took_ns": 187600000000},
        {"name": "hz250+rt", "release": "6.1.170", "hz": 250, "origin": "linux-6.1.170-0123456789ab built as 0123abcd4567",
         "image": "/var/cache/ticktax/lab/kernels/hz250+rt/vmlinuz", "compiled": false, "took_ns": 2000000}
    ]
}"#;

/// Saves a recording of programs whose names contain markup and control characters.
fn hostile(recording: &Path) {
    let names = [
        "<script>window.hostile = 1</script>".to_owned(),
        "<img src=x onerror='window.hostile=1'>".to_owned(),
        "</script><script>window.hostile = 1</script>".to_owned(),
        "</td></table><h1>hostile".to_owned(),
        "\" onmouseover=\"window.hostile = 1".to_owned(),
        "\u{202e}exe.gnp\u{2066}".to_owned(),
        "שלום עולם".to_owned(),
        "x".repeat(4_096),
    ];
    let mut sources = SourceTable::default();
    let mut header = header();
    "<b>host</b>".clone_into(&mut header.machine.host);
    let length = 100_000_000;
    header
        .cpus
        .push(books(0, 0, length * i64::try_from(names.len()).unwrap()));
    let mut writer = RecordingWriter::create(recording).unwrap();
    for (place, name) in (0..).zip(&names) {
        let pid = i32::try_from(place).unwrap() + 100;
        let source = sources.intern(process(Owner::Program, name, pid));
        writer.row(&sources, &whole(0, place * length, length, source));
    }
    writer.finish(&header).unwrap();
}

/// Parses the document embedded in a page.
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
            complaint(&output).contains("HTML file") || line.ends_with('-'),
            "{line}"
        );
    }
}

fn failed_runs_leave_no_page() {
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

/// The pages of all documents, and the input files that must exist while a test uses the pages.
struct Pages {
    files: Vec<PathBuf>,
    _things: Things,
}

impl Pages {
    fn new() -> Self {
        let things = Things::new();
        let files = things.pages().into_iter().map(|(_, page)| page).collect();
        Self {
            files,
            _things: things,
        }
    }
}

fn run_check(check: &str, pages: &[PathBuf]) -> Result<(), Failed> {
    let output = Command::new("node")
        .args([CHECK, check])
        .args(pages)
        .output()?;
    let printed = text(&output.stdout) + &text(&output.stderr);
    if output.status.success() && printed.is_empty() {
        Ok(())
    } else {
        Err(printed.into())
    }
}

/// Checks the page for a million spans of threads and interrupts on two CPUs. The lengths of the
/// spans vary as in a real recording. If they were equal, the recording would be so small that its
/// page would exceed the memory budget, which depends on the recording's size.
fn large() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (recording, page) = (
        folder.path().join("large.parquet"),
        folder.path().join("large.html"),
    );
    let mut sources = SourceTable::default();
    let mut header = header();
    let irq = sources.intern(Source::kernel(Kind::Irq, "eth0", ""));
    let threads: Vec<_> = (100..108)
        .map(|pid| sources.intern(process(Owner::Program, &format!("server{pid}"), pid)))
        .collect();
    let rounds: i64 = 250_000;
    // The upper bits of Knuth's linear congruential generator.
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33).cast_signed()
    };
    header.cpus = vec![books(0, 0, rounds * 20_000), books(1, 0, rounds * 20_000)];
    let mut writer = RecordingWriter::create(&recording)?;
    for round in 0..rounds {
        for (cpu, thread) in (0..).zip(threads.iter().skip(usize::try_from(round % 7)?).take(2)) {
            let start = round * 20_000;
            let length = 1_000 + next() % 1_999;
            let at = start + next() % 17_000;
            writer.row(&sources, &whole(cpu, at, length, irq));
            writer.row(&sources, &row(cpu, start, 20_000, 20_000 - length, *thread));
        }
    }
    writer.finish(&header)?;
    let (recording, html) = (recording.to_string_lossy(), page.to_string_lossy());
    let output = ticktax(&["report", &recording, "--html", &html]);
    if !output.status.success() {
        return Err(text(&output.stderr).into());
    }
    let length = fs::metadata(&page)?.len();
    if length > 15_000_000 {
        return Err(format!("{length} bytes").into());
    }
    run_check("large", &[page])
}
