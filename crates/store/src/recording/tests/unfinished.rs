//! Checks that unfinished recordings leave nothing behind.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use ticktax_model::recording::RowSink;

use super::helpers::{header, rows};
use crate::recording::{RecordingReader, RecordingWriter};

/// A disk that becomes full after a given number of bytes.
struct SmallDisk {
    file: File,
    room: usize,
}

impl Write for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let fitting = bytes.len().min(self.room);
        let written = self.file.write(&bytes[..fitting])?;
        self.room -= written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn dropped_writers_leave_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let (sources, rows) = rows();
    let mut writer = RecordingWriter::create(&path).unwrap();
    for row in &rows {
        writer.row(&sources, row);
    }
    assert!(
        names_in(folder.path()) != ["x.parquet"],
        "the file appears before it is complete"
    );
    drop(writer);
    assert!(names_in(folder.path()).is_empty());
}

#[test]
fn full_disks_are_reported_and_the_previous_file_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    fs::write(&path, "what was there").unwrap();
    let (sources, rows) = rows();
    for room in [0, 3, 4, 500, 2_000, 20_000] {
        let disk = |file| -> Box<dyn Write + Send> { Box::new(SmallDisk { file, room }) };
        let mut writer = RecordingWriter::create_through(&path, disk).unwrap();
        for row in rows.iter().cycle().take(150_000) {
            writer.row(&sources, row);
        }
        let early = writer.error().cloned();
        let error = writer.finish(&header()).unwrap_err();
        assert!(
            early.is_none() || early.as_ref() == Some(&error),
            "the first error is kept"
        );
        assert_eq!(
            error.to_string(),
            format!(
                "cannot write the recording {}: the disk is full; free some space, or choose \
                 another disk",
                path.display()
            ),
            "{room}"
        );
        assert_eq!(names_in(folder.path()), ["x.parquet"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "what was there");
    }
}

#[test]
fn errors_of_dev_full_are_reported_as_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let full = |_| -> Box<dyn Write + Send> {
        Box::new(File::options().write(true).open("/dev/full").unwrap())
    };
    let path = folder.path().join("x.parquet");
    let writer = RecordingWriter::create_through(&path, full).unwrap();
    let error = writer.finish(&header()).unwrap_err().to_string();
    assert!(error.contains("the disk is full"), "{error}");
    assert!(names_in(folder.path()).is_empty());
}

#[test]
fn headers_with_non_finite_numbers_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let mut header = header();
    header.clock.as_mut().unwrap().drift_ppm = f64::NAN;
    let writer = RecordingWriter::create(folder.path().join("x.parquet")).unwrap();
    assert!(
        writer
            .finish(&header)
            .unwrap_err()
            .to_string()
            .starts_with("the header of")
    );
    assert!(names_in(folder.path()).is_empty());
}

#[test]
fn links_are_replaced_and_their_targets_kept() {
    let folder = tempfile::tempdir().unwrap();
    let [path, link] = ["x.parquet", "latest"].map(|name| folder.path().join(name));
    fs::write(&path, "precious").unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    RecordingWriter::create(&link)
        .unwrap()
        .finish(&header())
        .unwrap();
    assert!(!link.is_symlink());
    assert!(RecordingReader::open(&link).is_ok());
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn concurrent_writers_of_the_same_name_do_not_interfere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let (first, second) = (
        RecordingWriter::create(&path).unwrap(),
        RecordingWriter::create(&path).unwrap(),
    );
    first.finish(&header()).unwrap();
    second.finish(&header()).unwrap();
    assert_eq!(names_in(folder.path()), ["x.parquet"]);
}
