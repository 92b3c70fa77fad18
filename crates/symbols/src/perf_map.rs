//! Perf maps: text files in which runtimes with just-in-time compilers list the functions that they
//! generate. Each line is `START SIZE NAME`, with hexadecimal numbers.

use std::io::{self, BufRead, BufReader, Read};

use crate::demangle::readable;
use crate::error::check;
use crate::places::{NamedPlaces, combined};
use crate::{Pause, SymbolError};

/// Maximum number of bytes read from a map.
const MOST_READ: u64 = 64 << 20;

/// Maximum length of a line. Longer lines are skipped.
const LONGEST_LINE: usize = 4 << 10;

/// Maximum number of times that lines may name addresses. A map needs more only if all of its
/// lines overlap.
const MOST_NAMED: u64 = 1 << 22;

/// Number of bytes read at once.
const CHUNK: usize = 16 << 10;

/// Finds the functions that a perf map lists at `addresses`. Skips malformed lines. Memory can be
/// reused for another function, which is appended to the map, so the last line that contains an
/// address counts. `pause` is called after each chunk.
///
/// # Errors
/// Returns an error if the map cannot be read, or is too large to be read to its end.
pub fn functions_in_map(
    map: impl Read,
    addresses: &[u64],
    pause: Pause<'_>,
) -> Result<Vec<NamedPlaces>, SymbolError> {
    let mut addresses = addresses.to_vec();
    addresses.sort_unstable();
    addresses.dedup();
    let mut names: Vec<Option<Box<str>>> = vec![None; addresses.len()];
    let mut map = BufReader::with_capacity(CHUNK, map.take(MOST_READ + 1));
    let (mut line, mut read, mut since_pause, mut named) = (Vec::new(), 0, 0, 0);
    loop {
        line.clear();
        let length = next_line(&mut map, &mut line)?;
        if length == 0 {
            break;
        }
        read += length as u64;
        since_pause += length;
        if since_pause >= CHUNK {
            since_pause = 0;
            pause();
        }
        check("perf map", read, MOST_READ)?;
        let Some((start, size, name)) = entry(&line) else {
            continue;
        };
        let end = start.saturating_add(size);
        let first = addresses.partition_point(|&address| address < start);
        let last = addresses.partition_point(|&address| address < end);
        let covered = &mut names[first..last.max(first)];
        named += covered.len() as u64;
        check("overlap of a perf map", named, MOST_NAMED)?;
        for found in covered {
            *found = Some(name.into());
        }
    }
    let names = names.into_iter().map(|name| name.as_deref().map(readable));
    Ok(combined(addresses.into_iter().zip(names)))
}

/// Reads a line and returns its length, which is 0 at the end of the file. If the line is too long,
/// `line` is left empty.
fn next_line(map: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    let mut length = 0;
    loop {
        let chunk = map.fill_buf()?;
        let end = memchr::memchr(b'\n', chunk);
        let taken = end.map_or(chunk.len(), |end| end + 1);
        length += taken;
        if length <= LONGEST_LINE {
            line.extend_from_slice(&chunk[..taken]);
        } else {
            line.clear();
        }
        map.consume(taken);
        if taken == 0 || end.is_some() {
            return Ok(length);
        }
    }
}

/// Parses a line. Some runtimes write `0x` before the numbers.
fn entry(line: &[u8]) -> Option<(u64, u64, &str)> {
    // A line that is still being written has no end.
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let mut words = line.splitn(3, ' ');
    let mut number = || {
        let word = words.next()?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = words.next()?.trim();
    (!name.is_empty()).then_some((start, size, name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LONGEST_LINE, functions_in_map};
    use crate::SymbolError;

    fn names(map: &[u8], addresses: &[u64]) -> Vec<(u64, u64, String)> {
        let found = functions_in_map(map, addresses, &mut || {}).unwrap();
        let found = found.into_iter();
        found
            .map(|places| (places.first, places.last, places.function))
            .collect()
    }

    fn name_at(map: &[u8], address: u64) -> Option<String> {
        names(map, &[address]).pop().map(|(_, _, name)| name)
    }

    #[test]
    fn addresses_are_found() {
        let map = b"1000 20 py::update:/srv/game.py\n0x2000 0x10 Lcom/example/Game;::tick\n";
        let name = |address| name_at(map, address);
        assert_eq!(name(0xfff), None);
        assert_eq!(name(0x1000).as_deref(), Some("py::update:/srv/game.py"));
        assert_eq!(name(0x101f).as_deref(), Some("py::update:/srv/game.py"));
        assert_eq!(name(0x1020), None);
        assert_eq!(
            name(0x2008).as_deref(),
            Some("Lcom/example/Game\u{fffd}::tick")
        );
    }

    #[test]
    fn the_last_entry_wins() {
        let map = b"1000 100 old\n1040 20 new\n";
        let expected = [
            (0x1000, 0x1000, "old".to_owned()),
            (0x1040, 0x105f, "new".to_owned()),
            (0x1060, 0x1060, "old".to_owned()),
        ];
        assert_eq!(names(map, &[0x1060, 0x1040, 0x1000, 0x105f]), expected);
    }

    #[test]
    fn bad_lines_are_skipped() {
        let long = format!("1000 20 {}\n", "x".repeat(LONGEST_LINE));
        for bad in [
            "\n",
            "1000\n",
            "1000 20\n",
            "1000 20 \n",
            "xyz 20 f\n",
            "1000 -1 f\n",
            "1000 0 f\n",
            "11112222333344445 20 f\n",
            &long,
            "1000 20 \u{fffd}",
        ] {
            assert_eq!(name_at(bad.as_bytes(), 0x1000), None, "{bad:?}");
            let with_good = format!("1000 20 good\n{bad}");
            assert_eq!(
                name_at(with_good.as_bytes(), 0x1000).as_deref(),
                Some("good")
            );
        }
        assert_eq!(name_at(b"1000 20 f\xff\n", 0x1000), None);
        assert_eq!(name_at(b"ffffffffffffffff ff f\n", u64::MAX), None);
    }

    #[test]
    fn an_endless_map_is_refused() {
        let mut pauses = 0_u64;
        let error = functions_in_map(std::io::repeat(b'x'), &[1], &mut || pauses += 1);
        assert!(matches!(error, Err(SymbolError::TooLarge { .. })));
    }

    proptest! {
        #[test]
        fn any_map_can_be_read(map in prop::collection::vec(any::<u8>(), 0..400), address: u64) {
            let found = names(&map, &[address]);
            prop_assert!(found.iter().all(|&(first, last, _)| first == address && last == address));
        }

        #[test]
        fn any_line_can_be_read(start: u16, size: u16, name in ".{0,40}", address: u16) {
            let map = format!("{start:x} {size:x} {name}\n");
            let found = names(map.as_bytes(), &[address.into()]);
            let covers = u32::from(address) >= u32::from(start)
                && u32::from(address) < u32::from(start) + u32::from(size);
            prop_assert!(found.is_empty() || covers);
        }
    }
}
