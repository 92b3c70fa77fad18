//! Reads the kernel's own counters: interrupts, softirqs, and the run times of kernel threads.

use std::fs;

use ticktax_model::{Cpu, Nanos};

use crate::truth::Count;

/// A kernel counter on one CPU, with its value at the start.
#[derive(Debug)]
pub(crate) struct CounterWatch {
    file: &'static str,
    row: &'static str,
    cpu: Cpu,
    before: Option<u64>,
}

impl CounterWatch {
    /// Watches a row of `/proc/interrupts`. `row` is the row's name, such as `CAL`, or the
    /// description after its counts. Use the description for inter-processor interrupts on arm64,
    /// whose names are numbers that differ between kernels.
    pub(crate) fn interrupts(row: &'static str, cpu: Cpu) -> Self {
        Self::begin("/proc/interrupts", row, cpu)
    }

    /// Watches a row of `/proc/softirqs`, such as `NET_RX`.
    pub(crate) fn softirqs(row: &'static str, cpu: Cpu) -> Self {
        Self::begin("/proc/softirqs", row, cpu)
    }

    fn begin(file: &'static str, row: &'static str, cpu: Cpu) -> Self {
        Self {
            file,
            row,
            cpu,
            before: read(file, row, cpu),
        }
    }

    /// Returns how much the counter has risen so far, or `None` if the kernel does not have it.
    pub(crate) fn end(&self) -> Option<Count> {
        let after = read(self.file, self.row, self.cpu)?;
        let value = after.wrapping_sub(self.before?);
        Some(Count {
            name: format!("{} {}", self.file, self.row),
            value,
        })
    }
}

fn read(file: &str, row: &str, cpu: Cpu) -> Option<u64> {
    cell(&fs::read_to_string(file).ok()?, row, cpu)
}

/// Returns the value for `row` and `cpu` in a table whose first line names the online CPUs. `row`
/// is the name of a row, or the description after its counts. Returns `None` if there is nothing
/// for that row or CPU.
fn cell(table: &str, row: &str, cpu: Cpu) -> Option<u64> {
    let mut lines = table.lines();
    let name = format!("CPU{cpu}");
    let column = lines
        .next()?
        .split_whitespace()
        .position(|word| word == name)?;
    let cells = lines.filter_map(|line| line.split_once(':'));
    let mut is_it = cells.filter(|(name, rest)| {
        let words = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c.is_whitespace());
        name.trim() == row || words.trim_end() == row
    });
    let (_, cells) = is_it.next()?;
    cells.split_whitespace().nth(column)?.parse().ok()
}

/// Returns the PID of the kernel thread called `comm`, if it exists.
pub fn kernel_thread(comm: &str) -> Option<i32> {
    fs::read_dir("/proc")
        .ok()?
        .filter_map(Result::ok)
        .find_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            (name.trim_end() == comm).then_some(pid)
        })
}

/// Returns how long a thread has run in total, and how many times it started to run, according to
/// `schedstat`. Returns `None` if that file cannot be read or parsed.
pub fn run_time(pid: i32) -> Option<(Nanos, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let mut words = text.split_whitespace();
    let ran = Nanos(words.next()?.parse().ok()?);
    Some((ran, words.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::cell;
    use ticktax_model::Cpu;

    const TABLE: &str = "           CPU0       CPU2
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
CAL:       1234         77   Function call interrupts
ERR:          5
IPI6:        12          3  IRQ work interrupts
";

    #[test]
    fn a_cell_is_found_by_names_not_by_position() {
        assert_eq!(cell(TABLE, "CAL", Cpu(2)), Some(77));
        assert_eq!(cell(TABLE, "CAL", Cpu(0)), Some(1234));
        assert_eq!(cell(TABLE, "24", Cpu(0)), Some(1));
        assert_eq!(cell(TABLE, "IRQ work interrupts", Cpu(2)), Some(3));
        assert_eq!(cell(TABLE, "Function call", Cpu(2)), None);
        assert_eq!(cell(TABLE, "CAL", Cpu(1)), None);
        assert_eq!(cell(TABLE, "ERR", Cpu(2)), None);
        assert_eq!(cell(TABLE, "TLB", Cpu(0)), None);
    }
}
