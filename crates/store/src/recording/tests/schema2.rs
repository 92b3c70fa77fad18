//! Checks that saved recordings of schema version 2 can still be opened, and that no field in their
//! headers is lost.

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

/// Returns the header from the file, without conversion.
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

/// Fields of the saved headers that have been renamed: the object that the field belongs to, the
/// old name and the new name.
const RENAMED: &[(&str, &str, &str)] = &[
    ("header", "books", "cpus"),
    ("header", "witnesses", "cross_checks"),
    ("cost", "apart", "avoided_program_cpus"),
    ("probes", "turns", "iterations"),
    ("sysctl", "others", "other_values"),
    ("sysctl", "place", "location"),
    ("sysctl", "live", "effective"),
    ("programs", "own_or_kernel", "ticktax_or_kernel"),
    ("limitations", "what", "topic"),
    ("limitations", "why", "reason"),
    ("incomplete", "what", "topic"),
    ("incomplete", "why", "reason"),
];

/// Values that have been renamed: old and new.
const RENAMED_VALUES: [(&str, &str); 1] = [("sched_process_fork", "task_newtask")];

/// Panics if `then` contains a value that `now` lacks. `object` is the name of the innermost field
/// that contains both.
fn require_kept(now: &Value, then: &Value, object: &str, place: &str) {
    match then {
        Value::Object(fields) => {
            for (name, field) in fields {
                let renamed = RENAMED
                    .iter()
                    .find(|(container, old, _)| (*container, *old) == (object, &**name));
                let new_name = renamed.map_or(&**name, |(.., new)| *new);
                // A key of a map is not a field name.
                let is_key = name.bytes().all(|byte| byte.is_ascii_digit());
                let inner = if is_key { object } else { name };
                require_kept(&now[new_name], field, inner, &format!("{place}.{name}"));
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                require_kept(&now[index], value, object, &format!("{place}[{index}]"));
            }
        }
        value => {
            let renamed = RENAMED_VALUES.iter().find(|(old, _)| value == old);
            let value = renamed.map_or(value.clone(), |(_, new)| Value::from(*new));
            assert_eq!(now, &value, "{place} is lost");
        }
    }
}

#[test]
fn no_field_of_a_header_is_lost() {
    for path in fixtures() {
        let then = written(&path);
        let header: Header = serde_json::from_value(then.clone()).unwrap();
        let now = serde_json::to_value(&header).unwrap();
        require_kept(&now, &then, "header", "header");
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
