//! Tests for the command line: invalid input, exit codes, and output to a pipe. They don't need
//! root and don't take long.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{complaint, refused_as_usage, text, ticktax};

#[test]
fn invalid_arguments_exit_with_2_and_a_hint() {
    refused_as_usage(
        &[],
        &[
            (&["audit", "--for", "soon"], "20s"),
            (&["audit", "--for", "1us"], "10ms"),
            (&["audit", "--cpus", "0-"], "0-3"),
            (&["audit", "--probe", "jump"], "spin"),
            (&["audit", "--probe-policy", "fifo:0"], "fifo:1"),
            (
                &["audit", "--probe", "soak", "--probe-policy", "fifo:50"],
                "lowest priority",
            ),
            (&["audit", "--probe-policy", "fifo:50"], "with --cpus"),
            (&["audit", "--profile=0"], "1..=10000"),
            (&["audit", "--while-waiting"], "with --pid"),
            (
                &["audit", "--profile", "--keep", "sums"],
                "omit --keep sums",
            ),
            (&["audit", "--pid", "abc"], "invalid PID"),
            (&["audit", "--for", "-1s"], "20s, 500ms"),
            (&["audit", "--section", "times"], "repeats"),
            (&["report", "x", "--section", "time,noises"], "noise"),
            (&["audit", "--section", "time", "--full"], "--full"),
            (&["audit", "--by", "user"], "process"),
            (&["audit", "--no-report"], "--save <FILE>"),
            (
                &["audit", "--no-report", "--save", "x", "--format", "json"],
                "--format",
            ),
            (&["audit", "-p", "1", "--comm", "x"], "--comm"),
            (&["beats", "x", "--section", "time"], "repeats"),
            (&["pace", "--section", "time"], "frames"),
            (&["audti"], "audit"),
            (&["report"], "<FILE>"),
        ],
    );
}

#[test]
fn an_offline_cpu_is_named_with_the_online_ones() {
    let output = ticktax(&["audit", "--cpus", "8000", "--for", "10ms"]);
    assert_eq!(output.status.code(), Some(2));
    let complaint = complaint(&output);
    assert!(
        complaint.contains("CPU 8000 is not online: choose from 0"),
        "{complaint}"
    );
}

#[test]
fn an_unwritable_recording_stops_the_audit_before_it_starts() {
    for place in ["/nonexistent/x.parquet", "/dev/full", "/proc/x.parquet"] {
        let output = ticktax(&["audit", "--for", "7d", "--save", place]);
        assert_eq!(output.status.code(), Some(1), "{place}");
        assert!(complaint(&output).contains(place));
    }
    let output = ticktax(&["audit", "--for", "7d", "--save", "-"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("--save cannot write to standard output"));
}

#[test]
fn a_command_has_the_name_of_the_program_it_executes() {
    let output = ticktax(&[
        "audit",
        "--format",
        "json",
        "--",
        "sh",
        "-c",
        "exec sleep 0.5",
    ]);
    let statement: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a statement");
    assert_eq!(
        statement["victim"]["name"], "sleep",
        "{}",
        statement["victim"]
    );
}

#[test]
fn invalid_recordings_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_string_lossy().into_owned()
    };
    let files = [
        folder
            .path()
            .join("missing.parquet")
            .to_string_lossy()
            .into_owned(),
        put("empty.parquet", b""),
        put(
            "text.parquet",
            b"once upon a time there was no recording here at all",
        ),
        put("cut.parquet", b"PAR1abcdefghijklmnop"),
        folder.path().to_string_lossy().into_owned(),
    ];
    for file in files {
        let output = ticktax(&["report", &file]);
        assert_eq!(output.status.code(), Some(1), "{file}");
        assert!(complaint(&output).contains(&file));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_command_that_cannot_be_run_exits_as_in_a_shell() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("not-executable");
    fs::write(&script, "true").unwrap();
    let script = script.to_string_lossy().into_owned();
    for (command, code) in [("no-such-command-at-all", 127), (script.as_str(), 126)] {
        let output = ticktax(&["audit", "--probe", "none", "--", command]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(command));
    }
}

#[test]
fn a_commands_exit_code_is_passed_on() {
    for (script, code) in [("exit 0", 0), ("exit 42", 42), ("kill -TERM $$", 143)] {
        let arguments = ["audit", "--probe", "none", "--", "sh", "-c", script];
        assert_eq!(ticktax(&arguments).status.code(), Some(code), "{script}");
    }
}

#[test]
fn a_pipe_gets_neither_colours_nor_a_progress_bar() {
    let output = ticktax(&["audit", "--for", "300ms", "--probe", "sleep"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for printed in [text(&output.stdout), text(&output.stderr)] {
        assert!(
            !printed.contains('\x1b') && !printed.contains('\r'),
            "{printed}"
        );
    }
    let printed = text(&output.stdout);
    assert!(printed.contains("Accounts balance"), "{printed}");
    let long: Vec<&str> = printed
        .lines()
        .filter(|line| line.chars().count() > 80)
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn the_page_is_one_screen_and_sections_are_optional() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("x.parquet");
    let name = name.to_string_lossy().into_owned();
    let live = ticktax(&["audit", "--for", "500ms", "--save", &name]);
    let page = text(&live.stdout);
    assert!(page.lines().count() <= 24, "{page}");
    let report = |options: &[&str]| {
        let output = ticktax(&[&["report", &name], options].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(report(&[]), page);
    let full = report(&["--full"]);
    for (section, title) in [("time", "CPU time by account"), ("limits", "Limitations")] {
        let alone = report(&["--section", section]);
        assert!(alone.starts_with(title), "{alone}");
        assert!(full.contains(title), "{full}");
        assert!(!page.contains(title), "{page}");
    }
    let two = report(&["--section", "limits,time"]);
    assert!(two.starts_with("CPU time by account"), "{two}");
    let legend = "share: share of the time of all CPUs";
    assert!(!two.contains(legend), "{two}");
    assert!(report(&["--section", "legend"]).contains(legend));
    assert!(report(&["--explain"]).contains("accounts balance: every"));
}

#[test]
fn columns_sets_the_width_of_a_page() {
    for columns in [40, 120] {
        let output = Command::new(env!("CARGO_BIN_EXE_ticktax"))
            .args(["audit", "--for", "100ms", "--full"])
            .env("COLUMNS", columns.to_string())
            .output()
            .unwrap();
        let page = text(&output.stdout);
        let widest = page.lines().map(|line| line.chars().count()).max();
        let widest = widest.unwrap_or_default();
        assert!(
            widest <= columns && widest > columns - 30,
            "{widest}: {page}"
        );
    }
}

#[test]
fn help_manual_pages_and_completions_are_printed() {
    let help = text(&ticktax(&["audit", "--help"]).stdout);
    for word in ["Examples:", "Exit codes:", "--save", "Parquet"] {
        assert!(help.contains(word), "{word} in {help}");
    }
    let man = text(&ticktax(&["man"]).stdout);
    assert!(man.contains(".TH ticktax 1"), "{man}");
    let man = text(&ticktax(&["man", "audit"]).stdout);
    assert!(
        man.contains(".TH ticktax-audit 1") && man.contains("\\-\\-probe"),
        "{man}"
    );
    // The page must contain the version, the names of the values, and each example on a separate
    // line.
    let title = man.lines().find(|line| line.starts_with(".TH"));
    let version = concat!("ticktax ", env!("CARGO_PKG_VERSION"));
    assert!(title.is_some_and(|title| title.contains(version)), "{man}");
    for words in [
        ".SH SYNOPSIS\n.nf\nticktax audit [OPTIONS]",
        ".SH EXAMPLES\n.nf\n  ticktax audit",
        ".SH \"EXIT STATUS\"\n.nf\n  0 ",
    ] {
        assert!(man.contains(words), "{words} in {man}");
    }
    let nested = text(&ticktax(&["man", "case", "run"]).stdout);
    assert!(nested.contains(".TH ticktax-case-run 1"), "{nested}");
    let unknown = ticktax(&["man", "audti"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(complaint(&unknown).contains("choose audit"));
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_string_lossy().into_owned();
    assert!(ticktax(&["man", "--folder", &name]).status.success());
    let pages = listed(folder.path());
    for page in ["ticktax.1", "ticktax-audit.1", "ticktax-case-run.1"] {
        assert!(pages.iter().any(|name| name == page), "{page} in {pages:?}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            text(&ticktax(&["completions", shell]).stdout).contains("COMPLETE"),
            "{shell}"
        );
    }
}

/// The test creates a link that belongs to another user, which only root can do.
#[test]
fn manual_pages_are_not_written_through_another_users_link() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (own, link) = (folder.path().join("own"), folder.path().join("link"));
    std::fs::create_dir(&own).unwrap();
    std::os::unix::fs::symlink(&own, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(4_321), Some(4_321)).unwrap();
    let refused = ticktax(&["man", "--folder", &link.to_string_lossy()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(complaint(&refused).contains("belongs to user 4321"));
    assert!(listed(&own).is_empty());
}

#[test]
fn each_document_has_its_schema() {
    let schema = |words: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&ticktax(words).stdout).expect("a schema in JSON")
    };
    assert_eq!(schema(&["schema"])["title"], "Statement");
    for (document, title) in [
        ("pace", "PaceStatement"),
        ("comparison", "Comparison"),
        ("beats", "BeatStatement"),
        ("case-on-kernels", "KernelsStatement"),
        ("kernel-build", "KernelBuild"),
        ("net", "NetStatement"),
        ("packets", "PacketStatement"),
        ("knobs", "KnobList"),
        ("knob", "KnobSheet"),
        ("knob-readings", "KnobReadings"),
        ("undo", "UndoStatement"),
        ("mem-latency", "MemLatency"),
        ("mem-walk", "MemWalk"),
        ("mem-objects", "MemObjects"),
        ("clock", "Timekeeping"),
        ("storage", "Storage"),
        ("storage-fsync", "FsyncStudy"),
        ("storage-pressure", "WritePressure"),
    ] {
        assert_eq!(schema(&["schema", document])["title"], title);
    }
}

/// Returns the completions that a shell offers for the last word in `words`.
fn offered(words: &[&str], folder: &Path) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_ticktax"))
        .env("COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_IFS", "\n")
        .args(["--", "ticktax"])
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap();
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn a_shell_completes_cases_sections_and_files() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["lag.parquet", "game.toml", "notes.txt"] {
        fs::write(folder.path().join(file), "").unwrap();
    }
    let at = folder.path();
    let cases = offered(&["case", "run", "frame"], at);
    assert!(cases.contains(&"frame-rate-vs-hz".to_owned()), "{cases:?}");
    let sections = offered(&["audit", "--section", "time,re"], at);
    assert_eq!(sections, ["time,repeats"]);
    let pace_sections = offered(&["pace", "--section", "f"], at);
    assert_eq!(pace_sections, ["frames"]);
    assert_eq!(offered(&["report", ""], at)[0], "lag.parquet");
    assert_eq!(offered(&["sweep", ""], at)[0], "game.toml");
}

/// Checks that a file whose name contains a command is not offered. The completion script inserts
/// the name without quotes, so the shell would run the command.
#[test]
fn a_file_whose_name_holds_a_command_is_not_offered() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["lag`id`.parquet", "lag;id;.parquet", "lag.parquet", "$(id)"] {
        fs::write(folder.path().join(file), "").unwrap();
    }
    for arguments in [&["report", "lag"][..], &["audit", "--output", "lag"]] {
        assert_eq!(
            offered(arguments, folder.path()),
            ["lag.parquet"],
            "{arguments:?}"
        );
    }
    assert!(offered(&["audit", "--output", "$"], folder.path()).is_empty());
}

#[test]
fn several_processes_count_as_one_program() {
    for arguments in [
        &["audit", "-p", "1,999999999", "--for", "0.01"][..],
        &["audit", "-p", "1", "-p", "999999999", "--for", "0.01"],
    ] {
        let output = ticktax(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(complaint(&output).contains("999999999"));
    }
    let output = ticktax(&["audit", "--comm", "no-such-name", "--for", "0.01"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("`no-such-name`"));
}

#[test]
fn a_saved_recording_prints_the_same_statement_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.parquet");
    let name = file.to_string_lossy().into_owned();
    let live = ticktax(&[
        "audit", "--for", "500ms", "--format", "json", "--save", &name,
    ]);
    let statement: serde_json::Value = serde_json::from_slice(&live.stdout).expect("a statement");
    assert_eq!(
        live.status.code(),
        Some(0),
        "{} {}",
        statement["balance"],
        text(&live.stderr)
    );
    let again = ticktax(&["report", "--format", "json", &name]);
    assert_eq!(text(&live.stdout), text(&again.stdout));
    assert_eq!(listed(folder.path()), ["x.parquet"]);
}

fn listed(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn two_recordings_are_compared_and_a_statement_has_no_intervals() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (first, second, statement) = (path("a.parquet"), path("b.parquet"), path("b.json"));
    for (file, extra) in [(&first, &[][..]), (&second, &["--output", &statement])] {
        let arguments = [
            "audit", "--for", "1200ms", "--probe", "none", "--save", file,
        ];
        let output = ticktax(&[&arguments[..], extra, &["--format", "json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let compare = |arguments: &[&str]| ticktax(&[&["compare"], arguments].concat());
    let output = compare(&[&first, &second]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    assert!(page.lines().count() <= 24, "{page}");
    assert!(
        page.contains("a.parquet") && page.contains("b.parquet"),
        "{page}"
    );
    let output = compare(&[&first, &statement, "--format", "json"]);
    let changes: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(changes["document"], "comparison");
    assert_eq!(
        changes["experiment"]["second"]["blocks"],
        serde_json::Value::Null
    );
    let effects = changes["effects"].as_array().unwrap();
    assert!(!effects.is_empty());
    let is_untested = |effect: &serde_json::Value| effect["corrected_probability"].is_null();
    assert!(effects.iter().all(is_untested));
    let output = compare(&[&first, &first, "--format", "json"]);
    let changes: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let effects = changes["effects"].as_array().unwrap();
    let is_open = |effect: &serde_json::Value| effect["verdict"]["id"] == "cannot-tell";
    assert!(effects.iter().all(is_open), "{changes}");
    assert_eq!(changes["experiment"]["beats"].as_array().unwrap().len(), 0);

    let note = path("note.json");
    fs::write(&note, "{}").unwrap();
    let output = compare(&[&first, &note]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("note.json"));
}

#[test]
fn lists_of_numbers_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    // These are build times from the case `slice-vs-cache`.
    let stock = put(
        "stock.txt",
        "61.817\n61.871\n61.993\n62.015\n62.049\n62.077\n",
    );
    let patched = put(
        "patched.csv",
        "s\n60.177\n60.313\n60.331\n60.349\n60.462\n60.792\n",
    );
    let compare = |arguments: &[&str]| ticktax(&[&["compare"], arguments].concat());
    let output = compare(&[&stock, &patched, "--better", "lower"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    for words in [
        "B is better",
        "-2.53 %",
        "p = 0.0022",
        "the values of A and B are in sorted order",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(page.lines().count() <= 24, "{page}");
    assert!(
        page.lines().all(|line| line.chars().count() <= 80),
        "{page}"
    );
    let output = compare(&[&stock, &patched, "--format", "json"]);
    let numbers: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(numbers["document"], "comparison");
    assert_eq!(numbers["effects"][0]["verdict"]["id"], "differs");
    assert_eq!(numbers["arms"][0]["runs"], 6);

    let two = put("two.csv", "old,new\n1,2\n2,3\n");
    let statement = put("statement.json", r#"{"document": "statement"}"#);
    for (arguments, code, hint) in [
        (&[&*stock, &two][..], 2, "--column: 1 old, 2 new"),
        (&[&*stock, &two, "--column", "x"], 2, "no column `x`"),
        (&[&*stock, &statement], 2, "two files of the same kind"),
        (&[&*stock, "/no/such/file"], 1, "/no/such/file"),
        (
            &[&*statement, &statement, "--better", "lower"],
            2,
            "--better applies only to lists",
        ),
        (&[&*stock, &stock, "--difference", "2"], 2, "invalid share"),
    ] {
        let output = compare(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(
            text(&output.stderr).contains(hint),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_damaged_recording_is_one_line_even_if_the_parquet_library_panics() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/fixtures/schema2");
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(fixtures.join("spans.parquet")).unwrap();
    // Make the file look as if another program had written it without checksums. Otherwise, the
    // checksums would reveal the damage first.
    for name in ["ticktax version", "ticktax-checksums"] {
        let place = bytes
            .windows(name.len())
            .rposition(|window| window == name.as_bytes());
        bytes[place.unwrap()] = b'x';
    }
    bytes[107] = 134;
    let damaged = folder.path().join("damaged.parquet");
    fs::write(&damaged, bytes).unwrap();
    let output = ticktax(&["report", damaged.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = complaint(&output);
    assert!(
        complaint.contains("its contents are invalid"),
        "{complaint}"
    );
}

#[test]
fn control_characters_of_an_argument_are_removed_from_the_error() {
    let output = ticktax(&["report", "--from", "\u{202e}1\u{1b}[31m", "x.parquet"]);
    assert_eq!(output.status.code(), Some(2));
    // The error is followed by lines about usage, so it has more than one line.
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("--from"), "{complaint}");
    let hidden = ['\u{202e}', '\u{1b}'];
    assert!(!complaint.contains(hidden), "{complaint:?}");
}
