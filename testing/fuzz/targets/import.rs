//! Converts another tool's trace to a recording: ftrace text, perf.data, trace.dat or Perfetto.

#![no_main]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use ticktax_fuzz::{allow_caught_panics, put, scratch};
use ticktax_model::recording::Row;

static FOLDER: LazyLock<TempDir> = LazyLock::new(scratch);

fuzz_target!(init: allow_caught_panics(), |bytes: &[u8]| {
    let path = put(FOLDER.path(), "trace", bytes);
    let Ok(mut recording) = ticktax_import::open(&path) else {
        return;
    };
    if bytes.starts_with(b"PAR1") {
        return;
    }
    let mut accounted: BTreeMap<_, i64> = BTreeMap::new();
    let replayed = recording.replay(&mut |_, row| {
        if let Row::Span(span) = row {
            *accounted.entry(span.cpu).or_default() += span.self_time.0;
        }
    });
    replayed.expect("a converted recording can be read");
    for cpu in &recording.header().cpus {
        let own = accounted.get(&cpu.cpu).copied().unwrap_or_default();
        assert_eq!(own, cpu.elapsed().0, "the accounts of a converted recording balance");
    }
});
