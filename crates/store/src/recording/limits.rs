//! Limits on the values in a recording. The header is checked when the file is opened, and rows are
//! checked as they are read.
//!
//! A recording can come from an untrusted source. Analyses do not check its numbers, so every
//! number that they add, multiply or use as a size is checked here. `docs/reference/data.md` lists
//! the limits.

mod json;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ticktax_model::recording::Header;
use ticktax_model::{CpuList, Nanos};

use crate::parquet_file::{Bounds, Excess};

pub(super) use json::check as check_json;

/// Limit for points in time, in ns.
const TIME: Limit = Limit::around_zero(61, "within 73 years of 0");
/// Limit for the lengths of intervals, in ns.
const LENGTH: Limit = Limit::from_zero(58, "between 0 and 9 years");
/// Limit for self times, in ns. A self time can be negative, because interruptions are measured
/// more precisely than the interval they interrupt.
const OWN_TIME: Limit = Limit::around_zero(58, "at most 9 years");
/// Limit for the number of intervals in a sum.
const INTERVALS: Limit = Limit::from_zero(50, "between 0 and 2^50");
/// CPU numbers.
const CPU: Limit = Limit::from_zero(13, "between 0 and 8191");
/// Maximum sum of all lengths and self times in ns, which is 146 years of CPU time. Twice this
/// value still fits into 64 bits.
const ALL_TIME: u128 = 1 << 62;
/// Maximum number of intervals in all rows together.
const ALL_INTERVALS: u128 = 1 << 53;
/// Maximum length in bytes of a name in a row.
const NAME: usize = 4_096;
/// Maximum number of bytes that a message quotes of an unknown kind, owner or edge.
const WORD: usize = 40;
/// Maximum length in characters of an error message that comes from a library.
const LINE: usize = 240;
/// Accepted tick frequencies in Hz. No kernel exceeds 1,200 Hz, but the model can.
const HZ: std::ops::RangeInclusive<u32> = 1..=100_000;
/// Maximum length of lists in the header with one entry per CPU and probe.
const PER_CPU: usize = 2 * (CpuList::MAX_CPU as usize + 1);
/// Maximum length of lists in the header with one entry per thread or process.
const PER_THREAD: usize = 1 << 18;
const _: () = assert!(CpuList::MAX_CPU == 8_191, "the limit CPU must match");
/// Latest wall-clock time accepted, in seconds since 1970. It is in the year 2242.
const LATEST_UNIX: i64 = 1 << 33;

/// Returns the maximum number of sources in a recording of `size` bytes.
const fn sources(size: u64) -> u64 {
    32_768 + size / 64
}

/// Returns the maximum number of bytes that all names may take in a recording of `size` bytes.
const fn name_bytes(size: u64) -> u64 {
    (4 << 20) + 2 * size
}

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
            "its start time",
            header.began_unix,
            "before the year 2242",
        ));
    }
    check_lists(header)?;
    for books in &header.cpus {
        check_interval("the time of its accounts", books.begin, books.end)?;
    }
    for probe in &header.probes {
        check_interval("a probe's time", probe.begin, probe.end)?;
    }
    for soaker in &header.soakers {
        check_interval("a soaker's time", soaker.begin, soaker.end)?;
    }
    if let Some(part) = &header.part {
        check_interval("its time range", part.from, part.to)?;
        check_interval(
            "the length of the original recording",
            Nanos::ZERO,
            part.total,
        )?;
    }
    Ok(())
}

fn check_lists(header: &Header) -> Result<(), Excess> {
    let Header {
        cpus: books,
        coverage,
        probes,
        soakers,
        policies,
        autogroups,
        cgroups,
        group_moves,
        groups,
        replayed,
        triggers,
        ..
    } = header;
    let autogroups = autogroups.as_ref().map_or(0, Vec::len);
    let in_cgroups = cgroups.iter().flat_map(BTreeMap::values);
    let in_cgroups = in_cgroups.map(BTreeSet::len).sum();
    let replayed = replayed.as_ref().map_or(0, Vec::len);
    for (length, most, of) in [
        (books.len(), PER_CPU, "CPUs with accounts"),
        (coverage.lost.len(), PER_CPU, "CPUs with losses"),
        (coverage.attached.len(), PER_CPU, "hooks"),
        (coverage.limitations.len(), PER_CPU, "limitations"),
        (probes.len(), PER_CPU, "probes"),
        (soakers.len(), PER_CPU, "soakers"),
        (triggers.len(), PER_CPU, "triggers"),
        (policies.len(), PER_THREAD, "threads with a policy"),
        (autogroups, PER_THREAD, "processes with a session"),
        (in_cgroups, PER_THREAD, "processes in cgroups"),
        (group_moves.len(), PER_THREAD, "moves between groups"),
        (groups.iter().count(), PER_THREAD, "groups"),
        (replayed, PER_THREAD, "replayed threads"),
    ] {
        if length > most {
            let most = most as u64;
            return Err(Excess::TooMany { of, most });
        }
    }
    Ok(())
}

/// Checks the start and end of an interval, which may be empty.
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

/// Returns the first bytes of `word`. They are enough to recognise every known word, and to quote
/// an unknown word in an error message.
pub(super) fn short(word: &[u8]) -> &[u8] {
    &word[..word.len().min(WORD)]
}

/// Shortens an error message from serde, which quotes unknown words in full.
pub(super) fn shortened(words: String) -> String {
    if words.chars().count() <= LINE {
        return words;
    }
    let half = |words: &mut dyn Iterator<Item = char>| words.take(LINE / 2).collect::<String>();
    let begin = half(&mut words.chars());
    let end = half(&mut words.chars().rev());
    format!("{begin} … {}", end.chars().rev().collect::<String>())
}

/// Values of the numeric columns in consecutive rows.
pub(super) struct Numbers<'a> {
    pub(super) cpus: &'a [i32],
    pub(super) starts: &'a [i64],
    pub(super) durs: &'a [i64],
    pub(super) selfs: &'a [i64],
    pub(super) counts: &'a [i64],
    pub(super) maxima: &'a [i64],
}

/// Totals of the rows read so far, and the limits they must not exceed.
pub(super) struct RowLimits {
    time: u128,
    intervals: u128,
    names: u64,
    name_bytes: u64,
    bounds: Bounds,
}

impl RowLimits {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            time: 0,
            intervals: 0,
            names: 0,
            name_bytes: 0,
            bounds,
        }
    }

    /// Checks the numbers in the next rows. Each column is checked as a whole, so the cost per row
    /// is negligible.
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

    /// Checks and counts a name from `column` that will stay in memory.
    pub(super) fn take_name(&mut self, column: &'static str, name: &[u8]) -> Result<(), Excess> {
        if name.len() > NAME {
            return Err(Excess::TooLarge {
                part: format!("a value of the column `{column}`"),
                most: NAME as u64,
            });
        }
        self.names += 1;
        self.name_bytes += name.len() as u64;
        // A source has up to three names.
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

    pub(super) fn check_due(due: i64) -> Result<(), Excess> {
        TIME.check("when a frame was due", std::iter::once(due))
    }
}

/// Range of values that a column may contain: the 2^`bits` values starting at `-offset`.
///
/// Because the number of values is a power of two, a whole column can be combined with OR and then
/// checked with a single comparison.
#[derive(Clone, Copy)]
struct Limit {
    offset: i64,
    bits: u32,
    words: &'static str,
}

impl Limit {
    /// Returns the range from 0 up to, but not including, 2^`bits`.
    const fn from_zero(bits: u32, words: &'static str) -> Self {
        Self {
            offset: 0,
            bits,
            words,
        }
    }

    /// Returns the range from -2^`bits` up to, but not including, 2^`bits`.
    const fn around_zero(bits: u32, words: &'static str) -> Self {
        Self {
            offset: 1 << bits,
            bits: bits + 1,
            words,
        }
    }

    /// Returns how far a number is above the lowest accepted value. For a lower number, the result
    /// wraps around to a value far above the range.
    const fn above_least(self, number: i64) -> u64 {
        number.wrapping_add(self.offset).cast_unsigned()
    }

    const fn has(self, number: i64) -> bool {
        self.above_least(number) >> self.bits == 0
    }

    fn check(self, field: &str, numbers: impl Iterator<Item = i64> + Clone) -> Result<(), Excess> {
        let merge = |all, number| all | self.above_least(number);
        if numbers.clone().fold(0, merge) >> self.bits == 0 {
            return Ok(());
        }
        let outside = numbers.into_iter().find(|number| !self.has(*number));
        outside.map_or(Ok(()), |number| Err(value(field, number, self.words)))
    }
}

fn total(numbers: &[i64]) -> u128 {
    // Each value is below 2^58, so the sum of 16 values fits into 64 bits.
    let sum = |numbers: &[i64]| {
        numbers
            .iter()
            .map(|number| number.unsigned_abs())
            .sum::<u64>()
    };
    numbers
        .chunks(16)
        .map(|numbers| u128::from(sum(numbers)))
        .sum()
}
