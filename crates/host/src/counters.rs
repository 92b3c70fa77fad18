//! Reads the kernel's counters.

use std::collections::BTreeMap;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use ticktax_model::interrupt_rows::{LOCAL_TIMER_ROW, devices};
use ticktax_model::kernel_walk::KernelList;
use ticktax_model::kernel_words::LOCAL_TIMER;
use ticktax_model::machine::{
    ClockOffsets, Counters, CpuTimes, DevicePackets, InterruptRow, SoftnetCounts,
};
use ticktax_model::{Cpu, Nanos};

use super::Proc;
use super::programs::MAX_PROCESSES;

impl Proc {
    /// Reads `/proc/stat`, `/proc/interrupts`, `/proc/softirqs`, `/proc/pressure` and other
    /// counters. `now` is stored as the time of the reading.
    pub fn counters(&self, now: Nanos) -> Counters {
        let text = |path: &str| self.text(path).unwrap_or_default();
        let mut counters = Counters {
            at: now,
            cpu_times: cpu_times(&text("proc/stat"), user_hz()),
            softnet: softnet(&text("proc/net/softnet_stat")),
            devices: device_packets(&text("proc/net/dev")),
            pressure: self.pressure(),
            writeback: self.writeback(),
            kernel_objects: self.kernel_objects(),
            clocks: clock_offsets(),
            ..Counters::default()
        };
        self.count_interrupts(&mut counters);
        (counters.programs, counters.programs_truncated) = self.program_times(MAX_PROCESSES);
        counters.programs_read = read(ClockId::CLOCK_MONOTONIC);
        counters
    }

    fn kernel_objects(&self) -> BTreeMap<KernelList, u64> {
        let count = |list: KernelList| Some((list, list.count(&self.text(list.file())?)?));
        KernelList::ALL.into_iter().filter_map(count).collect()
    }

    /// Reads the interrupt and softirq counts again. They may have risen by hundreds since
    /// `counters` was read.
    pub fn recount_interrupts(&self, counters: &mut Counters) {
        self.count_interrupts(counters);
        counters.interrupts_read = read(ClockId::CLOCK_MONOTONIC);
    }

    fn count_interrupts(&self, counters: &mut Counters) {
        let text = |path: &str| self.text(path).unwrap_or_default();
        counters.interrupts = interrupts(&text("proc/interrupts"));
        counters.softirqs = softirqs(&text("proc/softirqs"));
    }
}

impl Proc {
    /// Returns the total number of context switches, interrupts and softirqs on all CPUs since
    /// boot, from `/proc/stat`.
    pub fn activity(&self) -> Option<u64> {
        let stat = self.text("proc/stat")?;
        let total = |name: &str| -> Option<u64> {
            let mut lines = stat.lines();
            let line = lines.find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse().ok()
        };
        let interrupts = total("intr ")?.saturating_add(total("softirq ")?);
        Some(total("ctxt ")?.saturating_add(interrupts))
    }

    /// Returns how much memory this process can use without swapping, in bytes: what
    /// `/proc/meminfo` calls available, or the limit of this process's control group if that is
    /// lower.
    pub fn available_memory(&self) -> Option<u64> {
        let available = self.memory("MemAvailable:")?;
        Some(
            self.memory_limit()
                .map_or(available, |limit| limit.min(available)),
        )
    }

    /// Returns the named amount of memory from `/proc/meminfo`, in bytes.
    pub(crate) fn memory(&self, name: &str) -> Option<u64> {
        let memory = self.text("proc/meminfo")?;
        let mut lines = memory.lines();
        let line = lines.find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    }

    /// Returns the time stolen since boot, by CPU number, from `/proc/stat`.
    pub fn steal(&self) -> BTreeMap<u32, Nanos> {
        let stat = self.text("proc/stat").unwrap_or_default();
        let times = cpu_times(&stat, user_hz()).into_iter();
        times.map(|(cpu, times)| (cpu, times.steal)).collect()
    }

    /// Returns each CPU's idle time since boot, from `/proc/stat`. It includes iowait, that is,
    /// idle time during which a thread was waiting for I/O.
    pub fn idle_times(&self) -> BTreeMap<u32, Nanos> {
        let stat = self.text("proc/stat").unwrap_or_default();
        let times = cpu_times(&stat, user_hz()).into_iter();
        times
            .map(|(cpu, times)| (cpu, times.idle + times.iowait))
            .collect()
    }

    /// Returns each CPU's times since boot, from `/proc/stat`.
    pub fn times_of_cpus(&self) -> BTreeMap<u32, CpuTimes> {
        cpu_times(&self.text("proc/stat").unwrap_or_default(), user_hz())
    }

    /// Returns the number of context switches on all CPUs since boot, from `/proc/stat`.
    pub fn context_switches(&self) -> Option<u64> {
        let stat = self.text("proc/stat")?;
        let mut lines = stat.lines();
        lines.find_map(|line| line.strip_prefix("ctxt ")?.trim().parse().ok())
    }
}

fn read(clock: ClockId) -> Option<Nanos> {
    let time = clock_gettime(clock).ok()?;
    Some(Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec()))
}

/// Returns the offsets of the other clocks from `CLOCK_MONOTONIC`. Since any reading can be
/// interrupted, takes several and uses the fastest. Returns `None` if the clocks cannot be read.
pub fn clock_offsets() -> Option<ClockOffsets> {
    const READINGS: usize = 5;
    let ahead = |clock| {
        let reading = || {
            let first = read(ClockId::CLOCK_MONOTONIC)?;
            let other = read(clock)?;
            let bracket = read(ClockId::CLOCK_MONOTONIC)? - first;
            Some((bracket, other - first - Nanos(bracket.0 / 2)))
        };
        let readings = (0..READINGS).filter_map(|_| reading());
        readings.min().map(|(_, ahead)| ahead)
    };
    Some(ClockOffsets {
        wall: ahead(ClockId::CLOCK_REALTIME)?,
        boot: ahead(ClockId::CLOCK_BOOTTIME)?,
    })
}

/// Returns how many units per second (`USER_HZ`) `/proc/stat` uses to count time. This does not
/// depend on the kernel's HZ.
pub(super) fn user_hz() -> i64 {
    sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100)
}

fn cpu_times(stat: &str, hz: i64) -> BTreeMap<u32, CpuTimes> {
    let line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let cpu = words.next()?.parse().ok()?;
        let mut next = || {
            let ticks: i64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            Nanos(ticks.saturating_mul(1_000_000_000 / hz))
        };
        // Documentation/filesystems/proc.rst gives the order of the columns.
        let times = CpuTimes {
            user: next(),
            nice: next(),
            system: next(),
            idle: next(),
            iowait: next(),
            irq: next(),
            softirq: next(),
            steal: next(),
        };
        Some((cpu, times))
    };
    // The first line, `cpu  …`, sums up all CPUs.
    stat.lines()
        .filter(|line| !line.starts_with("cpu "))
        .filter_map(line)
        .collect()
}

/// Parses `/proc/net/softnet_stat`, which has a line of hexadecimal numbers for each online CPU.
/// Since Linux 5.10, the 13th column is the CPU number. Before that, the first line is attributed
/// to CPU 0, the second to CPU 1, and so on.
fn softnet(text: &str) -> BTreeMap<u32, SoftnetCounts> {
    let line = |(place, line): (u32, &str)| {
        let words = line.split_ascii_whitespace();
        let words: Option<Vec<u64>> = words.map(|w| u64::from_str_radix(w, 16).ok()).collect();
        let words = words?;
        let cpu = words
            .get(12)
            .map_or(Some(place), |&cpu| u32::try_from(cpu).ok());
        let counts = SoftnetCounts {
            processed: *words.first()?,
            dropped: *words.get(1)?,
            squeezed: *words.get(2)?,
        };
        Some((cpu?, counts))
    };
    (0..).zip(text.lines()).filter_map(line).collect()
}

/// Parses `/proc/net/dev`, which has two title lines and then a line for each device.
fn device_packets(text: &str) -> BTreeMap<String, DevicePackets> {
    let line = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let packets = DevicePackets {
            received: words.get(1)?.parse().ok()?,
            sent: words.get(9)?.parse().ok()?,
        };
        Some((name.trim().to_owned(), packets))
    };
    text.lines().skip(2).filter_map(line).collect()
}

/// Returns the CPU numbers in the title line of `/proc/interrupts` or `/proc/softirqs`.
fn columns(text: &str) -> Vec<u32> {
    let header = text.lines().next().unwrap_or_default();
    header
        .split_ascii_whitespace()
        .filter_map(|word| word.strip_prefix("CPU")?.parse().ok())
        .collect()
}

fn interrupts(text: &str) -> BTreeMap<String, InterruptRow> {
    let cpus = columns(text);
    let row = |line: &str| {
        let (label, rest) = line.split_once(':')?;
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let counts: BTreeMap<u32, u64> = cpus
            .iter()
            .zip(&words)
            .filter_map(|(&cpu, word)| Some((cpu, word.parse().ok()?)))
            .collect();
        // `ERR` and `MIS` have only a single count, for the whole machine.
        if counts.len() < cpus.len() {
            return None;
        }
        let description = words[cpus.len()..].join(" ");
        let is_timer = label.trim().parse::<u32>().is_ok() && devices(&description) == LOCAL_TIMER;
        let label = if is_timer {
            LOCAL_TIMER_ROW
        } else {
            label.trim()
        };
        Some((
            label.to_owned(),
            InterruptRow {
                description,
                counts,
            },
        ))
    };
    text.lines().skip(1).filter_map(row).collect()
}

fn softirqs(text: &str) -> BTreeMap<String, BTreeMap<u32, u64>> {
    let rows = interrupts(text).into_iter();
    rows.map(|(name, row)| (name, row.counts)).collect()
}

/// Rows of `/proc/interrupts` with interrupts that have no tracepoint on x86. All other rows have
/// one in `arch/x86/include/asm/trace/irq_vectors.h`.
pub const UNTRACED: [&str; 7] = ["HYP", "HRE", "HVS", "MCE", "PIN", "NPI", "PIW"];

/// Returns the interrupts without a tracepoint that occurred on `cpu` between two readings, each
/// with its description and its count.
pub fn untraced_interrupts(before: &Counters, after: &Counters, cpu: Cpu) -> Vec<(String, u64)> {
    let grown = |(label, row): (&String, &InterruptRow)| {
        let count = after
            .interrupts_since(before, label, cpu)
            .filter(|&count| count > 0)?;
        UNTRACED
            .contains(&label.as_str())
            .then(|| (row.description.clone(), count))
    };
    after.interrupts.iter().filter_map(grown).collect()
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Cpu, Nanos};

    use super::{
        Counters, cpu_times, device_packets, interrupts, softirqs, softnet, untraced_interrupts,
    };

    const INTERRUPTS: &str = "\
           CPU0       CPU2
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
LOC:       6658       8645   Local timer interrupts
HYP:         29         87   Hypervisor callback interrupts
ERR:          0
";

    #[test]
    fn each_cpus_column_is_read() {
        let rows = interrupts(INTERRUPTS);
        assert_eq!(rows["LOC"].counts[&2], 8645);
        assert_eq!(rows["LOC"].description, "Local timer interrupts");
        assert_eq!(rows["24"].description, "IO-APIC 5-edge ACPI:Ged");
        assert!(!rows.contains_key("ERR"));
        let times = cpu_times(
            "cpu  3 0 3 7 2 0 9 9 0 0\ncpu0 408 0 347 7580 7 0 5 1 0 0\nintr 4\n",
            100,
        );
        assert_eq!(times[&0].user, Nanos::from_millis(4080));
        assert_eq!(times[&0].steal, Nanos::from_millis(10));
        assert_eq!(times.len(), 1);
        assert_eq!(softirqs("  CPU0\n HI: 4\n")["HI"][&0], 4);
    }

    #[test]
    fn damaged_files_are_read_as_far_as_they_are_valid() {
        assert!(interrupts("").is_empty());
        assert!(interrupts("CPU0 CPU1\n 1: 5\n:\n2 7").is_empty());
        assert!(cpu_times("cpuX 1 2\ncpu\n", 100).is_empty());
    }

    #[test]
    fn device_packet_counts_are_read() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets |bytes packets\n    lo: 9 2 0 0 0 0 0 0 9 3 0 0 0 0 0 0\n  eth0:1 2\n";
        let devices = device_packets(text);
        assert_eq!((devices["lo"].received, devices["lo"].sent), (2, 3));
        assert_eq!(devices.len(), 1);
    }

    #[test]
    fn softnet_lines_are_assigned_to_their_cpus() {
        let zeros = "00000000 ".repeat(9);
        let text = format!("0000000f 00000002 00000001 {zeros}00000003 0 0\n");
        let counts = softnet(&text)[&3];
        assert_eq!(
            (counts.processed, counts.dropped, counts.squeezed),
            (15, 2, 1)
        );
        // Kernels before 5.10 do not print the CPU number.
        let earlier = softnet("1 0 0 0 0 0 0 0 0 0 0\na 0 0 0 0 0 0 0 0 0 0\n");
        assert_eq!((earlier[&0].processed, earlier[&1].processed), (1, 10));
        assert!(softnet("").is_empty() && softnet("1 2\nxyz\n").is_empty());
        // Counters are 32 bits wide and can wrap around during a recording.
        let since = earlier[&0].since(&softnet("ffffffff 0 0")[&0]);
        assert_eq!(since.processed, 2);
    }

    #[test]
    fn interrupts_without_a_tracepoint_are_named() {
        let reading = |text: &str| Counters {
            interrupts: interrupts(text),
            ..Counters::default()
        };
        let before = reading(INTERRUPTS);
        let after = reading(&INTERRUPTS.replace("87", "90").replace("8645", "9000"));
        let untraced = untraced_interrupts(&before, &after, Cpu(2));
        assert_eq!(untraced, [("Hypervisor callback interrupts".to_owned(), 3)]);
        assert!(untraced_interrupts(&before, &after, Cpu(0)).is_empty());
    }
}
