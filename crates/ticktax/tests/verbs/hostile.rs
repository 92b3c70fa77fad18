//! Tests for recordings from untrusted sources. Each one must either be shown within its memory
//! limit or be refused in one line.
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use ticktax_model::hook::Hook;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{
    CpuInterval, Edge, Effect, Header, Level, Row, RowSink, Sum, World,
};
use ticktax_model::{
    Cpu, CpuList, Histogram, Kind, Nanos, Owner, Source, SourceId, SourceTable, Span, Thread,
};
use ticktax_store::recording::RecordingWriter;

const MIB: u64 = 1 << 20;
/// Memory that a process can allocate between two checks of its limit.
const SLACK: u64 = 8 * MIB;

struct Recording {
    sources: SourceTable,
    rows: Vec<Row>,
    header: Header,
}

impl Recording {
    /// Starts a recording of one CPU that lasts one second.
    fn new() -> Self {
        let mut header = Header::new(World::Live, Level::Kernel, "0.1.0");
        header.coverage.attached = Hook::ALL.to_vec();
        header.machine.online = CpuList::first(1);
        header.machine.hz_configured = Some(250);
        header.cpus = vec![books(0, Nanos::from_secs(1))];
        header.after.at = Nanos::from_secs(1);
        Self {
            sources: SourceTable::default(),
            rows: Vec::new(),
            header,
        }
    }

    fn thread(&mut self, tid: i32, name: &str) -> SourceId {
        self.sources.intern(Source {
            kind: Kind::Task,
            owner: Owner::Program,
            name: name.into(),
            detail: "".into(),
            thread: Some(Thread {
                pid: tid,
                tid,
                program: name.into(),
            }),
        })
    }

    fn span(&mut self, cpu: u32, start: i64, dur: i64, source: SourceId) {
        self.rows.push(Row::Span(span(cpu, start, dur, source)));
    }

    fn save(&self, path: &Path) {
        let mut writer = RecordingWriter::create(path).unwrap();
        for row in &self.rows {
            writer.row(&self.sources, row);
        }
        writer.finish(&self.header).unwrap();
    }
}

fn books(cpu: u32, end: Nanos) -> CpuInterval {
    CpuInterval {
        cpu: Cpu(cpu),
        begin: Nanos::ZERO,
        end,
    }
}

fn span(cpu: u32, start: i64, dur: i64, source: SourceId) -> Span {
    Span {
        cpu: Cpu(cpu),
        start: Nanos(start),
        dur: Nanos(dur),
        self_time: Nanos(dur),
        source,
    }
}

/// Runs ticktax with these arguments. Returns its output and its peak memory.
fn measured(arguments: &[&str]) -> (Output, u64) {
    let child = Command::new(env!("CARGO_BIN_EXE_ticktax"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let watch = thread::spawn(move || {
        let mut most = 0;
        while let Some(now) = allocated(&status) {
            most = most.max(now);
            thread::sleep(Duration::from_millis(1));
        }
        most
    });
    let output = child.wait_with_output().unwrap();
    (output, watch.join().unwrap())
}

/// Returns the memory that a process has allocated, in bytes, or `None` if the process has exited.
/// `status` is the path of its status file. Pages of files do not count: those of the program
/// itself do not depend on the input.
fn allocated(status: &str) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find(|line| line.starts_with("RssAnon:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Runs every command that reads a recording. Each one must stay within its memory limit, and print
/// either the result or a one-line error.
fn check_recording(name: &str, recording: &Recording) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    recording.save(&path);
    check_file(name, &path);
}

#[expect(clippy::print_stdout, reason = "prints the figures with --nocapture")]
fn check_file(name: &str, path: &Path) {
    let size = fs::metadata(path).unwrap().len();
    let page = path.with_extension("html");
    let (file, page) = (path.to_str().unwrap(), page.to_str().unwrap());
    for (arguments, files) in [
        (&["report", file][..], 1),
        (&["report", "--full", "--html", page, file], 1),
        (&["beats", file], 1),
        (&["compare", file, file], 2),
        (
            &["sim", "--for", "50ms", "--resample", "1", "--load", file],
            1,
        ),
    ] {
        let (output, most) = measured(arguments);
        let base = if arguments[0] == "sim" { 1024 } else { 64 };
        let budget = base * MIB + 20 * size * files;
        let errors = String::from_utf8(output.stderr).unwrap();
        let code = output.status.code();
        println!(
            "{name}: {} KiB, {}: {} of {} MiB, exit {code:?} {}",
            size / 1024,
            arguments[..arguments.len().min(2)]
                .join(" ")
                .replace(file, ""),
            most / MIB,
            budget / MIB,
            errors.lines().last().unwrap_or_default(),
        );
        assert!(
            most <= budget + SLACK,
            "{name}: {most} bytes, may take {budget}"
        );
        assert!(matches!(code, Some(0 | 1 | 3)), "{name}: {code:?} {errors}");
        if code == Some(1) {
            assert_eq!(errors.lines().count(), 1, "{name}: {errors}");
            assert!(errors.starts_with("ticktax: "), "{name}: {errors}");
        }
    }
}

#[test]
fn many_threads() {
    let mut recording = Recording::new();
    for tid in 1..20_000 {
        let source = recording.thread(tid, &format!("t{tid}"));
        recording.span(0, i64::from(tid) * 30_000, 30_000, source);
    }
    check_recording("threads", &recording);
}

#[test]
fn many_threads_that_wait_for_each_other() {
    let mut recording = Recording::new();
    let first = recording.thread(1, "first");
    recording.span(0, 0, 1_000, first);
    for tid in 2..1_500 {
        let edge = Edge::new(Cpu(0), Nanos(1_000), first, Effect::Woke(tid));
        recording.rows.push(Row::Edge(edge));
    }
    for tid in 2..1_500 {
        let source = recording.thread(tid, &format!("t{tid}"));
        recording.span(0, i64::from(tid) * 1_000, 1_000, source);
    }
    check_recording("waits", &recording);
}

#[test]
fn every_cpu_that_can_exist() {
    let mut recording = Recording::new();
    let idle = recording.sources.intern(Source::idle());
    recording.header.cpus = (0..8_192)
        .map(|cpu| books(cpu, Nanos::from_secs(1)))
        .collect();
    for cpu in 0..8_192 {
        recording.span(cpu, 0, 1_000_000_000, idle);
    }
    check_recording("cpus", &recording);
}

#[test]
fn many_sources_on_the_last_cpu() {
    let mut recording = Recording::new();
    for number in 0..8_000 {
        let source = Source::kernel(Kind::Irq, &format!("i{number}"), "f");
        let source = recording.sources.intern(source);
        recording.span(8_191, number * 1_000, 1_000, source);
    }
    check_recording("last CPU", &recording);
}

#[test]
fn many_rows_in_few_bytes() {
    let mut recording = Recording::new();
    let (a, b) = (recording.thread(1, "a"), recording.thread(2, "b"));
    for row in 0..60_000 {
        let (on, woken) = if row % 2 == 0 { (a, 2) } else { (b, 1) };
        recording.span(0, row * 1_000, 1_000, on);
        let edge = Edge::new(Cpu(0), Nanos(row * 1_000 + 1_000), on, Effect::Woke(woken));
        recording.rows.push(Row::Edge(edge));
    }
    check_recording("rows", &recording);
}

#[test]
fn rows_in_descending_order() {
    let mut recording = Recording::new();
    let thread = recording.thread(1, "a");
    for row in (0..50_000).rev() {
        recording.span(0, row * 1_000, 500, thread);
        let edge = Edge::new(Cpu(0), Nanos(row * 1_000), thread, Effect::Woke(1));
        recording.rows.push(Row::Edge(edge));
    }
    check_recording("descending", &recording);
}

#[test]
fn the_longest_spans() {
    const YEAR: i64 = Nanos::from_days(365).0;
    let mut recording = Recording::new();
    let thread = recording.thread(1, "a");
    recording.header.cpus = vec![books(0, Nanos(9 * YEAR))];
    for row in 0..900 {
        recording.span(0, row * (YEAR / 100), YEAR / 100, thread);
    }
    check_recording("years", &recording);
}

#[test]
fn many_cpus_for_years() {
    const YEARS: i64 = 9 * Nanos::from_days(365).0;
    let mut recording = Recording::new();
    let thread = recording.thread(1, "a");
    let of_cpu = |cpu| books(cpu, Nanos(YEARS));
    recording.header.cpus = (0..4_000).map(of_cpu).collect();
    recording.header.after.at = Nanos(YEARS);
    for cpu in 0..4_000_u32 {
        let start = i64::from(cpu) * 70_000_000_000_000 % YEARS;
        recording.span(cpu, start, 30_000_000_000_000, thread);
    }
    check_recording("CPU years", &recording);
}

#[test]
fn many_sums() {
    let mut recording = Recording::new();
    let mut histogram = Histogram::default();
    histogram.record(Nanos::from_secs(70));
    for number in 0..16_000_i32 {
        let source = recording.thread(number % 8_000, &format!("t{}", number % 8_000));
        let span = span(0, i64::from(number), 1_000_000, source);
        recording.rows.push(Row::Sum(Sum {
            span,
            count: 5,
            max: Nanos::from_secs(70),
            histogram: histogram.clone(),
        }));
    }
    check_recording("sums", &recording);
}

#[test]
fn many_functions() {
    let mut recording = Recording::new();
    let thread = recording.thread(1, "a");
    for number in 0..60_000 {
        let effect = Effect::Queued(format!("f{number}").into());
        let edge = Edge::new(Cpu(0), Nanos(number * 1_000), thread, effect);
        recording.rows.push(Row::Edge(edge));
        recording.span(0, number * 1_000, 1_000, thread);
    }
    check_recording("functions", &recording);
}

#[test]
fn a_long_header() {
    let mut recording = Recording::new();
    let thread = recording.thread(1, "a");
    recording.span(0, 0, 1_000_000_000, thread);
    let other = |number: u32| Limitation::Other {
        topic: format!("a{number}"),
        reason: String::new(),
    };
    recording.header.coverage.limitations = (0..16_000).map(other).collect();
    check_recording("header", &recording);
}

/// Replaces the last occurrence of `old` in a file with `new`, which must have the same length.
fn replace(path: &Path, old: &str, new: &str) {
    assert_eq!(old.len(), new.len());
    let mut bytes = fs::read(path).unwrap();
    let mut windows = bytes.windows(old.len());
    let place = windows
        .rposition(|window| window == old.as_bytes())
        .unwrap();
    bytes[place..place + old.len()].copy_from_slice(new.as_bytes());
    fs::write(path, bytes).unwrap();
}

/// Saves a recording that has no rows and claims to come from another program, with one word in its
/// header replaced. Returns the path of the file.
fn reworded(folder: &Path, word: &str) -> String {
    let path = folder.join("x.parquet");
    Recording::new().save(&path);
    replace(&path, "ticktax version", "tocktax version");
    replace(&path, "\"level\":\"kernel\"", &format!("\"level\":{word}"));
    path.to_str().unwrap().to_owned()
}

#[test]
fn words_of_a_file_are_escaped_on_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    for word in [
        "\"\\u001b\"",
        "\"\\u009b\"",
        "\"\u{202e}\u{202e}\"",
        "\"\u{61c}\u{ad}\u{85}\"",
    ] {
        let file = reworded(folder.path(), word);
        for verb in ["report", "beats"] {
            let output = crate::common::ticktax(&[verb, &file]);
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{errors}");
            assert!(errors.contains("unknown variant `\u{fffd}"), "{errors:?}");
            assert_eq!(errors.matches(char::is_control).count(), 1, "{errors:?}");
            assert!(
                !errors.contains(['\u{202e}', '\u{61c}', '\u{ad}']),
                "{errors:?}"
            );
        }
    }
}

#[test]
fn a_file_without_checksums_is_shown_as_not_verified() {
    let folder = tempfile::tempdir().unwrap();
    let file = reworded(folder.path(), "\"kernel\"");
    let words = |arguments: &[&str]| {
        let output = crate::common::ticktax(arguments);
        let page = String::from_utf8(output.stdout).unwrap();
        page.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let page = folder.path().join("x.html");
    words(&["report", "--html", page.to_str().unwrap(), &file]);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("not verified"), "the HTML page");
    assert!(words(&["report", &file]).contains("not verified"));
    assert!(words(&["report", "--full", &file]).contains("has no checksums"));
    assert!(words(&["report", "--format", "json", &file]).contains("\"not-verified\""));
    assert!(words(&["beats", &file]).contains("has no checksums"));
    assert!(words(&["compare", &file, &file]).contains("not verified"));
    for arguments in [
        &["report", "--section", "time", &file][..],
        &["report", "--format", "openmetrics", &file],
        &["beats", "--format", "json", &file],
        &["compare", "--section", "tick", &file, &file],
    ] {
        let output = crate::common::ticktax(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains("not verified"), "{arguments:?}: {errors}");
    }

    let verified = folder.path().join("verified.parquet");
    Recording::new().save(&verified);
    let verified = verified.to_str().unwrap();
    assert!(!words(&["report", "--full", verified]).contains("not verified"));
    assert!(!words(&["compare", verified, verified]).contains("not verified"));
}

#[test]
fn impossible_numbers_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let file = path.to_str().unwrap();
    let cases: [fn(&mut Recording); 4] = [
        |recording| recording.header.machine.hz_configured = Some(2_000_000_000),
        |recording| recording.header.cpus = vec![books(0, Nanos(i64::MAX))],
        |recording| recording.header.cpus = vec![books(0, Nanos(1)); 100_000],
        |recording| {
            let idle = recording.sources.intern(Source::idle());
            recording.span(i32::MAX.unsigned_abs(), 0, 1, idle);
        },
    ];
    for edit in cases {
        let mut recording = Recording::new();
        edit(&mut recording);
        recording.save(&path);
        for arguments in [
            &["report", file][..],
            &["beats", file],
            &["compare", file, file],
        ] {
            let output = crate::common::ticktax(arguments);
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
            assert_eq!(errors.lines().count(), 1, "{errors}");
        }
    }
}
