//! Deals with unreadable lines in a journal.
//!
//! A killed session can leave half a line, and a failing disk can damage the last few. If only the
//! end of the journal is unreadable, it is copied to a file next to the journal and then cut off.
//!
//! If there are unreadable lines *between* readable ones, nobody knows which settings they were
//! about. The journal then stays unchanged until a person has inspected it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};

use ticktax_store::disk::{self, Folder};

use super::{Contents, Record};

/// Maximum number of bytes in the first line of a journal.
pub(super) const LONGEST_FIRST: u64 = 1 << 16;
/// Length of a line's checksum, in hexadecimal digits.
const CHECKSUM: usize = 8;
/// Text that follows the checksum in the first line of every journal.
const BEGINNING: &[u8] = b" {\"began\":{";
/// Maximum number of copies. Once there are this many, a new copy replaces the oldest.
const COPIES: u32 = 4;

pub(super) struct Parsed {
    pub(super) contents: Contents,
    /// Number of bytes up to the end of the last readable line.
    pub(super) readable: usize,
    /// Number of unreadable lines that precede the last readable one.
    pub(super) between: u64,
}

pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut parsed = Parsed {
        contents: Contents::default(),
        readable: 0,
        between: 0,
    };
    let mut length = 0;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        length += line.len();
        let damaged = &mut parsed.contents.damaged;
        if let Some(record) = disk::read_checked_line(line) {
            parsed.contents.records.push(record);
            parsed.readable = length;
            parsed.between = *damaged;
        } else if line.ends_with(b"\n") {
            // Don't count a line without a newline. It never reached the disk completely, so the
            // change that it announces never started.
            *damaged += 1;
        }
    }
    parsed
}

/// Returns whether a file with this first line is a journal. If the line is incomplete, checks only
/// its start.
pub(super) fn begins_journal(first: &[u8]) -> bool {
    let is_record = || matches!(disk::read_checked_line(first), Some(Record::Began { .. }));
    let is_half = || {
        let rest = first.split_at_checked(CHECKSUM);
        let is_beginning = |(sum, rest): (&[u8], &[u8])| {
            sum.iter().all(u8::is_ascii_hexdigit) && rest.starts_with(BEGINNING)
        };
        !first.ends_with(b"\n") && rest.is_some_and(is_beginning)
    };
    first.is_empty() || is_record() || is_half()
}

/// Copies a journal's unreadable end to a new file in the same directory. Returns the file's name.
pub(super) fn copy(folder: &Folder, journal: &OsStr, bytes: &[u8]) -> io::Result<OsString> {
    let name = |number: u32| {
        let mut name = journal.to_owned();
        name.push(format!(".damaged.{number}"));
        name
    };
    for number in (1..COPIES)
        .rev()
        .filter(|&number| folder.has(&name(number)))
    {
        folder.rename(&name(number), &name(number + 1))?;
    }
    let newest = name(1);
    let mut file = folder.create_new(&newest, 0o600)?;
    if let Err(error) = file.write_all(bytes).and_then(|()| file.sync_all()) {
        // Remove an incomplete copy, because it would look like a complete one.
        let _ = folder.remove(&newest);
        return Err(error);
    }
    folder.sync();
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use ticktax_store::disk::checked_line;

    use super::{LONGEST_FIRST, begins_journal};
    use crate::journal::Record;

    #[test]
    fn a_journal_is_recognized_by_its_first_line() {
        let began = Record::Began {
            boot: "x".to_owned(),
            by: String::new(),
            at_unix_ms: 0,
        };
        let line = checked_line(&began).unwrap();
        assert!(begins_journal(&line));
        assert!(begins_journal(b""));
        // A killed session can leave half of the first line.
        assert!(begins_journal(&line[..line.len() / 2]));
        let mut damaged = line.clone();
        damaged[line.len() / 2] ^= 1;
        let other = checked_line(&Record::Dissolved { folder: "/".into() }).unwrap();
        let long = vec![b'a'; usize::try_from(LONGEST_FIRST).unwrap()];
        for foreign in [
            &*damaged,
            &*other,
            b"PAR1\0\x15",
            b"42",
            b"42\n",
            b"\n",
            &*long,
        ] {
            assert!(!begins_journal(foreign), "{foreign:?}");
        }
    }
}
