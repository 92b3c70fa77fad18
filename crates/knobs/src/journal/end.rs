//! The end of a journal, and unreadable lines.
//!
//! A killed run can leave half a line, and a failing disk can damage the last lines. Both lie after
//! the last readable line. They are copied to a file next to the journal and cut off.
//!
//! Unreadable lines *between* readable ones may name settings that are now unknown. The journal
//! then stays unchanged until a person has inspected it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};

use ticktax_store::disk::{self, Folder};

use super::{Contents, Record};

/// Number of bytes searched for the end of a file's first line.
pub(super) const LONGEST_FIRST: u64 = 1 << 16;
/// Number of digits of a line's checksum.
const CHECKSUM: usize = 8;
/// Text after the checksum in every first line.
const BEGINNING: &[u8] = b" {\"began\":{";
/// Number of copies kept next to a journal. The oldest is deleted first.
const COPIES: u32 = 4;

/// Result of parsing a journal.
pub(super) struct Parsed {
    pub(super) contents: Contents,
    /// Length up to the end of the last readable line.
    pub(super) readable: usize,
    /// Number of unreadable lines before that.
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
            // A line without a newline was not on disk when its writer was killed, so nothing is
            // lost.
            *damaged += 1;
        }
    }
    parsed
}

/// Whether a file with this first line is a journal. For a partial line, its beginning decides.
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

/// Copies the unreadable end of a journal to a new file next to it, and returns the file's name.
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
        // A partial copy would be mistaken for a complete one.
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
        // The state after half a write.
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
