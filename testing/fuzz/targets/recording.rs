//! Reads a recording: its header and all rows.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ticktax_store::recording::RecordingReader;

fuzz_target!(init: ticktax_fuzz::allow_caught_panics(), |bytes: &[u8]| {
    let bytes = Bytes::copy_from_slice(bytes);
    let Ok(mut recording) = RecordingReader::from_bytes("fuzzed.parquet", bytes) else {
        return;
    };
    let mut rows = 0_u64;
    if recording.replay(&mut |_, _| rows += 1).is_ok() {
        assert_eq!(rows, recording.rows());
    }
});
