//! Tests with incident directories that an attacker prepared to make ticktax delete, truncate or
//! show other files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use ticktax_fixture::header;
use ticktax_model::incident::{
    Incident, IncidentEntry, IncidentIndex, IndexLine, LossCause, TriggerKind,
};
use ticktax_model::{Nanos, SourceTable};

use super::index::NAME;
use super::{Budget, IncidentFolder, IncidentStore, read_incidents};
use crate::disk::Folder;
use crate::recording::RecordingWriter;

const NOON: i64 = 1_763_812_800_000;
const RECORDING: &str = "incident-20251122T120000.000Z.parquet";

/// An incident directory, and a file outside it.
struct IncidentDir {
    root: TempDir,
    folder: PathBuf,
    victim: PathBuf,
}

impl IncidentDir {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let [folder, victim] = ["incidents", "victim"].map(|name| root.path().join(name));
        fs::create_dir(&folder).expect("a folder");
        fs::write(&victim, "precious\nlines").expect("written");
        Self {
            root,
            folder,
            victim,
        }
    }

    fn index(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// Writes an index with an incident for each name, followed by the outcome of the recording
    /// with that name.
    fn write_index(&self, names: &[String]) {
        let mut text = "{\"line\":\"began\",\"at_unix_ms\":0}\n".to_owned();
        for (name, number) in names.iter().zip(1..) {
            let entry = IncidentEntry {
                number,
                recording: Some(name.clone()),
                bytes: 0,
                not_kept: None,
                incident: Incident::new(TriggerKind::Wait, NOON),
            };
            let recorded = IndexLine::Recorded {
                recording: name.clone(),
                bytes: 14,
            };
            for line in [IndexLine::Incident(Box::new(entry)), recorded] {
                text += &serde_json::to_string(&line).expect("JSON");
                text.push('\n');
            }
        }
        fs::write(self.index(), text).expect("written");
    }

    fn open(&self) -> Result<IncidentStore, String> {
        let budget = Budget {
            count: 0,
            bytes: 0,
            ..Budget::default()
        };
        let opened = IncidentStore::open(&self.folder, budget, NOON);
        opened
            .map(|(store, _)| store)
            .map_err(|error| error.to_string())
    }

    fn read(&self) -> IncidentIndex {
        read_incidents(&self.folder).expect("a readable index").0
    }

    fn victim_is_untouched(&self) {
        let kept = fs::read_to_string(&self.victim).expect("it is still there");
        assert_eq!(kept, "precious\nlines");
    }
}

/// Adds an incident to a directory and then removes recordings, because the budget allows none.
fn keep_and_make_room(store: &mut IncidentStore) {
    store.tell(Incident::new(TriggerKind::Wait, NOON));
    let recorded = store.record(&header(), &SourceTable::default(), Vec::new());
    assert_eq!(recorded.trouble, None);
}

fn one_line(error: &str) {
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn names_outside_the_folder_are_neither_removed_nor_read() {
    let dir = IncidentDir::new();
    let inside = dir.folder.join("notes.parquet");
    fs::write(&inside, "precious\nlines").expect("written");
    let names = [
        dir.victim.display().to_string(),
        "../victim".to_owned(),
        "notes.parquet".to_owned(),
        format!("{RECORDING}/../../victim"),
    ];
    dir.write_index(&names);
    let read = dir.read();
    assert_eq!((read.entries().count(), read.damaged), (0, 8));
    let mut store = dir.open().expect("it starts in spite of damaged lines");
    assert_eq!(store.kept.len(), 0);
    keep_and_make_room(&mut store);
    store.close(NOON).expect("a line");
    dir.victim_is_untouched();
    assert!(inside.exists());
    let reading = IncidentFolder::open(&dir.folder).expect("a folder");
    for name in &names {
        assert_eq!(reading.size(name), None);
        reading.recording(name).expect_err("refused");
    }
}

#[test]
fn a_link_instead_of_a_recording_is_not_followed() {
    let dir = IncidentDir::new();
    dir.write_index(&[RECORDING.to_owned()]);
    // Only the user who runs `incidents show` can read this recording.
    let folder = Folder::open(dir.root.path()).expect("a folder");
    let secret = RecordingWriter::create_in_folder(folder, "secret".as_ref()).expect("begun");
    secret.finish(&header()).expect("written");
    let link = dir.folder.join(RECORDING);
    symlink(dir.root.path().join("secret"), &link).expect("a link");
    let reading = IncidentFolder::open(&dir.folder).expect("a folder");
    let refused = reading.recording(RECORDING).expect_err("a link");
    let refused = refused.to_string();
    assert!(
        refused.contains("is not a regular file: move or remove it"),
        "{refused}"
    );
    one_line(&refused);
    assert_eq!(reading.size(RECORDING), None);
    let mut store = dir.open().expect("our folder");
    keep_and_make_room(&mut store);
    assert!(link.is_symlink() && dir.root.path().join("secret").exists());
}

#[test]
fn an_index_that_is_a_link_is_neither_truncated_nor_read() {
    let dir = IncidentDir::new();
    symlink(&dir.victim, dir.index()).expect("a link");
    let reading = read_incidents(&dir.folder).expect_err("a link");
    for refused in [dir.open().expect_err("a link"), reading.to_string()] {
        assert!(refused.contains("is not a regular file"), "{refused}");
        one_line(&refused);
    }
    dir.victim_is_untouched();
}

#[test]
fn an_index_that_becomes_a_link_is_not_written_to() {
    let dir = IncidentDir::new();
    let mut store = dir.open().expect("our folder");
    assert_eq!(store.began(NOON), None);
    fs::remove_file(dir.index()).expect("the file is ours");
    symlink(&dir.victim, dir.index()).expect("a link");
    assert!(store.lose(LossCause::Suppressed, 1).is_some());
    dir.victim_is_untouched();
}

#[test]
fn a_file_with_other_lines_is_not_truncated() {
    let dir = IncidentDir::new();
    for text in ["precious\nlines", "precious", "{\"lines\":1}\n{\"line"] {
        fs::write(dir.index(), text).expect("written");
        let refused = dir.open().expect_err("not an index");
        assert!(
            refused.contains("is not an index of incidents: move or remove it"),
            "{refused}"
        );
        one_line(&refused);
        let kept = fs::read_to_string(dir.index()).expect("a file");
        assert_eq!(kept, text);
    }
}

#[test]
fn a_huge_index_is_refused() {
    let dir = IncidentDir::new();
    let file = fs::File::create(dir.index()).expect("made");
    file.set_len(1 << 40).expect("a sparse file");
    let reading = read_incidents(&dir.folder).expect_err("1 TiB");
    for refused in [dir.open().expect_err("1 TiB"), reading.to_string()] {
        assert!(refused.contains("is larger than 8 MiB"), "{refused}");
        one_line(&refused);
    }
}

#[test]
fn the_largest_number_does_not_overflow() {
    let dir = IncidentDir::new();
    dir.write_index(&[RECORDING.to_owned()]);
    let text = fs::read_to_string(dir.index()).expect("an index");
    let text = text.replace("\"number\":1,", &format!("\"number\":{},", u64::MAX));
    fs::write(dir.index(), text).expect("written");
    fs::write(dir.folder.join(RECORDING.replace("000Z", "001Z")), "").expect("written");
    let reading = IncidentFolder::open(&dir.folder).expect("a folder");
    let (mut index, unindexed) = reading.read().expect("a readable index");
    assert_eq!(index.last_number(), u64::MAX);
    reading.add_found(
        &mut index,
        &unindexed[0],
        Incident::new(TriggerKind::Wait, NOON),
    );
    let mut store = dir.open().expect("our folder");
    store.tell(Incident::new(TriggerKind::Wait, NOON));
}

#[test]
fn a_folder_or_index_that_others_can_write_to_is_refused() {
    let dir = IncidentDir::new();
    drop(dir.open().expect("our folder"));
    for path in [dir.folder.clone(), dir.index()] {
        let before = fs::metadata(&path).expect("the file exists").permissions();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).expect("a mode");
        let refused = dir.open().expect_err("others can write");
        assert!(
            refused.starts_with("cannot store incidents in"),
            "{refused}"
        );
        assert!(
            refused.contains("other users can write to") && refused.contains("chmod go-w"),
            "{refused}"
        );
        one_line(&refused);
        // A directory does not have to be trusted for reading.
        dir.read();
        fs::set_permissions(&path, before).expect("a mode");
    }
    dir.open().expect("the folder is ours again");
}

#[test]
fn unfinished_files_with_other_names_stay() {
    let dir = IncidentDir::new();
    let hidden = format!(".{RECORDING}.17-0.part");
    let others = [
        ".incident-mine.17-0.part".to_owned(),
        format!(".{RECORDING}.x.part"),
        format!(".{RECORDING}.part"),
    ];
    for name in others.iter().chain([&hidden]) {
        fs::write(dir.folder.join(name), "half").expect("written");
    }
    let link = dir.folder.join(format!(".{RECORDING}.18-0.part"));
    symlink(&dir.victim, link).expect("a link");
    drop(dir.open().expect("our folder"));
    assert!(!dir.folder.join(hidden).exists());
    for other in others {
        assert!(dir.folder.join(&other).exists(), "{other}");
    }
    dir.victim_is_untouched();
}

mod root {
    use std::os::unix::fs::{MetadataExt, chown};

    use super::*;

    /// User id of `nobody` on all distributions.
    const SOMEBODY: u32 = 65_534;

    fn give_away(path: &Path) {
        chown(path, Some(SOMEBODY), Some(SOMEBODY)).expect("root gives it away");
    }

    #[test]
    fn a_folder_an_index_and_a_parent_of_another_user_are_refused() {
        for theirs in ["incidents", "incidents/index.jsonl", ""] {
            let dir = IncidentDir::new();
            if fs::metadata(&dir.folder).expect("a folder").uid() != 0 {
                return;
            }
            drop(dir.open().expect("our folder"));
            give_away(&dir.root.path().join(theirs));
            let refused = dir.open().expect_err("another user owns it");
            assert!(refused.contains("user 65534"), "{refused}");
            one_line(&refused);
            dir.read();
        }
    }
}

#[test]
fn lines_with_impossible_times_count_as_damaged() {
    let dir = IncidentDir::new();
    for (at, lasted, damaged) in [
        (NOON, 0, 0),
        (i64::MAX, 0, 1),
        (i64::MIN, 0, 1),
        (NOON, i64::MAX, 1),
        (NOON, -1, 1),
    ] {
        let incident = Incident {
            lasted: Nanos(lasted),
            ..Incident::new(TriggerKind::Wait, at)
        };
        let entry = IncidentEntry {
            number: 1,
            recording: None,
            bytes: 0,
            not_kept: None,
            incident,
        };
        let line = IndexLine::Incident(Box::new(entry));
        let line = serde_json::to_string(&line).expect("JSON") + "\n";
        fs::write(dir.index(), line).expect("written");
        assert_eq!(dir.read().damaged, damaged, "{at} {lasted}");
    }
}
