//! Tests that saved recordings of schema 2 still open, and that no field of their headers is lost.

use std::fs;
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;
use ticktax_model::recording::Header;

use super::helpers::replay;
use crate::recording::RecordingReader;

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/schema2");
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|name| name.unwrap().path());
    let files: Vec<PathBuf> = names
        .filter(|path| path.extension().is_some_and(|ending| ending == "parquet"))
        .collect();
    assert_eq!(files.len(), 3);
    files
}

/// The header as stored in the file.
fn written(path: &Path) -> Value {
    let file = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let entries = file
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .unwrap();
    let entry = entries.iter().find(|entry| entry.key == "ticktax").unwrap();
    serde_json::from_str(entry.value.as_deref().unwrap()).unwrap()
}

/// Panics if `now` lacks a value that `then` contains.
fn require_kept(now: &Value, then: &Value, place: &str) {
    match then {
        Value::Object(fields) => {
            for (name, field) in fields {
                require_kept(&now[name], field, &format!("{place}.{name}"));
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                require_kept(&now[index], value, &format!("{place}[{index}]"));
            }
        }
        value => assert_eq!(now, value, "{place} is lost"),
    }
}

#[test]
fn no_field_of_a_header_is_lost() {
    for path in fixtures() {
        let then = written(&path);
        let header: Header = serde_json::from_value(then.clone()).unwrap();
        let now = serde_json::to_value(&header).unwrap();
        require_kept(&now, &then, "header");
    }
}

#[test]
fn every_row_reads() {
    for path in fixtures() {
        let mut reader = RecordingReader::open(&path).unwrap();
        let rows = reader.rows();
        assert!(rows > 0);
        assert_eq!(replay(&mut reader).unwrap().len() as u64, rows);
    }
}
