//! Files of the wrong kind, damaged files, and arbitrary bytes.

use proptest::prelude::*;

use crate::{open_bytes, perf, perfetto, trace_dat};

#[test]
fn a_file_of_the_wrong_kind_names_its_kind() {
    for (bytes, kind) in [
        (&b"\x1f\x8b\x08\0\0\0"[..], "a gzip archive"),
        (b"\x7fELF\x02\x01", "an executable"),
        (b"{\"traceEvents\":[]}", "Chrome's JSON format"),
        (b"[1, 2]", "a JSON document"),
        (b"PK\x03\x04", "a zip archive"),
    ] {
        let error = open_bytes(bytes).err().unwrap().to_string();
        assert!(error.contains(kind), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    for bytes in [&b""[..], b"1\n2\n3\n", b"PAR1"] {
        let error = open_bytes(bytes).err().unwrap().to_string();
        assert!(
            error.contains("recording") || error.contains("truncated"),
            "{error}"
        );
    }
}

/// Opens all beginnings of a file, in steps. None may panic, and each must balance or be refused.
fn truncate(bytes: &[u8]) {
    let step = (bytes.len() / 40).max(1);
    for length in (0..bytes.len()).step_by(step) {
        if let Err(error) = open_bytes(&bytes[..length]) {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}

#[test]
fn truncated_files_are_read_in_part_or_refused() {
    truncate(&perf::file());
    truncate(&trace_dat::version_6());
    truncate(&trace_dat::version_7());
    truncate(&perfetto::trace());
}

proptest! {
    #[test]
    fn damaged_files_do_not_panic(
        format in 0..4_usize,
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = [
            perf::file,
            trace_dat::version_6,
            trace_dat::version_7,
            perfetto::trace,
        ][format]();
        for (place, value) in places {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        // The accounts of a file that can be read balance, which `open_bytes` checks.
        let _ = open_bytes(&bytes);
    }

    #[test]
    fn any_text_around_events_is_accepted(text in "[ -~\n]{0,200}") {
        let trace = format!(
            "{text}\n x-10 [000] 1.000000: sched_switch: x:10 [120] S ==> swapper/0:0 [120]\n{text}"
        );
        let _ = open_bytes(trace.as_bytes());
    }
}
