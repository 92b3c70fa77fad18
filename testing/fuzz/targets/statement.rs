//! Reads a recording and renders its statement.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ticktax_analysis::RecordingAnalysis;
use ticktax_fuzz::write_down;
use ticktax_store::recording::RecordingReader;

fuzz_target!(init: ticktax_fuzz::allow_caught_panics(), |bytes: &[u8]| {
    let bytes = Bytes::copy_from_slice(bytes);
    let Ok(mut recording) = RecordingReader::from_bytes("fuzzed.parquet", bytes) else {
        return;
    };
    if let Ok(document) = RecordingAnalysis::document(&mut recording, 1) {
        write_down(&document);
    }
});
