//! Reads a table from a Parquet file, such as an agent's facts or the results of a sweep.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use ticktax_fuzz::{put, scratch};
use ticktax_store::table::TableReader;

static FOLDER: LazyLock<TempDir> = LazyLock::new(scratch);

fuzz_target!(init: ticktax_fuzz::allow_caught_panics(), |bytes: &[u8]| {
    let file = put(FOLDER.path(), "table.parquet", bytes);
    let Ok(Some(table)) = TableReader::open(&file) else {
        return;
    };
    std::hint::black_box(table.metadata());
    let mut cells = 0;
    drop(table.rows(|row| cells += row.len()));
    std::hint::black_box(cells);
});
