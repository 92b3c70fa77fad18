//! Damaged and foreign files.

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

/// The error of opening and reading a file.
fn error_of(path: &Path) -> RecordingError {
    let outcome = RecordingReader::open(path).and_then(|mut reader| replay(&mut reader));
    outcome.expect_err("it should not be read")
}

/// The message without the folder, which differs between runs.
fn message(path: &Path) -> String {
    let text = error_of(path).to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains("os error"), "{text}");
    text.replace(&path.display().to_string(), "x.parquet")
}

/// The header under its key, with `edit` applied to its text.
fn json(edit: (&str, &str)) -> (&'static str, String) {
    (
        "ticktax",
        serde_json::to_string(&header())
            .unwrap()
            .replace(edit.0, edit.1),
    )
}

#[test]
fn a_file_cut_short_is_refused_at_every_length() {
    let (_folder, path) = folder();
    let (sources, rows) = rows();
    write(&path, &sources, &rows);
    let whole = fs::read(&path).unwrap();
    for length in (0..whole.len())
        .step_by(13)
        .chain([1, 2, 3, 4, 7, 8, 11, 12, whole.len() - 1])
    {
        fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(
            error_of(&path),
            RecordingError::Truncated { path: path.clone() },
            "{length}"
        );
    }
    assert_eq!(
        message(&path),
        "x.parquet is cut short, or damaged at its end: copy it again in full, or record anew"
    );
}

#[test]
fn a_file_with_bytes_missing_in_the_middle_never_panics() {
    let (_folder, path) = folder();
    let (sources, rows) = rows();
    write(&path, &sources, &rows);
    let whole = fs::read(&path).unwrap();
    for cut in (4..whole.len() - 12).step_by(29) {
        let bytes = [&whole[..cut], &whole[cut + 8..]].concat();
        // Unused bytes may be missing.
        let _ = RecordingReader::from_bytes("x", bytes.into()).and_then(|mut r| replay(&mut r));
    }
}

#[test]
fn a_file_that_is_no_parquet_file_is_refused() {
    let (_folder, path) = folder();
    fs::write(&path, "#!/bin/sh\nexit 0\n").unwrap();
    assert_eq!(
        message(&path),
        "x.parquet is not a recording, nor a Parquet file at all: name a file that `ticktax \
         audit` wrote"
    );
}

#[test]
fn a_parquet_file_of_another_program_is_refused() {
    let (_folder, path) = folder();
    foreign(&path, SAME, "irq", None);
    assert_eq!(
        message(&path),
        "x.parquet is a Parquet file but not a ticktax recording: name a file that `ticktax \
         audit` wrote"
    );
}

#[test]
fn a_newer_recording_asks_for_an_update() {
    let (_folder, path) = folder();
    foreign(
        &path,
        SAME,
        "irq",
        Some(json((r#""schema":2"#, r#""schema":7,"novelty":[]"#))),
    );
    assert_eq!(
        message(&path),
        "x.parquet was written by a newer ticktax (recording schema 7, this one reads up to 2); \
         update ticktax"
    );
}

#[test]
fn an_old_schema_is_refused() {
    let (_folder, path) = folder();
    for schema in [0, 1] {
        let edit = format!(r#""schema":{schema}"#);
        let header = json((r#""schema":2"#, &edit));
        foreign(&path, SAME, "irq", Some(header));
        let expected = format!(
            "x.parquet says recording schema {schema}, which no ticktax writes: record anew"
        );
        assert_eq!(message(&path), expected);
    }
}

#[test]
fn a_damaged_header_is_told_from_a_damaged_column() {
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
         record anew"
    );
    foreign(
        &path,
        ("INT64 start_ns;", "INT32 start_ns;"),
        "irq",
        Some(json(SAME)),
    );
    assert!(
        message(&path)
            .contains("`start_ns` of x.parquet is damaged (it holds values of type INT32)")
    );
    foreign(&path, SAME, "irq", Some(json(SAME)));
    assert!(message(&path).contains("`max_ns` of x.parquet is damaged (a row has no value)"));
}

#[test]
fn an_unknown_kind_is_named() {
    let (_folder, path) = folder();
    foreign(
        &path,
        ("OPTIONAL INT64 max_ns", "REQUIRED INT64 max_ns"),
        "quark",
        Some(json(SAME)),
    );
    assert_eq!(
        message(&path),
        "the column `kind` of x.parquet says `quark`, which this ticktax does not know: update \
         ticktax, or record anew"
    );
}

#[test]
fn what_is_no_readable_file_is_said_in_words() {
    let (folder, path) = folder();
    assert_eq!(
        message(&path),
        "cannot read the recording x.parquet: no such file or folder; check the path"
    );
    assert!(message(folder.path()).ends_with("it is a folder; name a file in it"));
    assert!(message(Path::new("/dev/null")).contains("it is a device or a pipe"));
}

#[test]
fn what_cannot_be_created_is_said_in_words() {
    let (folder, _) = folder();
    let refused = |path: &Path| RecordingWriter::create(path).unwrap_err().to_string();
    let no_folder = refused(&folder.path().join("none/x.parquet"));
    assert!(no_folder.ends_with("its folder does not exist; make it first, or choose another"));
    assert!(refused(folder.path()).ends_with("it is a folder; name a file in it"));
    assert!(refused(Path::new("/dev/null")).ends_with("not a file; name a file"));
    fs::write(folder.path().join("file"), "").unwrap();
    assert!(refused(&folder.path().join("file/x")).ends_with("is a file, not a folder"));
    assert!(refused(&folder.path().join("n".repeat(300))).contains("the name is too long"));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let framed = [b"PAR1".as_slice(), &bytes, b"PAR1"].concat();
        prop_assert!(RecordingReader::from_bytes("x", framed.into()).is_err());
        prop_assert!(RecordingReader::from_bytes("x", bytes.into()).is_err());
    }

    #[test]
    fn damaged_bytes_never_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
    ) {
        let mut bytes = whole().to_vec();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        // `flips.rs` checks that damage is found; this only checks that the reader returns.
        if let Ok(mut reader) = RecordingReader::from_bytes("x", bytes.into()) {
            let _ = replay(&mut reader);
        }
    }
}

/// A recording's bytes, made once.
fn whole() -> &'static [u8] {
    static WHOLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    WHOLE.get_or_init(|| {
        let (_folder, path) = folder();
        let (sources, rows) = rows();
        write(&path, &sources, &rows);
        fs::read(&path).unwrap()
    })
}
