//! Names of the kernel locks that threads wait for.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use ticktax_model::victim::MMAP_LOCK;

use super::Names;
use crate::record::{LOCK_SHIFT, SpanRecord, kind, lock};

/// Lowest address of the kernel. Per-CPU variables have offsets instead of addresses.
const KERNEL: u64 = 1 << 63;

/// Maximum distance in bytes from the start of a variable to a lock inside it.
const MAX_LENGTH: u64 = 1 << 12;

/// Minimum number of variables in a complete list. Kernels built without `CONFIG_KALLSYMS_ALL` list
/// only a few marks of sections, which would give locks wrong names.
const FEWEST: usize = 1_000;

/// Bits of a lock that describe it. The others are its address.
const FLAGS: u64 = !0 << LOCK_SHIFT;

/// Addresses and names of the kernel's variables. Empty if the kernel does not list them.
#[derive(Debug, Default)]
pub(super) struct Variables(Vec<(u64, Box<str>)>);

impl Variables {
    fn from_file(path: &Path) -> Self {
        File::open(path).map_or_else(|_| Self::default(), |file| Self::read(BufReader::new(file)))
    }

    /// Parses text in the format of `/proc/kallsyms`.
    fn read(text: impl BufRead) -> Self {
        let lines = text.split(b'\n').map_while(Result::ok);
        let mut all: Vec<(u64, Box<str>)> = lines.filter_map(|line| variable(&line)).collect();
        all.sort_by_key(|&(address, _)| address);
        if all.len() < FEWEST {
            all.clear();
        }
        all.shrink_to_fit();
        Self(all)
    }

    /// Returns the variable that a lock is, or that contains it: `NAME` or `NAME+OFFSET`.
    fn containing(&self, address: u64) -> Option<String> {
        let after = self.0.partition_point(|&(start, _)| start <= address);
        let start = self.0[..after].last()?.0;
        let first = self.0.partition_point(|&(other, _)| other < start);
        let name = &self.0[first].1;
        match address - start {
            0 => Some(name.to_string()),
            offset if offset < MAX_LENGTH => Some(format!("{name}+{offset:#x}")),
            _ => None,
        }
    }
}

/// Parses the line of a variable.
fn variable(line: &[u8]) -> Option<(u64, Box<str>)> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_variable = matches!(words.next()?, "b" | "B" | "d" | "D");
    (is_variable && address >= KERNEL).then_some((address, words.next()?.into()))
}

/// Returns the lock in the record of a wait, or 0 if none is known.
pub(crate) fn lock_of(record: &SpanRecord) -> u64 {
    let word = record.self_ns.cast_unsigned();
    let is_lock = record.kind == kind::WAIT && word >> LOCK_SHIFT & lock::KNOWN != 0;
    if is_lock { word } else { 0 }
}

/// Returns the address of a lock. Its upper bits are the same in all of the kernel's addresses.
fn address(lock: u64) -> u64 {
    lock | FLAGS
}

/// Describes a lock, in the form of [`OffCpu::lock`](ticktax_model::victim::OffCpu::lock).
fn describe(word: u64, symbol: Option<&str>) -> Option<String> {
    let flags = word >> LOCK_SHIFT;
    if flags & lock::KNOWN == 0 {
        return None;
    }
    let has = |flag: u64| flags & flag != 0;
    let is_shared = has(lock::READ) || has(lock::WRITE);
    let kind = match () {
        () if has(lock::MMAP) => MMAP_LOCK,
        () if has(lock::MUTEX) => "mutex",
        () if has(lock::PERCPU) => "percpu_rwsem",
        () if has(lock::RT) && !is_shared => "rt_mutex",
        () if is_shared => "rwsem",
        () => "semaphore",
    };
    let access = match () {
        () if has(lock::READ) => ":read",
        () if has(lock::WRITE) => ":write",
        () => "",
    };
    let symbol = symbol.map_or_else(String::new, |symbol| format!("={symbol}"));
    Some(format!("{kind}{access}{symbol}"))
}

impl Names {
    fn symbol_of_lock(&mut self, word: u64) -> Option<String> {
        if word & !FLAGS == 0 || word >> LOCK_SHIFT & lock::MMAP != 0 {
            return None;
        }
        // Few programs ever wait for a kernel lock.
        let kallsyms = self.proc.join("kallsyms");
        let variables = self
            .variables
            .get_or_insert_with(|| Variables::from_file(&kallsyms));
        variables.containing(address(word))
    }

    /// Removes the address from a lock without a name. Otherwise, each of the many locks that are
    /// allocated at run time would be a new source.
    pub(crate) fn without_unnamed(&mut self, word: u64) -> u64 {
        match self.symbol_of_lock(word) {
            Some(_) => word,
            None => word & FLAGS,
        }
    }

    /// Describes a lock. Returns `None` if `word` is 0.
    pub(super) fn lock(&mut self, word: u64) -> Option<String> {
        let symbol = self.symbol_of_lock(word);
        describe(word, symbol.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::path::Path;

    use super::{LOCK_SHIFT, Variables, describe, lock_of};
    use crate::names::Names;
    use crate::record::{SpanRecord, kind, lock};

    const RTNL: u64 = 0xffff_ffff_8200_0000;

    fn variables() -> Variables {
        let mut text = "ffffffff82000000 d rtnl_mutex\nffffffff82000000 d alias\n\
                        ffffffff82000040 t a_function\n000000000001c000 D per_cpu\n"
            .to_owned();
        for number in 0..1_000 {
            writeln!(text, "{:x} b other{number}", RTNL + 0x10_0000 + number * 64).unwrap();
        }
        Variables::read(text.as_bytes())
    }

    #[test]
    fn a_static_lock_has_the_name_of_its_variable() {
        let variables = variables();
        let name = |address| variables.containing(address);
        assert_eq!(name(RTNL).as_deref(), Some("rtnl_mutex"));
        assert_eq!(name(RTNL + 0x50).as_deref(), Some("rtnl_mutex+0x50"));
        assert_eq!(name(RTNL + 0x10_0040).as_deref(), Some("other1"));
        // The slab allocator's memory is elsewhere.
        assert_eq!(name(RTNL + 0x8000), None);
        assert_eq!(name(0xffff_8881_0000_1000), None);
    }

    #[test]
    fn marks_of_sections_name_no_locks() {
        let marks = Variables::read(&b"ffffffff82000000 D __start_rodata\n"[..]);
        assert_eq!(marks.containing(RTNL), None);
    }

    #[test]
    fn a_lock_has_a_kind_and_an_access() {
        let word = |flags: u64| (flags | lock::KNOWN) << LOCK_SHIFT;
        let text = |flags| describe(word(flags), None).unwrap();
        assert_eq!(text(lock::MUTEX | lock::SPIN), "mutex");
        assert_eq!(text(lock::READ), "rwsem:read");
        assert_eq!(text(lock::MMAP | lock::WRITE), "mmap_lock:write");
        assert_eq!(text(lock::PERCPU | lock::READ), "percpu_rwsem:read");
        assert_eq!(text(lock::RT), "rt_mutex");
        assert_eq!(text(0), "semaphore");
        let named = describe(word(lock::MUTEX), Some("rtnl_mutex"));
        assert_eq!(named.as_deref(), Some("mutex=rtnl_mutex"));
        assert_eq!(describe(0, None), None);
    }

    #[test]
    fn only_a_waits_record_has_a_lock() {
        let word = (lock::KNOWN | lock::MUTEX) << LOCK_SHIFT | 0x1000;
        let wait = SpanRecord {
            kind: kind::WAIT,
            self_ns: word.cast_signed(),
            ..SpanRecord::default()
        };
        assert_eq!(lock_of(&wait), word);
        assert_eq!(
            lock_of(&SpanRecord {
                self_ns: 700,
                ..wait
            }),
            0
        );
        assert_eq!(
            lock_of(&SpanRecord {
                kind: kind::TASK,
                ..wait
            }),
            0
        );
        // A kernel without a list of variables gives the lock no name.
        let mut names = Names::read(Path::new("/nonexistent"), Path::new("/nonexistent"));
        assert_eq!(names.without_unnamed(word), word - 0x1000);
        assert_eq!(names.lock(word).as_deref(), Some("mutex"));
    }
}
