//! Tests that saved recordings still yield the figures printed by the version that made the
//! recordings.
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use ticktax_analysis::Auditor;
use ticktax_model::recording::{RowSink, World};
use ticktax_model::statement::Statement;
use ticktax_store::recording::RecordingReader;

/// Reads a recording from `crates/store/tests/fixtures/schema2`, along with the output that the
/// program printed when it made the recording. Account names in the output are today's.
fn fixture(name: &str) -> (Statement, Value) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../store/tests/fixtures/schema2");
    let mut recording = RecordingReader::open(folder.join(format!("{name}.parquet"))).unwrap();
    let mut auditor = Auditor::for_recording(recording.header());
    let sources = recording
        .replay(&mut |sources, row| auditor.row(sources, row))
        .unwrap();
    let statement = auditor.finish(recording.header(), &sources, 1);
    let expected = fs::read(folder.join(format!("{name}.json"))).unwrap();
    (statement, serde_json::from_slice(&expected).unwrap())
}

#[test]
fn the_accounts_balance_and_equal_those_of_the_old_version() {
    for name in ["spans", "sums", "simulated"] {
        let (statement, expected) = fixture(name);
        assert!(statement.balance.imbalances.is_empty(), "{name}");
        assert_eq!(
            statement.balance.elapsed.0, expected["elapsed_ns"],
            "{name}"
        );
        let accounts: Vec<Value> = statement
            .accounts
            .iter()
            .map(|account| {
                serde_json::json!({
                    "class": account.class,
                    "name": account.name,
                    "pid": account.pid,
                    "count": account.intervals.count,
                    "time_ns": account.time.0,
                })
            })
            .collect();
        assert_eq!(Value::from(accounts), expected["accounts"], "{name}");
    }
}

#[test]
fn header_fields_are_read() {
    let (spans, _) = fixture("spans");
    let command = spans.command.as_ref().unwrap();
    assert_eq!(command.argv, ["sleep", "0.01"]);
    assert!(spans.victim.is_some_and(|victim| victim.threads.is_some()));
    assert!(!spans.probes.is_empty() && spans.gaps.is_some() && spans.clock.is_some());
    let (sums, _) = fixture("sums");
    assert!(!sums.soakers.is_empty() && sums.accounting.is_some());
    assert!(!sums.coverage.limitations.is_empty());
    let (simulated, _) = fixture("simulated");
    assert_eq!(simulated.world, World::Simulated);
}
