//! Reads the header of a recording that has no rows, and renders it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ticktax_analysis::RecordingAnalysis;
use ticktax_fuzz::write_down;
use ticktax_model::SourceTable;
use ticktax_model::recording::Header;

fuzz_target!(|json: &[u8]| {
    let Ok(header) = serde_json::from_slice::<Header>(json) else {
        return;
    };
    let sources = SourceTable::default();
    write_down(&RecordingAnalysis::new(&header).finish(&header, &sources, 1));
    write_down(&RecordingAnalysis::audit(&header).finish(&header, &sources, 1));
});
