//! A flipped bit is detected, or changes nothing.

use std::collections::BTreeMap;
use std::fs;

use bytes::Bytes;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{Header, Row};
use ticktax_model::{Source, SourceTable};

use super::helpers::{foreign_recording, replay, rows, write};
use crate::recording::{RecordingError, RecordingReader};

const FLIPS: u64 = 1_000;

/// A recording's bytes.
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

/// The same numbers for the same seed (splitmix64).
fn random(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add((index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Flips bits one at a time. Returns how often each kind of error was reported.
fn flip(whole: &[u8], places: impl Iterator<Item = u64>) -> BTreeMap<&'static str, u32> {
    let right = read(whole.to_vec()).unwrap();
    let mut told = BTreeMap::new();
    for bit in places {
        let (byte, mask) = (usize::try_from(bit / 8).unwrap(), 1 << (bit % 8));
        let mut flipped = whole.to_vec();
        flipped[byte] ^= mask;
        let kind = match read(flipped) {
            Ok(read) => {
                assert!(read == right, "bit {bit} changed what was read, unnoticed");
                "nothing changed"
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("x.parquet"), "bit {bit}: {text}");
                match error {
                    RecordingError::Damaged { .. } => "damaged",
                    RecordingError::Header { .. } => "no header",
                    RecordingError::Truncated { .. } => "cut short",
                    other => panic!("bit {bit} is not told as damage: {other}"),
                }
            }
        };
        *told.entry(kind).or_default() += 1;
    }
    told
}

#[test]
fn a_thousand_flipped_bits_are_found() {
    let (sources, rows) = rows();
    let (spans, sums): (Vec<Row>, Vec<Row>) = rows
        .into_iter()
        .cycle()
        .take(3_000)
        .partition(|row| matches!(row, Row::Span(_)));
    for (seed, rows) in [(1, spans), (2, sums)] {
        let whole = bytes(&sources, &rows);
        let bits = whole.len() as u64 * 8;
        let told = flip(&whole, (0..FLIPS).map(|index| random(seed, index) % bits));
        assert!(told["damaged"] > 950, "{told:?}");
    }
}

#[test]
fn each_bit_of_the_footer_is_covered() {
    let (sources, rows) = rows();
    let whole = bytes(&sources, &rows);
    let footer = whole.len() - 8;
    let length = <[u8; 4]>::try_from(&whole[footer..footer + 4]).unwrap();
    let begin = footer - u32::from_le_bytes(length) as usize;
    // One bit of each byte, at changing positions.
    let bits = (begin..whole.len()).map(|byte| (byte * 8 + byte % 8) as u64);
    let told = flip(&whole, bits);
    assert_eq!(told.get("nothing changed"), None, "{told:?}");
}

#[test]
fn the_damaged_rows_are_named() {
    let (sources, rows) = rows();
    let rows: Vec<Row> = rows.into_iter().cycle().take(150_000).collect();
    let whole = bytes(&sources, &rows);
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    assert_eq!(
        read(flipped).unwrap_err().to_string(),
        "x.parquet is damaged: rows 65537 to 131072 are not what was written, by the checksum; \
         copy it again, or record anew"
    );
    let mut flipped = whole.clone();
    let place = whole
        .windows(9)
        .position(|bytes| bytes == b"r\xc3\xb6chling")
        .unwrap();
    flipped[place] ^= 1;
    assert_eq!(
        read(flipped).unwrap_err().to_string(),
        "x.parquet is damaged: the header and the places of the columns are not what was written, \
         by the checksum; copy it again, or record anew"
    );
}

#[test]
fn a_file_that_lost_its_checksums_is_damaged_and_one_of_another_program_has_none() {
    let (sources, rows) = rows();
    let mut whole = bytes(&sources, &rows);
    let key = b"ticktax-checksums";
    let place = whole.windows(key.len()).rposition(|bytes| bytes == key);
    whole[place.unwrap()] ^= 1;
    let error = read(whole).unwrap_err();
    assert!(matches!(error, RecordingError::Damaged { .. }), "{error}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    foreign_recording(&path);
    let (header, _) = read(fs::read(&path).unwrap()).unwrap();
    let limitations = header.coverage.limitations;
    assert_eq!(limitations, [Limitation::NotVerified]);
}

/// Offset of the last occurrence of `text`.
fn place_of(text: &str, bytes: &[u8]) -> usize {
    let mut windows = bytes.windows(text.len());
    windows
        .rposition(|window| window == text.as_bytes())
        .unwrap()
}

#[test]
fn another_makers_name_does_not_switch_the_checksums_off() {
    let (sources, rows) = rows();
    let whole = bytes(&sources, &rows);
    let mut renamed = whole.clone();
    renamed[place_of("ticktax version", &whole)] ^= 1;
    let mut changed = renamed.clone();
    changed[place_of("r\u{f6}chling", &whole)] ^= 1;
    for bytes in [renamed, changed] {
        let error = read(bytes).unwrap_err();
        assert!(matches!(error, RecordingError::Damaged { .. }), "{error}");
    }
}

#[test]
fn a_recording_that_another_tool_rewrote_is_read_and_not_verified() {
    let (sources, rows) = rows();
    let right = bytes(&sources, &rows);
    let (header, _) = read(right.clone()).unwrap();
    assert!(header.coverage.limitations.is_empty());
    // The result of such a tool: its own name, our checksums, and other bytes before the footer.
    let mut rewritten = right.clone();
    rewritten[place_of("ticktax version", &right)] ^= 1;
    let (_, checksums) = right.split_at(place_of("crc32 ", &right));
    let colon = right.len() - checksums.len() + place_of(":", &checksums[..20]);
    rewritten[colon + 1] = if right[colon + 1] == b'0' { b'1' } else { b'0' };
    let (header, read) = read(rewritten).unwrap();
    assert_eq!(header.coverage.limitations, [Limitation::NotVerified]);
    assert_eq!(read.len(), rows.len());
}
