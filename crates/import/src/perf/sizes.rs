//! Checks the sizes in a perf.data file before the library allocates memory for them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::bytes::Bytes;

/// Size of the file's header in bytes.
const HEADER: usize = 104;
/// Number of the feature that describes the events.
const EVENT_DESC: usize = 12;
/// Maximum number of events and of features. perf records a few hundred events at most.
const MAX_COUNT: u64 = 100_000;

/// Returns whether every section lies within the file, and every list within its section. The data
/// section may be longer than a truncated file.
pub(super) fn are_plausible(file: &File) -> io::Result<bool> {
    let length = file.metadata()?.len();
    let head = read(file, 0, HEADER)?;
    let is_big_endian = head.starts_with(b"2ELIFREP");
    let sizes = Sizes {
        file,
        length,
        is_big_endian,
    };
    Ok(sizes.header(&head)?.is_some())
}

fn read(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], offset.saturating_add(filled as u64))? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

struct Sizes<'f> {
    file: &'f File,
    length: u64,
    is_big_endian: bool,
}

/// Result of a check: `None` if a size is implausible.
type Checked = io::Result<Option<()>>;

impl Sizes<'_> {
    fn header(&self, head: &[u8]) -> Checked {
        let mut bytes = Bytes::new(head, self.is_big_endian);
        bytes.take(16);
        let numbers: Option<Vec<u64>> = (0..7).map(|_| bytes.u64()).collect();
        let Some(numbers) = numbers else {
            return Ok(None);
        };
        let [
            attribute,
            attributes_at,
            attributes,
            data_at,
            data,
            types_at,
            types,
        ] = numbers[..]
        else {
            return Ok(None);
        };
        let words = [0; 4].map(|_: u64| bytes.u64().unwrap_or_default());
        let is_inside =
            self.is_inside(attributes_at, attributes) && self.is_inside(types_at, types);
        let end = data_at
            .checked_add(data)
            .filter(|&end| i64::try_from(end).is_ok());
        let (Some(features_at), true) = (end, is_inside && (64..=4_096).contains(&attribute))
        else {
            return Ok(None);
        };
        if self
            .attributes(attributes_at, attributes, attribute)?
            .is_none()
        {
            return Ok(None);
        }
        self.features(features_at, words)
    }

    fn is_inside(&self, offset: u64, size: u64) -> bool {
        offset
            .checked_add(size)
            .is_some_and(|end| end <= self.length)
    }

    /// Checks the ids of each attribute, whose place is at the attribute's end.
    fn attributes(&self, at: u64, size: u64, each: u64) -> Checked {
        let count = size / each;
        if count > MAX_COUNT {
            return Ok(None);
        }
        for index in 0..count {
            let place = read(self.file, at + (index + 1) * each - 16, 16)?;
            let mut place = Bytes::new(&place, self.is_big_endian);
            let ids = place.u64().zip(place.u64());
            if !ids.is_some_and(|(offset, size)| self.is_inside(offset, size)) {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    /// Checks the sections of the features whose bits are set.
    fn features(&self, at: u64, words: [u64; 4]) -> Checked {
        let count: u32 = words.iter().map(|word| word.count_ones()).sum();
        let table = read(self.file, at, count as usize * 16)?;
        let mut table = Bytes::new(&table, self.is_big_endian);
        for number in (0..256_usize).filter(|n| words[n / 64] >> (n % 64) & 1 == 1) {
            let place = table.u64().zip(table.u64());
            let Some((offset, size)) = place.filter(|&(at, size)| self.is_inside(at, size)) else {
                return Ok(None);
            };
            if number == EVENT_DESC {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                let section = read(self.file, offset, size)?;
                if self.events(&section).is_none() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(()))
    }

    /// Checks the list of events.
    fn events(&self, section: &[u8]) -> Option<()> {
        let mut bytes = Bytes::new(section, self.is_big_endian);
        let count = bytes.u32()?;
        let attribute = bytes.u32()? as usize;
        if u64::from(count) > MAX_COUNT {
            return None;
        }
        for _ in 0..count {
            bytes.take(attribute)?;
            let ids = bytes.u32()? as usize;
            bytes.block(4)?;
            bytes.take(ids.checked_mul(8)?)?;
        }
        Some(())
    }
}
