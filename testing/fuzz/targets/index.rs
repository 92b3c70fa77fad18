//! Reads the index of a directory of incidents, as `ticktax incidents` does.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use ticktax_fuzz::{put, scratch};
use ticktax_store::incidents::read_incidents;

static FOLDER: LazyLock<TempDir> = LazyLock::new(scratch);

fuzz_target!(|bytes: &[u8]| {
    put(FOLDER.path(), "index.jsonl", bytes);
    if let Ok((index, _)) = read_incidents(FOLDER.path()) {
        std::hint::black_box((index.last_number(), index));
    }
});
