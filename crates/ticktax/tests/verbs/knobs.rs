//! Tests for `ticktax knob` and `ticktax undo`. They only change settings of a child process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::{complaint, text, ticktax};
use serde_json::Value;
use tempfile::TempDir;
use ticktax_fixture::Sleeper;
use ticktax_knobs::{Consent, Session, SessionStep, System, Target, registry};

const POLICY: &str = "proc.policy";

/// A sleeping child process whose scheduling policy the tests change.
struct Subject(Sleeper);

impl Subject {
    fn start() -> Self {
        Self(Sleeper::start().unwrap())
    }

    fn policy(&self) -> String {
        let knob = registry::find(POLICY).unwrap();
        let target = Target::Task(self.0.pid());
        knob.read(&System::default(), &target).unwrap()
    }

    /// Gives the child the scheduling policy for batch jobs until the session ends.
    fn set_batch_policy(&self, session: &mut Session) {
        let knob = registry::find(POLICY).unwrap();
        let target = Target::Task(self.0.pid());
        let set = session.set(knob, &target, "batch", Consent::Withheld);
        set.unwrap();
    }
}

/// Copies a session's journal while the session has changed a child's scheduling policy.
fn journal_of(subject: &Subject, folder: &Path) -> PathBuf {
    let (original, copy) = (folder.join("original"), folder.join("copy"));
    let (from, to) = (original.clone(), copy.clone());
    let keep = move |step| {
        if step == SessionStep::Set {
            fs::copy(&from, &to).unwrap();
        }
    };
    let begun = Session::begin_observed(&System::default(), &original, "a test", Box::new(keep));
    let mut session = begun.unwrap().0;
    subject.set_batch_policy(&mut session);
    drop(session);
    assert_eq!(subject.policy(), "other");
    copy
}

fn undo(journal: &Path, format: &str) -> Output {
    ticktax(&[
        "undo",
        "--journal",
        journal.to_str().unwrap(),
        "--format",
        format,
    ])
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn listed_knobs_can_be_shown_and_read() {
    let list = json(&ticktax(&["knob", "list", "--format", "json"]));
    let knobs = list["knobs"].as_array().unwrap();
    assert!(knobs.len() > 50, "{}", knobs.len());
    assert_eq!(list["total"].as_u64(), Some(knobs.len() as u64));
    let matching = json(&ticktax(&[
        "knob", "list", "--of", "swap", "--format", "json",
    ]));
    let some = matching["knobs"].as_array().unwrap();
    assert!(some.iter().any(|knob| knob["id"] == "vm.swappiness"));
    assert!(some.len() < knobs.len());
    let page = text(&ticktax(&["knob", "show", "vm.swappiness"]).stdout);
    // The description is longer than a line, and must be printed in full.
    let words: Vec<&str> = page.split_whitespace().collect();
    let about = knobs.iter().find(|knob| knob["id"] == "vm.swappiness");
    let about = about.unwrap()["description"].as_str().unwrap();
    assert!(words.join(" ").contains(about), "{page}");
    for word in ["0 to 200", "/proc/sys/vm/swappiness", "Effect", "safe"] {
        assert!(page.contains(word), "{page}");
    }
    let get = ticktax(&["knob", "get", "boot.isolcpus"]);
    assert_eq!(get.status.code(), Some(0));
    assert!(text(&get.stdout).starts_with("boot.isolcpus: "));
}

#[test]
fn a_list_without_matches_says_so() {
    let page = text(&ticktax(&["knob", "list", "--of", "no such word"]).stdout);
    assert!(
        page.starts_with("None of ") && page.contains(" matches `no such word`."),
        "{page}"
    );
}

#[test]
fn the_policy_of_a_process_is_read() {
    let sleeper = Sleeper::start().unwrap();
    let pid = sleeper.pid().to_string();
    let get = ["knob", "get", POLICY, "--pid", &pid, "--format", "json"];
    let reading = &json(&ticktax(&get))["readings"][0];
    assert_eq!(reading["value"], "other");
    assert_eq!(reading["target"], format!("task {pid}"));
}

#[test]
fn invalid_requests_are_refused_in_one_line() {
    for (arguments, code, hint) in [
        (
            &["knob", "show", "vm.swapiness"][..],
            2,
            "did you mean vm.swappiness",
        ),
        (&["knob", "get", "nice"], 2, "proc.nice"),
        (&["knob", "get", "zzz"], 2, "knob list"),
        (&["knob", "get", "proc.nice"], 2, "--pid N"),
        (&["knob", "get", "cgroup.cpu_quota"], 2, "--cgroup PATH"),
        (
            &["knob", "get", "vm.swappiness", "--cpu", "0"],
            2,
            "the machine",
        ),
        (
            &["knob", "get", "proc.nice", "--pid", "8388608"],
            1,
            "no such thread",
        ),
        (
            &["knob", "get", "disk.scheduler", "--disk", "../x"],
            1,
            "/sys/block",
        ),
        (
            &["knob", "get", "cpu.governor", "--cpu", "8000"],
            1,
            "CPU 8000",
        ),
        (
            &["undo", "--journal", "/proc/version/x"],
            1,
            "/proc/version/x",
        ),
        (&["undo", "--journal", "/dev/full"], 1, "/dev"),
    ] {
        let output = ticktax(arguments);
        let complaint = complaint(&output);
        assert!(complaint.contains(hint), "{arguments:?}: {complaint}");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
    let two_targets = ticktax(&["knob", "get", "proc.nice", "--pid", "1", "--cpu", "0"]);
    assert_eq!(two_targets.status.code(), Some(2));
}

#[test]
fn settings_of_a_killed_run_are_restored_once() {
    let (subject, folder) = (Subject::start(), TempDir::new().unwrap());
    let journal = journal_of(&subject, folder.path());
    // Change the setting again, as if a killed `try` had left it changed.
    let begun = Session::begin(&System::default(), &folder.path().join("other"), "another");
    let mut session = begun.unwrap().0;
    subject.set_batch_policy(&mut session);
    assert_eq!(subject.policy(), "batch");
    let output = undo(&journal, "text");
    let page = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{page}");
    assert!(page.starts_with("Settings changed by a test:"), "{page}");
    assert!(page.contains("restored from batch to other"), "{page}");
    assert_eq!(subject.policy(), "other");
    let again = undo(&journal, "text");
    assert_eq!(again.status.code(), Some(0));
    assert!(text(&again.stdout).starts_with("Nothing to undo in "));
}

#[test]
fn settings_of_ended_processes_are_reported_without_failure() {
    let folder = TempDir::new().unwrap();
    let journal = journal_of(&Subject::start(), folder.path());
    let output = undo(&journal, "json");
    assert_eq!(output.status.code(), Some(0));
    let statement = json(&output);
    assert_eq!(statement["document"], "undo");
    let outcomes: Vec<&Value> = statement["settings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|setting| &setting["outcome"])
        .collect();
    assert!(
        !outcomes.is_empty() && outcomes.iter().all(|outcome| *outcome == "gone"),
        "{statement}"
    );
}

#[test]
fn without_a_journal_there_is_nothing_to_undo() {
    let folder = TempDir::new().unwrap();
    let output = undo(&folder.path().join("none"), "text");
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).starts_with("Nothing to undo in "));
}

/// Checks that `try` refuses a file that is not a journal before it changes anything, and that
/// `undo` does not empty such a file.
#[test]
fn a_recording_named_as_the_journal_stays_unchanged() {
    let folder = TempDir::new().unwrap();
    let recording = folder.path().join("recording.parquet");
    let bytes: Vec<u8> = b"PAR1"
        .iter()
        .copied()
        .chain((0..=255).cycle().take(588_000))
        .collect();
    fs::write(&recording, &bytes).unwrap();
    let name = recording.to_str().unwrap();
    let setting = ["try", "proc.nice=now,5", "--journal", name, "--", "true"];
    for output in [undo(&recording, "text"), ticktax(&setting)] {
        assert_eq!(output.status.code(), Some(1));
        let complaint = complaint(&output);
        assert!(
            complaint.contains("not a ticktax journal and was left unchanged"),
            "{complaint}"
        );
        assert!(fs::read(&recording).unwrap() == bytes);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_journal_with_a_damaged_line_fails_and_stays_unchanged() {
    let (subject, folder) = (Subject::start(), TempDir::new().unwrap());
    let journal = journal_of(&subject, folder.path());
    let mut bytes = fs::read(&journal).unwrap();
    let first = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    bytes.splice(first..first, b"no line of ours\n".iter().copied());
    fs::write(&journal, &bytes).unwrap();
    let output = undo(&journal, "text");
    assert_eq!(output.status.code(), Some(1));
    let page = text(&output.stdout);
    assert!(page.contains("1 line of "), "{page}");
    let words: Vec<&str> = page.split_whitespace().collect();
    assert!(words.join(" ").contains("were not restored"), "{page}");
    assert!(fs::read(&journal).unwrap() == bytes);
}

#[test]
fn a_cut_journal_is_copied_and_the_page_names_the_copy() {
    let folder = TempDir::new().unwrap();
    let journal = journal_of(&Subject::start(), folder.path());
    let mut bytes = fs::read(&journal).unwrap();
    bytes.extend_from_slice(b"half a li");
    fs::write(&journal, &bytes).unwrap();
    let output = undo(&journal, "text");
    assert_eq!(output.status.code(), Some(0));
    let page = text(&output.stdout);
    let words: Vec<&str> = page.split_whitespace().collect();
    assert!(
        words
            .join(" ")
            .contains("incomplete line at the end of the journal was cut off"),
        "{page}"
    );
    let copy = fs::read(folder.path().join("copy.damaged.1")).unwrap();
    assert_eq!(copy, b"half a li");
}

#[test]
fn undo_refuses_the_journal_of_a_running_trial() {
    let folder = TempDir::new().unwrap();
    let journal = folder.path().join("journal");
    let begun = Session::begin(&System::default(), &journal, "somebody (PID 7)");
    let session = begun.unwrap().0;
    let output = undo(&journal, "text");
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("somebody (PID 7)"));
    drop(session);
    assert_eq!(undo(&journal, "text").status.code(), Some(0));
}
