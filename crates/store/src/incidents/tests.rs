//! Tests for incident directories after crashes and damage, and with a limited budget.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use ticktax_fixture::{books, header, process, whole};
use ticktax_model::incident::{
    Incident, IncidentEntry, IncidentIndex, IncidentThread, IndexLine, LossCause, Trigger,
    TriggerKind,
};
use ticktax_model::recording::{Header, Row};
use ticktax_model::{Cpu, Nanos, Owner, SourceTable};

use super::index::{NAME, parse};
use super::{Budget, IncidentFolder, IncidentStore, Recorded, Unindexed, read_incidents};
use crate::recording::RecordingReader;

const NOON: i64 = 1_763_812_800_000;

fn folder() -> TempDir {
    ticktax_fixture::scratch()
}

fn incident(at_unix_ms: i64) -> Incident {
    Incident {
        thread: Some(IncidentThread {
            name: "game".to_owned(),
            program: "game".to_owned(),
            pid: 10,
            tid: 10,
        }),
        cpu: Some(Cpu(0)),
        lasted: Nanos::from_millis(20),
        ..Incident::new(TriggerKind::Wait, at_unix_ms)
    }
}

/// Returns the contents of a recording that a trigger started.
fn frozen() -> (Header, SourceTable, Vec<Row>) {
    let mut sources = SourceTable::default();
    let game = sources.intern(process(Owner::Program, "game", 10));
    let mut header = header();
    header.cpus.push(books(0, 0, 1_000_000));
    header.triggers.push(Trigger {
        kind: TriggerKind::Wait,
        at: Nanos(900_000),
        cpu: Some(Cpu(0)),
        tid: 10,
        pid: 10,
        comm: "game".to_owned(),
        lasted: Nanos(500_000),
        above: None,
        place: None,
    });
    (header, sources, vec![whole(0, 0, 1_000_000, game)])
}

/// An incident with its own recording.
struct Stored {
    entry: IncidentEntry,
    path: Option<PathBuf>,
    trouble: Option<String>,
}

fn keep(store: &mut IncidentStore, at: i64) -> Stored {
    let stored = store.tell(incident(at));
    let recorded = record(store);
    let [entry] = <[IncidentEntry; 1]>::try_from(recorded.entries).expect("one");
    assert_eq!(entry.number, stored.entry.number);
    Stored {
        entry,
        path: recorded.path,
        trouble: stored.trouble.or(recorded.trouble),
    }
}

fn record(store: &mut IncidentStore) -> Recorded {
    let (header, sources, rows) = frozen();
    store.record(&header, &sources, rows)
}

fn open(folder: &Path, budget: Budget) -> (IncidentStore, Vec<Unindexed>) {
    let (mut store, unindexed) = IncidentStore::open(folder, budget, NOON).expect("our folder");
    assert_eq!(store.began(NOON), None);
    (store, unindexed)
}

/// An index that cannot be written because a directory has its name.
struct Blocked(PathBuf);

impl Blocked {
    fn index_of(folder: &Path) -> Self {
        let index = folder.join(NAME);
        fs::rename(&index, index.with_extension("aside")).expect("the file is ours");
        fs::create_dir(&index).expect("the file is ours");
        Self(index)
    }

    fn end(self) {
        fs::remove_dir(&self.0).expect("it is empty");
        fs::rename(self.0.with_extension("aside"), &self.0).expect("the file is ours");
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path)
        .expect("the file exists")
        .permissions()
        .mode()
        & 0o777
}

fn numbers(index: &IncidentIndex) -> Vec<u64> {
    index.entries().map(|entry| entry.number).collect()
}

#[test]
fn an_incident_is_stored_as_a_recording_and_a_line_readable_only_by_the_owner() {
    let dir = folder();
    let place = dir.path().join("deeper").join("incidents");
    let (mut store, unindexed) = open(&place, Budget::default());
    assert_eq!(unindexed, []);
    let stored = keep(&mut store, NOON + 123);
    assert_eq!((stored.trouble, stored.entry.number), (None, 1));
    store.close(NOON + 5_000).expect("a line");
    assert_eq!(
        names(&place),
        ["incident-20251122T120000.123Z.parquet", NAME]
    );
    let recording = stored.path.expect("it was kept");
    assert_eq!(
        (mode(&place), mode(&recording), mode(&place.join(NAME))),
        (0o700, 0o600, 0o600)
    );
    let header = RecordingReader::open(&recording)
        .expect("a recording")
        .header()
        .clone();
    assert_eq!(header.triggers, frozen().0.triggers);
    let (index, unindexed) = read_incidents(&place).expect("a readable index");
    assert_eq!(
        (numbers(&index), unindexed.len(), index.damaged),
        (vec![1], 0, 0)
    );
    assert!(matches!(index.lines.last(), Some(IndexLine::Ended { .. })));
}

#[test]
fn a_truncated_index_is_healed_and_a_torn_line_is_never_read() {
    let dir = folder();
    let (mut store, _) = open(dir.path(), Budget::default());
    for second in 0..3 {
        keep(&mut store, NOON + second * 1_000);
    }
    drop(store);
    let index = dir.path().join(NAME);
    let complete = fs::read(&index).expect("an index");
    let ends: Vec<usize> = (0..complete.len())
        .filter(|&at| complete[at] == b'\n')
        .collect();
    for length in 0..=complete.len() {
        fs::write(&index, &complete[..length]).expect("the file is ours");
        let lines = ends.iter().filter(|&&end| end < length).count();
        let (read, unindexed) = read_incidents(dir.path()).expect("a readable index");
        assert_eq!((read.lines.len(), read.damaged), (lines, 0), "{length}");
        // The first line marks the start of the recorder. After it, each incident has two lines.
        let known = lines.saturating_sub(1).div_ceil(2);
        assert_eq!(unindexed.len(), 3 - known, "{length}");
        let (mut store, found) = open(dir.path(), Budget::default());
        assert_eq!(found, unindexed, "{length}");
        for recording in &found {
            store
                .found(recording, incident(recording.at_unix_ms))
                .expect("a line");
        }
        store.close(NOON).expect("a line");
        let (healed, unindexed) = read_incidents(dir.path()).expect("a readable index");
        assert_eq!((healed.damaged, unindexed.len()), (0, 0), "{length}");
        assert_eq!(numbers(&healed), [1, 2, 3], "{length}");
        assert!(healed.entries().all(|entry| entry.bytes > 0), "{length}");
    }
}

#[test]
fn a_damaged_line_is_counted_and_the_others_are_read() {
    let dir = folder();
    let (mut store, _) = open(dir.path(), Budget::default());
    keep(&mut store, NOON);
    keep(&mut store, NOON + 1_000);
    drop(store);
    let index = dir.path().join(NAME);
    let mut bytes = fs::read(&index).expect("an index");
    bytes[0] = 0xff;
    fs::write(&index, bytes).expect("the file is ours");
    let (read, _) = read_incidents(dir.path()).expect("a readable index");
    assert_eq!((numbers(&read), read.damaged), (vec![1, 2], 1));
}

#[test]
fn only_the_unfinished_files_of_a_killed_recorder_are_removed() {
    let dir = folder();
    let left = ".incident-20251122T120000.000Z.parquet.17-0.part";
    for name in [left, ".index.jsonl.17-0.part", ".mine.part", "notes.txt"] {
        fs::write(dir.path().join(name), "x").expect("the file is ours");
    }
    let (read, unindexed) = read_incidents(dir.path()).expect("a readable index");
    assert_eq!((read, unindexed), (IncidentIndex::default(), Vec::new()));
    let _ = open(dir.path(), Budget::default());
    assert_eq!(names(dir.path()), [".mine.part", NAME, "notes.txt"]);
}

#[test]
fn the_index_notes_the_start_and_end_of_watching() {
    let dir = folder();
    // This recorder never watched, because its tracer could not be loaded.
    let (store, _) = IncidentStore::open(dir.path(), Budget::default(), NOON).expect("our folder");
    store.close(NOON + 1).expect("nothing needs to be written");
    let (mut store, _) =
        IncidentStore::open(dir.path(), Budget::default(), NOON).expect("our folder");
    assert_eq!(store.began(NOON + 400), None);
    store.close(NOON + 1_400).expect("a line");
    let (index, _) = read_incidents(dir.path()).expect("a readable index");
    let lines = [
        IndexLine::Began {
            at_unix_ms: NOON + 400,
        },
        IndexLine::Ended {
            at_unix_ms: NOON + 1_400,
        },
    ];
    assert_eq!(index.lines, lines);
}

#[test]
fn no_file_stays_open_between_incidents() {
    let dir = folder();
    let (mut store, _) = open(dir.path(), Budget::default());
    keep(&mut store, NOON);
    let open = fs::read_dir("/proc/self/fd").expect("Linux has it");
    let open = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let within: Vec<PathBuf> = open
        .filter(|path| path.starts_with(dir.path()) && path != dir.path())
        .collect();
    assert_eq!(within, Vec::<PathBuf>::new());
    drop(store);
}

#[test]
fn lines_that_cannot_be_written_are_written_later() {
    let dir = folder();
    let (mut store, _) = open(dir.path(), Budget::default());
    let blocked = Blocked::index_of(dir.path());
    let stored = keep(&mut store, NOON);
    let trouble = stored.trouble.expect("it cannot be written");
    assert!(
        trouble.starts_with("cannot write ") && !trouble.contains('\n'),
        "{trouble}"
    );
    for _ in 0..2 {
        assert!(store.lose(LossCause::Suppressed, 3).is_some());
    }
    blocked.end();
    assert_eq!(keep(&mut store, NOON + 1_000).trouble, None);
    store.close(NOON + 2_000).expect("a line");
    let (index, unindexed) = read_incidents(dir.path()).expect("a readable index");
    assert_eq!((numbers(&index), unindexed), (vec![1, 2], Vec::new()));
    let lost = IndexLine::Lost {
        cause: LossCause::Suppressed,
        count: 6,
    };
    assert_eq!(index.lines.iter().filter(|line| **line == lost).count(), 1);
    assert_eq!(index.lines.len(), 7);
}

#[test]
fn waiting_lines_are_bounded_and_older_ones_are_counted() {
    let dir = folder();
    let budget = Budget {
        per_hour: 0,
        ..Budget::default()
    };
    let (mut store, _) = open(dir.path(), budget);
    let blocked = Blocked::index_of(dir.path());
    let all = u64::try_from(super::WAITING).expect("the count is small") + 50;
    for second in 0..all {
        keep(
            &mut store,
            NOON + i64::try_from(second).expect("the count is small") * 1_000,
        );
    }
    assert!(store.waiting.len() <= super::WAITING + 1);
    blocked.end();
    store.close(NOON).expect("the lines are written");
    let (index, _) = read_incidents(dir.path()).expect("a readable index");
    let numbered = numbers(&index).len() as u64;
    let counted = index.lines.iter().map(|line| match line {
        IndexLine::Lost {
            cause: LossCause::PerHour,
            count,
        } => *count,
        _ => 0,
    });
    assert_eq!(numbered + counted.sum::<u64>(), all);
    assert_eq!(numbers(&index).last(), Some(&all));
}

#[test]
fn a_removed_index_is_started_again() {
    let dir = folder();
    let (mut store, _) = open(dir.path(), Budget::default());
    keep(&mut store, NOON);
    fs::remove_file(dir.path().join(NAME)).expect("the file is ours");
    keep(&mut store, NOON + 1_000);
    let (index, unindexed) = read_incidents(dir.path()).expect("a readable index");
    assert_eq!(
        (numbers(&index), unindexed.len(), index.damaged),
        (vec![2], 1, 0)
    );
}

#[test]
fn a_replaced_index_is_read_again() {
    let dir = folder();
    let (mut store, _) = open(dir.path(), Budget::default());
    keep(&mut store, NOON);
    let index = dir.path().join(NAME);
    let ours = fs::read(&index).expect("an index");
    let aside = dir.path().join("aside");
    fs::write(&aside, [&*ours, &*ours].concat()).expect("the file is ours");
    fs::rename(&aside, &index).expect("the file is ours");
    keep(&mut store, NOON + 1_000);
    let longer = fs::read(&index).expect("an index");
    assert!(longer.len() > 2 * ours.len());
    // A file that does not consist of index lines is refused and stays unchanged.
    fs::write(&aside, "precious\nlines".repeat(100)).expect("the file is ours");
    fs::rename(&aside, &index).expect("the file is ours");
    let trouble = keep(&mut store, NOON + 2_000).trouble.expect("refused");
    assert!(
        trouble.contains("is not an index of incidents: move or remove it"),
        "{trouble}"
    );
    let kept = fs::read_to_string(&index).expect("a file");
    assert_eq!(kept, "precious\nlines".repeat(100));
}

#[test]
fn only_one_recorder_can_hold_a_folder() {
    let dir = folder();
    let (first, _) = open(dir.path(), Budget::default());
    let error = IncidentStore::open(dir.path(), Budget::default(), NOON)
        .expect_err("another recorder holds the folder");
    assert!(
        error.to_string().starts_with("another recorder is using"),
        "{error}"
    );
    drop(first);
    let _ = open(dir.path(), Budget::default());
}

#[test]
fn a_budget_keeps_the_latest_recordings_and_counts_the_others() {
    let dir = folder();
    let budget = Budget {
        count: 2,
        per_hour: 4,
        ..Budget::default()
    };
    let (mut store, _) = open(dir.path(), budget);
    let kept: Vec<bool> = (0..6)
        .map(|second| keep(&mut store, NOON + second * 1_000).path.is_some())
        .collect();
    assert_eq!(kept, [true, true, true, true, false, false]);
    let lost: Vec<_> = store.lost().collect();
    assert_eq!(lost, [(LossCause::PerHour, 2), (LossCause::Count, 2)]);
    drop(store);
    // The hourly limit also applies to the next recorder until the hour is over.
    let (mut store, unindexed) =
        IncidentStore::open(dir.path(), budget, NOON + 7_000).expect("our folder");
    assert_eq!(unindexed, []);
    assert_eq!(keep(&mut store, NOON + 8_000).path, None);
    assert!(keep(&mut store, NOON + 3_600_000).path.is_some());
    drop(store);
    assert_eq!(names(dir.path()).len(), 3);
    let (index, _) = read_incidents(dir.path()).expect("a readable index");
    assert_eq!(numbers(&index), (1..=8).collect::<Vec<u64>>());
}

#[test]
fn even_a_single_recording_must_fit_the_limit_of_bytes() {
    let dir = folder();
    let (mut store, _) = open(
        dir.path(),
        Budget {
            bytes: 10,
            ..Budget::default()
        },
    );
    let stored = keep(&mut store, NOON);
    assert_eq!((stored.path, stored.trouble), (None, None));
    let lost: Vec<_> = store.lost().collect();
    assert_eq!(lost, [(LossCause::Bytes, 1)]);
    assert_eq!(names(dir.path()), [NAME]);
}

#[test]
fn a_clock_set_back_overwrites_no_recording() {
    let dir = folder();
    let (mut store, _) = open(dir.path(), Budget::default());
    let paths: Vec<Option<PathBuf>> = (0..2).map(|_| keep(&mut store, NOON).path).collect();
    assert!(paths[0].is_some() && paths[1].is_some() && paths[0] != paths[1]);
}

#[test]
fn readers_also_find_recordings_that_the_index_lacks() {
    let dir = folder();
    let (mut store, _) = open(dir.path(), Budget::default());
    keep(&mut store, NOON);
    drop(store);
    fs::remove_file(dir.path().join(NAME)).expect("the file is ours");
    let place = IncidentFolder::open(dir.path()).expect("a folder");
    let (mut index, unindexed) = place.read().expect("a readable index");
    assert_eq!(unindexed.len(), 1);
    assert_eq!(unindexed[0].at_unix_ms, NOON);
    place.add_found(&mut index, &unindexed[0], incident(NOON));
    assert_eq!((numbers(&index), index.found_again), (vec![1], 1));
}

#[test]
fn an_index_is_bounded_and_counts_dropped_lines() {
    let dir = folder();
    let (store, _) = open(dir.path(), Budget::default());
    drop(store);
    // Fill the index almost completely.
    let line = r#"{"line":"lost","cause":"suppressed","count":1}"#.to_owned() + "\n";
    let many = super::INDEX_MAX / line.len() as u64;
    let index = dir.path().join(NAME);
    fs::write(
        &index,
        line.repeat(usize::try_from(many).expect("the count is small")),
    )
    .expect("the file is ours");
    let (mut store, _) = open(dir.path(), Budget::default());
    keep(&mut store, NOON);
    keep(&mut store, NOON + 1_000);
    store.close(NOON + 2_000).expect("a line");
    let bytes = fs::read(&index).expect("an index");
    assert!(
        (bytes.len() as u64) < super::INDEX_MAX * 6 / 10,
        "{}",
        bytes.len()
    );
    let read = parse(&bytes);
    let lost: u64 = read
        .lines
        .iter()
        .map(|line| match line {
            IndexLine::Lost { count, .. } => *count,
            _ => 0,
        })
        .sum();
    assert_eq!((lost, numbers(&read), read.damaged), (many, vec![1, 2], 0));
    assert_eq!(mode(&index), 0o600);
}

#[test]
fn impossible_folders_are_reported_in_one_line() {
    let dir = folder();
    let file = dir.path().join("file");
    fs::write(&file, "").expect("the file is ours");
    for place in [file.clone(), file.join("below")] {
        let error = IncidentStore::open(&place, Budget::default(), NOON).expect_err("a file");
        let error = error.to_string();
        assert!(
            error.starts_with("cannot store incidents in ") && !error.contains('\n'),
            "{error}"
        );
    }
    let error = read_incidents(&dir.path().join("none"))
        .expect_err("nothing")
        .to_string();
    assert!(error.starts_with("no incidents in "), "{error}");
}

/// Users print the index with `cat`, which does not escape control characters.
#[test]
fn names_are_complete_without_raw_control_characters() {
    let dir = folder();
    let (mut store, _) = open(dir.path(), Budget::default());
    let name = "\u{1b}[31m\u{9b}2J\u{202e}\u{ad}\u{61c}";
    let mut incident = incident(NOON);
    incident.thread.as_mut().expect("a thread").name = name.to_owned();
    store.tell(incident);
    let text = fs::read_to_string(dir.path().join(NAME)).expect("an index");
    let raw = name
        .chars()
        .find(|c| !c.is_ascii_graphic() && text.contains(*c));
    assert_eq!(raw, None, "{text:?}");
    let (index, _) = read_incidents(dir.path()).expect("a readable index");
    let kept = index
        .entries()
        .find_map(|entry| entry.incident.thread.clone());
    assert_eq!(kept.expect("a thread").name, name);
}

#[test]
fn incidents_are_indexed_while_their_shared_recording_continues() {
    let dir = folder();
    let (mut store, _) = open(dir.path(), Budget::default());
    let first = store.tell(incident(NOON));
    let name = "incident-20251122T120000.000Z.parquet".to_owned();
    assert_eq!(first.path, Some(dir.path().join(&name)));
    let (index, unindexed) = read_incidents(dir.path()).expect("a readable index");
    let summary = |index: &IncidentIndex| -> Vec<(u64, Option<String>, bool)> {
        let entries = index.entries();
        entries
            .map(|entry| (entry.number, entry.recording.clone(), entry.bytes > 0))
            .collect()
    };
    assert_eq!(unindexed, []);
    assert_eq!(summary(&index), [(1, Some(name.clone()), false)]);
    store.tell(incident(NOON + 2_500));
    let recorded = record(&mut store);
    assert_eq!(recorded.path, Some(dir.path().join(&name)));
    assert_eq!(recorded.entries.len(), 2);
    let (index, _) = read_incidents(dir.path()).expect("a readable index");
    let expected = [(1, Some(name.clone()), true), (2, Some(name.clone()), true)];
    assert_eq!(summary(&index), expected);
    keep(&mut store, NOON + 5_000);
    drop(store);
    assert_eq!(names(dir.path()).len(), 3);
    // A recording shared by several incidents counts once, both now and after a restart.
    let budget = Budget {
        count: 2,
        ..Budget::default()
    };
    let (mut store, _) = open(dir.path(), budget);
    assert_eq!(store.kept.len(), 2);
    keep(&mut store, NOON + 9_000);
    assert_eq!(store.lost().collect::<Vec<_>>(), [(LossCause::Count, 1)]);
    assert!(!dir.path().join(name).exists());
}

#[test]
fn a_recording_lost_to_a_kill_is_counted_once_per_incident() {
    let dir = folder();
    let (mut store, _) = open(dir.path(), Budget::default());
    keep(&mut store, NOON);
    store.tell(incident(NOON + 20_000));
    store.tell(incident(NOON + 22_500));
    drop(store);
    for _ in 0..2 {
        drop(open(dir.path(), Budget::default()));
        let (index, unindexed) = read_incidents(dir.path()).expect("a readable index");
        let outcomes: Vec<_> = index.entries().map(|entry| entry.not_kept).collect();
        let killed = Some(LossCause::Killed);
        assert_eq!((outcomes, unindexed), (vec![None, killed, killed], vec![]));
        assert!(
            index
                .entries()
                .skip(1)
                .all(|entry| entry.recording.is_none())
        );
    }
}

#[test]
fn a_failed_recording_is_noted_for_written_and_waiting_lines() {
    let dir = folder();
    let (mut store, _) = open(dir.path(), Budget::default());
    let path = store.tell(incident(NOON)).path.expect("it is allowed");
    fs::create_dir_all(path.join("in the way")).expect("the file is ours");
    let blocked = Blocked::index_of(dir.path());
    assert!(store.tell(incident(NOON + 2_000)).trouble.is_some());
    let recorded = record(&mut store);
    assert!(recorded.trouble.is_some() && recorded.path.is_none());
    blocked.end();
    store.close(NOON + 5_000).expect("the lines are written");
    let (index, _) = read_incidents(dir.path()).expect("a readable index");
    let outcomes: Vec<_> = index.entries().map(|entry| entry.not_kept).collect();
    assert_eq!(outcomes, [Some(LossCause::NotWritten); 2]);
}
