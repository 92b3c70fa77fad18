//! The caches of a CPU, as the kernel reports them.

use std::fs;
use std::path::Path;

use ticktax_model::Cpu;

/// A data cache, or a cache for data and instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Level: 1 is nearest to the CPU.
    pub level: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Size of a line in bytes.
    pub line: u64,
    /// Lines per set; `None` if the kernel does not report it.
    pub ways: Option<u64>,
}

/// Reads the caches of a CPU below `root`, nearest first. The list is empty if the kernel does not
/// report them, as in some virtual machines.
pub fn caches_of(root: &Path, cpu: Cpu) -> Vec<CacheSize> {
    let folder = root.join(format!("sys/devices/system/cpu/cpu{cpu}/cache"));
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut caches: Vec<CacheSize> = entries
        .flatten()
        .filter_map(|entry| read_cache(&entry.path()))
        .collect();
    caches.sort_by_key(|cache| (cache.level, cache.bytes));
    caches.dedup_by_key(|cache| cache.level);
    // A cache that is not larger than the one before it cannot show up in latencies.
    let mut largest = 0;
    caches.retain(|cache| {
        let is_larger = cache.bytes > largest;
        largest = largest.max(cache.bytes);
        is_larger
    });
    caches
}

/// Reads a directory such as `index0`. Returns `None` for an instruction cache, and if the level or
/// the size is missing.
fn read_cache(folder: &Path) -> Option<CacheSize> {
    let word = |name: &str| {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        Some(text.trim().to_owned())
    };
    if word("type")? == "Instruction" {
        return None;
    }
    let number = |name: &str| word(name)?.parse::<u64>().ok().filter(|&n| n > 0);
    Some(CacheSize {
        level: u32::try_from(number("level")?).ok()?,
        bytes: parse_size(&word("size")?)?,
        line: number("coherency_line_size").unwrap_or(64),
        ways: number("ways_of_associativity"),
    })
}

/// Parses a size such as `32K`.
fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if text.ends_with('K') => (digits, 10),
        Some(digits) if text.ends_with('M') => (digits, 20),
        Some(digits) => (digits, 30),
        None => (text, 0),
    };
    let number: u64 = digits.parse().ok().filter(|&number| number > 0)?;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use ticktax_model::Cpu;

    use super::{CacheSize, caches_of, parse_size};

    fn write(root: &Path, index: u32, files: &[(&str, &str)]) {
        let folder = root.join(format!("sys/devices/system/cpu/cpu3/cache/index{index}"));
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn data_caches_are_listed_and_damaged_ones_are_not() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        write(at, 0, &[("level", "1"), ("type", "Data"), ("size", "48K")]);
        write(
            at,
            1,
            &[("level", "1"), ("type", "Instruction"), ("size", "64K")],
        );
        let l2 = [("level", "2"), ("type", "Unified"), ("size", "2M")];
        write(at, 2, &l2);
        write(
            at,
            2,
            &[
                ("ways_of_associativity", "16"),
                ("coherency_line_size", "128"),
            ],
        );
        write(
            at,
            3,
            &[("level", "3"), ("type", "Unified"), ("size", "0K")],
        );
        let size = |level, bytes, line, ways| CacheSize {
            level,
            bytes,
            line,
            ways,
        };
        assert_eq!(
            caches_of(at, Cpu(3)),
            [size(1, 48 << 10, 64, None), size(2, 2 << 20, 128, Some(16))]
        );
        assert!(caches_of(at, Cpu(4)).is_empty());
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("32768K"), Some(32 << 20));
        assert_eq!(parse_size("1G"), Some(1 << 30));
        assert_eq!(parse_size("99999999999999999999K"), None);
        assert_eq!(parse_size("18446744073709551615K"), None);
    }
}
