//! Tests a recorder whose disk becomes read-only and then writable again.

use std::fs;
use std::process::Command;

use libtest_mimic::Failed;
use serde_json::Value;

use super::fixture::{RecordingDir, check};

/// Script that runs in a mount namespace, which ends with the process. Once an incident's recording
/// is complete, the recorder has no file open for writing. The kernel may still have one open for a
/// moment, so the script retries.
const SCRIPT: &str = r#"
    mount -t tmpfs none "$1" || exit 9
    "$2" record --trigger signal --dir "$1/i" >"$3" 2>"$3.err" & recorder=$!
    wait_for() { until eval "$1"; do kill -0 $recorder || exit 8; sleep 0.1; done; }
    keep() {
        until "$ticktax" mark "$1" --dir "$folder" 2>/dev/null; do
            kill -0 $recorder || exit 8; sleep 0.1
        done
        wait_for 'grep -q "marked: $2" "$lines"' "$1"
    }
    ticktax="$2" folder="$1/i" lines="$3"
    keep first
    wait_for 'grep -q "line.:.recorded" "$folder/index.jsonl"'
    tries=0
    until mount -o remount,ro "$1"; do
        tries=$((tries + 1)); [ $tries -lt 100 ] || { kill $recorder; exit 7; }; sleep 0.1
    done
    keep second
    # One message for its line, one for its recording.
    wait_for '[ "$(grep -c read-only "$lines.err")" -ge 2 ]'
    mount -o remount,rw "$1" || exit 6
    keep third
    kill -TERM $recorder; wait $recorder; code=$?
    cat "$lines.err" >&2
    cat "$folder/index.jsonl"; exit $code
"#;

pub(crate) fn a_disk_can_become_read_only_and_writable_again() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let folder = dir.file("disk");
    fs::create_dir(&folder)?;
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", SCRIPT, "sh"])
        .arg(&folder)
        .arg(env!("CARGO_BIN_EXE_ticktax"))
        .arg(dir.file("lines"))
        .output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    check(output.status.success(), || {
        format!("{}: {complaint}", output.status)
    })?;
    check(complaint.contains("the file system is read-only"), || {
        complaint.to_string()
    })?;
    check(!complaint.contains("os error"), || complaint.to_string())?;
    let index = String::from_utf8(output.stdout)?;
    let lines: Result<Vec<Value>, _> = index.lines().map(serde_json::from_str).collect();
    let incidents: Vec<Value> = lines?
        .into_iter()
        .filter(|line| line["line"] == "incident")
        .collect();
    let outcomes = incidents.iter().map(|line| {
        let words = line["incident"]["text"].as_str().unwrap_or("");
        let not_kept = line["not_kept"].as_str().unwrap_or("kept");
        format!("{words}: {not_kept}")
    });
    let outcomes: Vec<String> = outcomes.collect();
    check(
        outcomes == ["first: kept", "second: not_written", "third: kept"],
        || index.clone(),
    )
}
