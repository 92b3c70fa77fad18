//! Checks that flipped bits are detected, unless the flip changes no data.

use std::collections::BTreeMap;
use std::fs;

use bytes::Bytes;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{Header, Row};
use ticktax_model::{Source, SourceTable};

use super::helpers::{foreign_recording, replay, rows, write};
use crate::recording::{RecordingError, RecordingReader};

const FLIPS: u64 = 1_000;

fn bytes(sources: &SourceTable, rows: &[Row]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    write(&path, sources, rows);
    fs::read(&path).unwrap()
}

fn read(bytes: Vec<u8>) -> Result<(Header, Vec<(Source, Row)>), RecordingError> {
    let mut reader = RecordingReader::from_bytes("x.parquet", Bytes::from(bytes))?;
    let rows = replay(&mut reader)?;
    Ok((reader.header().clone(), rows))
}

/// Returns a deterministic pseudo-random number (splitmix64).
fn random(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add((index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Flips one bit at a time, and counts how often each outcome occurs.
fn flip(complete: &[u8], places: impl Iterator<Item = u64>) -> BTreeMap<&'static str, u32> {
    let original = read(complete.to_vec()).unwrap();
    let mut outcomes = BTreeMap::new();
    for bit in places {
        let (byte, mask) = (usize::try_from(bit / 8).unwrap(), 1 << (bit % 8));
        let mut flipped = complete.to_vec();
        flipped[byte] ^= mask;
        let kind = match read(flipped) {
            Ok(read) => {
                assert!(read == original, "bit {bit} changed the data unnoticed");
                "nothing changed"
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("x.parquet"), "bit {bit}: {text}");
                match error {
                    RecordingError::Damaged { .. } => "damaged",
                    RecordingError::Header { .. } => "no header",
                    RecordingError::Truncated { .. } => "cut short",
                    other => panic!("bit {bit} is not reported as damage: {other}"),
                }
            }
        };
        *outcomes.entry(kind).or_default() += 1;
    }
    outcomes
}

#[test]
fn flipped_bits_are_detected() {
    let (sources, rows) = rows();
    let (spans, sums): (Vec<Row>, Vec<Row>) = rows
        .into_iter()
        .cycle()
        .take(3_000)
        .partition(|row| matches!(row, Row::Span(_)));
    for (seed, rows) in [(1, spans), (2, sums)] {
        let complete = bytes(&sources, &rows);
        let bits = complete.len() as u64 * 8;
        let outcomes = flip(
            &complete,
            (0..FLIPS).map(|index| random(seed, index) % bits),
        );
        assert!(outcomes["damaged"] > 950, "{outcomes:?}");
    }
}

#[test]
fn every_byte_of_the_footer_is_covered() {
    let (sources, rows) = rows();
    let complete = bytes(&sources, &rows);
    let footer = complete.len() - 8;
    let length = <[u8; 4]>::try_from(&complete[footer..footer + 4]).unwrap();
    let begin = footer - u32::from_le_bytes(length) as usize;
    // Flip one bit in each byte, in a position that varies from byte to byte.
    let bits = (begin..complete.len()).map(|byte| (byte * 8 + byte % 8) as u64);
    let outcomes = flip(&complete, bits);
    assert_eq!(outcomes.get("nothing changed"), None, "{outcomes:?}");
}

#[test]
fn errors_name_the_damaged_rows() {
    let (sources, rows) = rows();
    let rows: Vec<Row> = rows.into_iter().cycle().take(150_000).collect();
    let complete = bytes(&sources, &rows);
    let mut flipped = complete.clone();
    flipped[complete.len() / 2] ^= 1;
    assert_eq!(
        read(flipped).unwrap_err().to_string(),
        "x.parquet is damaged: checksum mismatch in rows 65537 to 131072; copy it again, or make a \
         new recording"
    );
    let mut flipped = complete.clone();
    let place = complete
        .windows(9)
        .position(|bytes| bytes == b"r\xc3\xb6chling")
        .unwrap();
    flipped[place] ^= 1;
    assert_eq!(
        read(flipped).unwrap_err().to_string(),
        "x.parquet is damaged: checksum mismatch in the header and footer; copy it again, or make \
         a new \
         recording"
    );
}

#[test]
fn missing_checksums_are_damage_unless_another_program_wrote_the_file() {
    let (sources, rows) = rows();
    let mut complete = bytes(&sources, &rows);
    let key = b"ticktax-checksums";
    let place = complete.windows(key.len()).rposition(|bytes| bytes == key);
    complete[place.unwrap()] ^= 1;
    let error = read(complete).unwrap_err();
    assert!(matches!(error, RecordingError::Damaged { .. }), "{error}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    foreign_recording(&path);
    let (header, _) = read(fs::read(&path).unwrap()).unwrap();
    let limitations = header.coverage.limitations;
    assert_eq!(limitations, [Limitation::NotVerified]);
}

/// Returns the position of the last occurrence of `text`.
fn place_of(text: &str, bytes: &[u8]) -> usize {
    let mut windows = bytes.windows(text.len());
    windows
        .rposition(|window| window == text.as_bytes())
        .unwrap()
}

#[test]
fn another_writers_name_does_not_disable_the_checksums() {
    let (sources, rows) = rows();
    let complete = bytes(&sources, &rows);
    let mut renamed = complete.clone();
    renamed[place_of("ticktax version", &complete)] ^= 1;
    let mut changed = renamed.clone();
    changed[place_of("r\u{f6}chling", &complete)] ^= 1;
    for bytes in [renamed, changed] {
        let error = read(bytes).unwrap_err();
        assert!(matches!(error, RecordingError::Damaged { .. }), "{error}");
    }
}

#[test]
fn recordings_rewritten_by_other_tools_are_read_unverified() {
    let (sources, rows) = rows();
    let original = bytes(&sources, &rows);
    let (header, _) = read(original.clone()).unwrap();
    assert!(header.coverage.limitations.is_empty());
    // Change the file the way a rewriting tool would: it then contains the tool's own name, a copy
    // of ticktax's checksums, and different bytes before the footer.
    let mut rewritten = original.clone();
    rewritten[place_of("ticktax version", &original)] ^= 1;
    let (_, checksums) = original.split_at(place_of("crc32 ", &original));
    let colon = original.len() - checksums.len() + place_of(":", &checksums[..20]);
    rewritten[colon + 1] = if original[colon + 1] == b'0' {
        b'1'
    } else {
        b'0'
    };
    let (header, read) = read(rewritten).unwrap();
    assert_eq!(header.coverage.limitations, [Limitation::NotVerified]);
    assert_eq!(read.len(), rows.len());
}
