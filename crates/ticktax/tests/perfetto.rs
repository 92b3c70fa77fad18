//! Reads a trace that `--perfetto` wrote, using Perfetto's own descriptor.
//!
//! The Python package `perfetto` contains the descriptor. If it is not installed, the test is
//! reported as ignored.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Trial};
use ticktax_model::statement::Statement;

use common::{GAME, text, ticktax};

fn main() -> ExitCode {
    let import = "import perfetto.protos.perfetto.trace.perfetto_trace_pb2";
    let found = Command::new("python3").args(["-c", import]).output();
    let is_available = found.is_ok_and(|output| output.status.success());
    let name = "python::traces_match_perfettos_descriptor";
    let trial = Trial::test(name, || {
        traces_match_perfettos_descriptor();
        Ok(())
    });
    let trials = vec![trial.with_ignored_flag(!is_available)];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn traces_match_perfettos_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (scenario, recording, trace) = (path("x.toml"), path("x.parquet"), path("x.pftrace"));
    fs::write(&scenario, GAME.replace("30s", "2s")).unwrap();
    let output = ticktax(&["sim", "--load", &scenario, "--save", &recording]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let arguments = [
        "report",
        &recording,
        "--audit",
        "--format",
        "json",
        "--perfetto",
        &trace,
    ];
    let output = ticktax(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let statement: Statement = serde_json::from_slice(&output.stdout).unwrap();

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_trace.py");
    let read = Command::new("python3")
        .args([script, &trace])
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", text(&read.stderr));
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for line in text(&read.stdout).lines() {
        let (place, rest) = line.split_once('\t').unwrap();
        let (_, time) = rest.rsplit_once('\t').unwrap();
        *sums.entry(place.to_owned()).or_default() += time.parse::<i64>().unwrap();
    }
    for books in &statement.cpus {
        assert_eq!(sums[&format!("CPU {}", books.cpu)], books.elapsed.0);
    }
}
