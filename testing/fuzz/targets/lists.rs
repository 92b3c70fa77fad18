//! Reads two lists of numbers or distributions, as `ticktax compare` does. They come from text,
//! CSV, TSV, a hyperfine export, or another tool's output.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use ticktax_trial::numbers::{NumberFiles, Question};
use ticktax_fuzz::{SEPARATOR, put, scratch, write_down};

static FOLDER: LazyLock<TempDir> = LazyLock::new(scratch);

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, rest)) = bytes.split_first() else {
        return;
    };
    let ending = match kind % 5 {
        0 => "txt",
        1 => "csv",
        2 => "tsv",
        3 => "json",
        // Logs of fio are known by their names.
        _ => "_lat.1.log",
    };
    let mut lists = rest.splitn(2, |&byte| byte == SEPARATOR);
    let first = lists.next().unwrap_or_default();
    let second = lists.next().unwrap_or(first);
    let first = put(FOLDER.path(), &format!("first.{ending}"), first);
    let second = put(FOLDER.path(), &format!("second.{ending}"), second);
    let Ok(Some(files)) = NumberFiles::open(&first, &second) else {
        return;
    };
    if let Ok(comparison) = files.compare(&Question::default(), "fuzzed") {
        write_down(&comparison.into());
    }
});
