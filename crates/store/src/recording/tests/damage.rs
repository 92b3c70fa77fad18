//! Tests with damaged files and with files that are not recordings.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::helpers::{foreign, header, replay, rows, write};
use crate::recording::{RecordingError, RecordingReader, RecordingWriter};

const SAME: (&str, &str) = ("", "");

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    (folder, path)
}

/// Returns the error from opening the file or reading all of it.
fn error_of(path: &Path) -> RecordingError {
    let outcome = RecordingReader::open(path).and_then(|mut reader| replay(&mut reader));
    outcome.expect_err("it should not be read")
}

/// Returns the error message without the path of the temporary directory.
fn message(path: &Path) -> String {
    let text = error_of(path).to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains("os error"), "{text}");
    text.replace(&path.display().to_string(), "x.parquet")
}

/// Returns the header's key and JSON, with the first text of `edit` in the JSON replaced by the
/// second.
fn json(edit: (&str, &str)) -> (&'static str, String) {
    (
        "ticktax",
        serde_json::to_string(&header())
            .unwrap()
            .replace(edit.0, edit.1),
    )
}

#[test]
fn truncated_files_are_rejected_at_every_length() {
    let (_folder, path) = folder();
    let (sources, rows) = rows();
    write(&path, &sources, &rows);
    let complete = fs::read(&path).unwrap();
    for length in
        (0..complete.len())
            .step_by(13)
            .chain([1, 2, 3, 4, 7, 8, 11, 12, complete.len() - 1])
    {
        fs::write(&path, &complete[..length]).unwrap();
        assert_eq!(
            error_of(&path),
            RecordingError::Truncated { path: path.clone() },
            "{length}"
        );
    }
    assert_eq!(
        message(&path),
        "x.parquet is truncated or damaged at its end: copy it again, or make a new recording"
    );
}

#[test]
fn missing_bytes_do_not_cause_a_panic() {
    let (_folder, path) = folder();
    let (sources, rows) = rows();
    write(&path, &sources, &rows);
    let complete = fs::read(&path).unwrap();
    for cut in (4..complete.len() - 12).step_by(29) {
        let bytes = [&complete[..cut], &complete[cut + 8..]].concat();
        // If nothing refers to the missing bytes, reading may succeed. The test only checks that it
        // does not panic.
        let _ = RecordingReader::from_bytes("x", bytes.into())
            .and_then(|mut reader| replay(&mut reader));
    }
}

#[test]
fn files_other_than_parquet_are_rejected() {
    let (_folder, path) = folder();
    fs::write(&path, "#!/bin/sh\nexit 0\n").unwrap();
    assert_eq!(
        message(&path),
        "x.parquet is not a Parquet file, so it cannot be a recording: pass a file that `ticktax \
         audit` saved"
    );
}

#[test]
fn parquet_files_of_other_programs_are_rejected() {
    let (_folder, path) = folder();
    foreign(&path, SAME, "irq", None);
    assert_eq!(
        message(&path),
        "x.parquet is a Parquet file but not a ticktax recording: give a file written by `ticktax \
         audit`"
    );
}

#[test]
fn newer_recordings_ask_for_an_update() {
    let (_folder, path) = folder();
    foreign(
        &path,
        SAME,
        "irq",
        Some(json((r#""schema":4"#, r#""schema":7,"novelty":[]"#))),
    );
    assert_eq!(
        message(&path),
        "x.parquet was written by a newer ticktax (recording schema 7, but this version reads \
         up to 4): update ticktax"
    );
}

#[test]
fn impossible_schema_versions_are_rejected() {
    let (_folder, path) = folder();
    for schema in [0, 1] {
        let edit = format!(r#""schema":{schema}"#);
        let header = json((r#""schema":4"#, &edit));
        foreign(&path, SAME, "irq", Some(header));
        let expected = format!(
            "x.parquet has recording schema {schema}, which no version of ticktax writes: make a new recording"
        );
        assert_eq!(message(&path), expected);
    }
}

#[test]
fn damaged_headers_and_columns_have_different_errors() {
    let (_folder, path) = folder();
    foreign(&path, SAME, "irq", Some(("ticktax", "{".to_owned())));
    assert!(message(&path).starts_with("the header of x.parquet is damaged (EOF while parsing"));
    foreign(
        &path,
        SAME,
        "irq",
        Some(json((r#""level":"kernel""#, r#""level":"astral""#))),
    );
    assert!(message(&path).contains("unknown variant `astral`"));

    foreign(&path, (" self_ns;", " selfish;"), "irq", Some(json(SAME)));
    assert_eq!(
        message(&path),
        "the column `self_ns` of x.parquet is damaged (it is missing): copy the file again, or \
         make a new recording"
    );
    foreign(
        &path,
        ("INT64 start_ns;", "INT32 start_ns;"),
        "irq",
        Some(json(SAME)),
    );
    assert!(
        message(&path)
            .contains("`start_ns` of x.parquet is damaged (it contains values of type INT32)")
    );
    foreign(&path, SAME, "irq", Some(json(SAME)));
    assert!(message(&path).contains("`max_ns` of x.parquet is damaged (a row has no value)"));
}

#[test]
fn errors_name_an_unknown_kind() {
    let (_folder, path) = folder();
    foreign(
        &path,
        ("OPTIONAL INT64 max_ns", "REQUIRED INT64 max_ns"),
        "quark",
        Some(json(SAME)),
    );
    assert_eq!(
        message(&path),
        "the column `kind` of x.parquet contains `quark`, which this version does not know: update \
         ticktax, or make a new recording"
    );
}

#[test]
fn unreadable_files_are_explained_in_words() {
    let (folder, path) = folder();
    assert_eq!(
        message(&path),
        "cannot read the recording x.parquet: no such file or directory; check the path"
    );
    assert!(message(folder.path()).ends_with("it is a directory; give the path of a file"));
    assert!(message(Path::new("/dev/null")).contains("it is a device or pipe"));
}

#[test]
fn creation_errors_are_explained_in_words() {
    let (folder, _) = folder();
    let refused = |path: &Path| RecordingWriter::create(path).unwrap_err().to_string();
    let no_folder = refused(&folder.path().join("none/x.parquet"));
    assert!(no_folder.ends_with("its directory does not exist; create it, or choose another"));
    assert!(refused(folder.path()).ends_with("it is a directory; give the path of a file"));
    assert!(refused(Path::new("/dev/null")).ends_with("give the path of a regular file"));
    fs::write(folder.path().join("file"), "").unwrap();
    assert!(
        refused(&folder.path().join("file/x"))
            .ends_with("is a file, not a directory; check the path")
    );
    assert!(refused(&folder.path().join("n".repeat(300))).contains("the file name is too long"));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_bytes_are_rejected(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let framed = [b"PAR1".as_slice(), &bytes, b"PAR1"].concat();
        prop_assert!(RecordingReader::from_bytes("x", framed.into()).is_err());
        prop_assert!(RecordingReader::from_bytes("x", bytes.into()).is_err());
    }

    #[test]
    fn damaged_bytes_do_not_cause_a_panic(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = complete().to_vec();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        // Other tests check that flipped bits are detected. This one only checks that reading
        // terminates.
        if let Ok(mut reader) = RecordingReader::from_bytes("x", bytes.into()) {
            let _ = replay(&mut reader);
        }
    }
}

/// Returns the bytes of a recording, which is created only once.
fn complete() -> &'static [u8] {
    static COMPLETE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    COMPLETE.get_or_init(|| {
        let (_folder, path) = folder();
        let (sources, rows) = rows();
        write(&path, &sources, &rows);
        fs::read(&path).unwrap()
    })
}
