//! Recordings of schema 1 lose nothing of their headers.

use std::fs;
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Value, json};
use ticktax_model::recording::{Header, SCHEMA_VERSION};

use super::super::schema_1;
use super::helpers::replay;
use crate::recording::RecordingReader;

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/schema1");
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|name| name.unwrap().path());
    names
        .filter(|path| path.extension().is_some_and(|ending| ending == "parquet"))
        .collect()
}

/// The header as the file has it.
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

fn of(name: &str) -> Value {
    let mut fixtures = fixtures().into_iter();
    let path = fixtures.find(|path| path.file_stem().is_some_and(|stem| stem == name));
    written(&path.unwrap())
}

/// Panics where `then` says something that `now` does not.
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
        value => assert_eq!(
            now, value,
            "{place} is lost: a line is missing in schema_1.rs"
        ),
    }
}

fn require_header_kept(mut header: Value) {
    schema_1::upgrade(&mut header);
    let translated = header;
    let header: Header = serde_json::from_value(translated.clone()).unwrap();
    assert_eq!(header.schema, SCHEMA_VERSION);
    let now = serde_json::to_value(&header).unwrap();
    require_kept(&now, &translated, "header");
}

#[test]
fn nothing_of_a_header_is_lost() {
    assert_eq!(fixtures().len(), 3);
    for path in fixtures() {
        require_header_kept(written(&path));
    }
}

/// What no machine has that the fixtures were made on.
#[test]
fn what_the_fixtures_lack_is_kept() {
    let mut header = of("spans");
    header["machine"]["configured"]["frequency"] = json!([{
        "cpus": "0-3", "driver": "acpi-cpufreq", "governor": "schedutil",
        "most_khz": 3_000_000, "hardware_most_khz": 3_500_000,
    }]);
    header["machine"]["configured"]["wake_latency"] =
        json!({"micros": 20, "holders": ["audio (71)"]});
    header["after"]["run_queue"] = json!({"samples": 5, "threads": 9, "most": 4});
    header["after"]["throttling"] =
        json!({"cgroup": "/x", "periods": 5, "throttled": 2, "time": 4_000});
    header["coverage"]["lost"] = json!([{"cpu": 1, "events": 2, "self_time": 3, "gaps": 4}]);
    header["probes"] = json!([{
        "probe": "spin", "cpu": 1, "tid": 7, "policy": "SCHED_IDLE", "period": 11,
        "threshold": 100, "turns": 5, "begin": 1, "end": 2,
        "ended_early": "the probe's thread on CPU 1 was moved to CPU 0",
    }]);
    header["cost"]["tracer"] = json!(12_000);
    require_header_kept(header);
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
