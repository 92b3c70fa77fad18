//! Limits on the values of a recording. The header is checked when the file is opened, rows as they
//! are read.
//!
//! A recording may come from anybody, and no analysis checks its numbers again. So all numbers that
//! an analysis adds, multiplies or allocates by are checked here. `docs/data.md` lists the limits.

mod json;

use std::fmt;

use ticktax_model::recording::Header;
use ticktax_model::{CpuList, Nanos};

use crate::parquet_file::{Bounds, Excess};

pub(super) use json::check as check_json;

/// Points in time, in ns: up to 73 years from 0.
const TIME: Limit = Limit::around_zero(61, "within 73 years of 0");
/// Lengths, in ns: up to 9.1 years.
const LENGTH: Limit = Limit::from_zero(58, "between 0 and 9 years");
/// Own times, in ns. They can be negative, because nested spans are measured more exactly than the
/// span around them.
const OWN_TIME: Limit = Limit::around_zero(58, "at most 9 years");
/// Intervals in a sum.
const INTERVALS: Limit = Limit::from_zero(50, "between 0 and 2^50");
/// CPU numbers.
const CPU: Limit = Limit::from_zero(13, "between 0 and 8191");
/// The sum of all lengths and own times, 146 years of CPU time. Twice as much still fits in 64
/// bits.
const ALL_TIME: u128 = 1 << 62;
/// All intervals together.
const ALL_INTERVALS: u128 = 1 << 53;
/// Bytes of a name in a row.
const NAME: usize = 4_096;
/// Bytes of an unknown kind, owner or edge that a message shows.
const WORD: usize = 40;
/// Characters of a library's error that a message shows.
const LINE: usize = 240;
/// Tick rates. The fastest of any kernel is 1,200 Hz; the simulator allows more.
const HZ: std::ops::RangeInclusive<u32> = 1..=100_000;
/// Maximum length of a header's list with an entry for each CPU and probe.
const PER_CPU: usize = 2 * (CpuList::MAX_CPU as usize + 1);
/// Maximum length of a header's list with an entry for each thread or process.
const PER_THREAD: usize = 1 << 18;
const _: () = assert!(CpuList::MAX_CPU == 8_191, "CPU has as many");
/// Seconds since 1970 until the year 2242.
const LATEST_UNIX: i64 = 1 << 33;

/// Maximum number of sources in a recording of this size.
const fn sources(size: u64) -> u64 {
    32_768 + size / 64
}

/// Maximum bytes of all names in a recording of this size.
const fn name_bytes(size: u64) -> u64 {
    (4 << 20) + 2 * size
}

/// Checks the values of a header.
pub(super) fn check_header(header: &Header) -> Result<(), Excess> {
    for (hz, field) in [
        (header.machine.hz_configured, "the machine's HZ"),
        (header.machine.configured.user_hz, "the machine's USER_HZ"),
    ] {
        if let Some(hz) = hz.filter(|hz| !HZ.contains(hz)) {
            return Err(value(field, hz, "between 1 and 100000"));
        }
    }
    if header.began_unix.abs() > LATEST_UNIX {
        return Err(value(
            "its begin",
            header.began_unix,
            "before the year 2242",
        ));
    }
    check_lists(header)?;
    for books in &header.books {
        check_interval("its books", books.begin, books.end)?;
    }
    for probe in &header.probes {
        check_interval("a probe's time", probe.begin, probe.end)?;
    }
    for soaker in &header.soakers {
        check_interval("a soaker's time", soaker.begin, soaker.end)?;
    }
    if let Some(part) = &header.part {
        check_interval("its part", part.from, part.to)?;
        check_interval("the whole of its part", Nanos::ZERO, part.whole)?;
    }
    Ok(())
}

fn check_lists(header: &Header) -> Result<(), Excess> {
    let Header {
        books,
        coverage,
        probes,
        soakers,
        policies,
        autogroups,
        replayed,
        triggers,
        ..
    } = header;
    let autogroups = autogroups.as_ref().map_or(0, Vec::len);
    let replayed = replayed.as_ref().map_or(0, Vec::len);
    for (length, most, of) in [
        (books.len(), PER_CPU, "CPUs with books"),
        (coverage.lost.len(), PER_CPU, "CPUs with losses"),
        (coverage.attached.len(), PER_CPU, "hooks"),
        (coverage.limitations.len(), PER_CPU, "limitations"),
        (probes.len(), PER_CPU, "probes"),
        (soakers.len(), PER_CPU, "soakers"),
        (triggers.len(), PER_CPU, "triggers"),
        (policies.len(), PER_THREAD, "threads with a policy"),
        (autogroups, PER_THREAD, "processes with a session"),
        (replayed, PER_THREAD, "replayed threads"),
    ] {
        if length > most {
            let most = most as u64;
            return Err(Excess::TooMany { of, most });
        }
    }
    Ok(())
}

/// Checks the ends of an interval, which may be empty.
fn check_interval(field: &str, begin: Nanos, end: Nanos) -> Result<(), Excess> {
    for at in [begin, end] {
        if !TIME.has(at.0) {
            return Err(value(field, format!("{} ns", at.0), TIME.words));
        }
    }
    let length = end.0 - begin.0;
    if !OWN_TIME.has(length) {
        return Err(value(
            field,
            format!("{length} ns long"),
            "at most 9 years long",
        ));
    }
    Ok(())
}

fn value(field: &str, found: impl fmt::Display, allowed: &'static str) -> Excess {
    Excess::Value {
        field: field.to_owned(),
        found: found.to_string(),
        allowed,
    }
}

/// The first bytes of a word: enough for all known words and for a message.
pub(super) fn short(word: &[u8]) -> &[u8] {
    &word[..word.len().min(WORD)]
}

/// Shortens an error to one line: serde repeats an unknown word in full.
pub(super) fn shortened(words: String) -> String {
    if words.chars().count() <= LINE {
        return words;
    }
    let half = |words: &mut dyn Iterator<Item = char>| words.take(LINE / 2).collect::<String>();
    let begin = half(&mut words.chars());
    let end = half(&mut words.chars().rev());
    format!("{begin} … {}", end.chars().rev().collect::<String>())
}

/// The numbers of consecutive rows.
pub(super) struct Numbers<'a> {
    pub(super) cpus: &'a [i32],
    pub(super) starts: &'a [i64],
    pub(super) durs: &'a [i64],
    pub(super) selfs: &'a [i64],
    pub(super) counts: &'a [i64],
    pub(super) maxima: &'a [i64],
}

/// Checks rows and the totals of all rows so far.
pub(super) struct RowLimits {
    time: u128,
    intervals: u128,
    names: u64,
    name_bytes: u64,
    bounds: Bounds,
}

impl RowLimits {
    /// No rows so far, in a file with these bounds.
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            time: 0,
            intervals: 0,
            names: 0,
            name_bytes: 0,
            bounds,
        }
    }

    /// Checks the numbers of the next rows, column by column, which is fast.
    pub(super) fn check(&mut self, rows: &Numbers<'_>) -> Result<(), Excess> {
        CPU.check("a row's CPU", rows.cpus.iter().map(|cpu| i64::from(*cpu)))?;
        for (field, numbers, limit) in [
            ("a row's start", rows.starts, TIME),
            ("a row's length", rows.durs, LENGTH),
            ("a row's own time", rows.selfs, OWN_TIME),
            ("a row's longest interval", rows.maxima, LENGTH),
            ("a row's count", rows.counts, INTERVALS),
        ] {
            limit.check(field, numbers.iter().copied())?;
        }
        let time = self.time + total(rows.durs) + total(rows.selfs);
        if time > ALL_TIME {
            return Err(value(
                "the time of all rows",
                format!("{time} ns"),
                "at most 146 years",
            ));
        }
        let intervals = self.intervals + total(rows.counts);
        if intervals > ALL_INTERVALS {
            return Err(value("the sum of all counts", intervals, "at most 2^53"));
        }
        self.time = time;
        self.intervals = intervals;
        Ok(())
    }

    /// Checks the number of a source in the file.
    pub(super) fn check_source(&self, number: usize) -> Result<(), Excess> {
        let most = sources(self.bounds.size());
        if (number as u64) < most {
            return Ok(());
        }
        Err(Excess::TooMany {
            of: "sources",
            most,
        })
    }

    /// Counts a name from the column `column` that the reader keeps.
    pub(super) fn take_name(&mut self, column: &'static str, name: &[u8]) -> Result<(), Excess> {
        if name.len() > NAME {
            return Err(Excess::TooLarge {
                part: format!("a value of the column `{column}`"),
                most: NAME as u64,
            });
        }
        self.names += 1;
        self.name_bytes += name.len() as u64;
        // A source has at most three names, and edges have some.
        let most = 4 * sources(self.bounds.size());
        if self.names > most {
            return Err(Excess::TooMany { of: "names", most });
        }
        let most = name_bytes(self.bounds.size());
        if self.name_bytes > most {
            let of = "bytes of names";
            return Err(Excess::TooMany { of, most });
        }
        Ok(())
    }

    /// Checks the due time of a frame.
    pub(super) fn check_due(due: i64) -> Result<(), Excess> {
        TIME.check("when a frame was due", std::iter::once(due))
    }
}

/// Range of a column: `bits` bits, counted from `-offset`.
///
/// The sizes are powers of two, so all numbers can be checked at once by OR-ing their bits.
#[derive(Clone, Copy)]
struct Limit {
    offset: i64,
    bits: u32,
    words: &'static str,
}

impl Limit {
    /// From 0 to 2^bits, exclusive.
    const fn from_zero(bits: u32, words: &'static str) -> Self {
        Self {
            offset: 0,
            bits,
            words,
        }
    }

    /// From -2^bits to 2^bits, exclusive.
    const fn around_zero(bits: u32, words: &'static str) -> Self {
        Self {
            offset: 1 << bits,
            bits: bits + 1,
            words,
        }
    }

    /// Distance from the smallest number in the range. Smaller numbers wrap around to large
    /// distances.
    const fn above_least(self, number: i64) -> u64 {
        number.wrapping_add(self.offset).cast_unsigned()
    }

    const fn has(self, number: i64) -> bool {
        self.above_least(number) >> self.bits == 0
    }

    fn check(self, field: &str, numbers: impl Iterator<Item = i64> + Clone) -> Result<(), Excess> {
        let together = |all, number| all | self.above_least(number);
        if numbers.clone().fold(0, together) >> self.bits == 0 {
            return Ok(());
        }
        let wrong = numbers.into_iter().find(|number| !self.has(*number));
        wrong.map_or(Ok(()), |number| Err(value(field, number, self.words)))
    }
}

fn total(numbers: &[i64]) -> u128 {
    // Each is below 2^58, so the sum of 16 fits in 64 bits.
    let few = |few: &[i64]| few.iter().map(|number| number.unsigned_abs()).sum::<u64>();
    numbers
        .chunks(16)
        .map(|numbers| u128::from(few(numbers)))
        .sum()
}
