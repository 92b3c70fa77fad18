//! The observed machine, its kernel's counters, and the programs on it.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::configured::Configured;
use crate::kernel_walk::KernelList;
use crate::{Cpu, CpuList, Nanos};

mod kernel;
mod writeback;

pub use kernel::{Evidence, MachineFact, Preemption, TickMode};
pub use writeback::Writeback;

/// Properties of the observed machine. A value is `None` if it could not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Kernel release, as in `uname -r`.
    pub kernel: String,
    /// Machine architecture, as in `uname -m`.
    pub arch: String,
    /// Tick frequency set when the kernel was built, in Hz.
    pub hz_configured: Option<u32>,
    /// When the tick stops, according to the kernel's build configuration and boot parameters.
    pub tick_mode: Option<TickMode>,
    /// Whether high-resolution timers are active.
    pub high_resolution: Option<bool>,
    /// Current clocksource.
    pub clocksource: Option<String>,
    /// Kernel command line.
    pub cmdline: Option<String>,
    /// CPUs online at the start.
    pub online: CpuList,
    /// Name of the hypervisor; `None` if the machine is not virtual or its hypervisor does not
    /// report a name.
    pub hypervisor: Option<String>,
    /// Configuration options that determine how the kernel accounts CPU time.
    pub accounting: Vec<String>,
    /// The kernel's preemption model in effect.
    pub preemption: Option<Preemption>,
    /// How facts about the kernel were established. Facts from its build configuration and boot
    /// parameters are not listed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", alias = "known")]
    pub evidence: BTreeMap<MachineFact, Evidence>,
    /// The machine's configured settings, from which findings are derived.
    #[serde(default)]
    pub configured: Configured,
    /// Settings of a simulated machine, as named and written in a scenario file; empty for a real
    /// machine.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// Boot parameter that announces a lab guest's clock. Only lab guests have it.
pub const LAB_PARAMETER: &str = "ticktax.lab";

impl Machine {
    /// Returns the value of the machine's boot parameter `name`, like the function [`parameter`].
    pub fn parameter(&self, name: &str) -> Option<&str> {
        parameter(self.cmdline.as_deref().unwrap_or_default(), name)
    }
}

/// Returns the words of a kernel command line that are meant for the kernel. Words after `--` are
/// for the init process.
pub fn kernel_words(cmdline: &str) -> impl Iterator<Item = &str> {
    cmdline
        .split_ascii_whitespace()
        .take_while(|word| *word != "--")
}

/// Returns the value of the parameter `name` in `cmdline`, or `None` if it is missing. A repeated
/// parameter has its last value.
pub fn parameter<'a>(cmdline: &'a str, name: &str) -> Option<&'a str> {
    let value = |word: &'a str| word.strip_prefix(name)?.strip_prefix('=');
    kernel_words(cmdline).filter_map(value).last()
}

/// A reading of the kernel's counters, taken at the start or end of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Time of the reading, on `CLOCK_MONOTONIC`.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// `/proc/stat`, by CPU.
    pub cpu_times: BTreeMap<u32, CpuTimes>,
    /// Interrupt counts per CPU from `/proc/interrupts`, by the row's label and devices. The local
    /// timer's row is called [`LOCAL_TIMER_ROW`](crate::interrupt_rows::LOCAL_TIMER_ROW) on every
    /// architecture.
    pub interrupts: BTreeMap<String, InterruptRow>,
    /// Softirq counts per CPU from `/proc/softirqs`, by name of the softirq.
    pub softirqs: BTreeMap<String, BTreeMap<u32, u64>>,
    /// When `interrupts` and `softirqs` were read, on `CLOCK_MONOTONIC`, if later than `at`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "interrupts_read_ns"
    )]
    pub interrupts_read: Option<Nanos>,
    /// `/proc/net/softnet_stat`, by CPU.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub softnet: BTreeMap<u32, SoftnetCounts>,
    /// `/proc/net/dev`, by device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, DevicePackets>,
    /// Pressure stall information from `/proc/pressure`, by resource (`cpu`, `io`, `memory`).
    #[serde(default)]
    pub pressure: BTreeMap<String, Pressure>,
    /// UDP sockets of the watched program's processes, from `/proc/PID/net/udp`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub udp_sockets: Vec<UdpSocket>,
    /// Counters of the CPU quota of the watched program's cgroup, from `cpu.stat`.
    #[serde(default)]
    pub throttling: Option<Throttling>,
    /// Counters of the cgroups that have a CPU quota, from their `cpu.stat`. On a machine with very
    /// many cgroups, some are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<Throttling>,
    /// Samples, taken since the start of the recording, of how many threads were running or waiting
    /// for a CPU on the entire machine.
    #[serde(default)]
    pub run_queue: Option<RunQueue>,
    /// Amounts of data written to swap and to NFS servers, and of data still to be written.
    #[serde(default)]
    pub writeback: Option<Writeback>,
    /// Offsets of other clocks from `CLOCK_MONOTONIC`.
    #[serde(default)]
    pub clocks: Option<ClockOffsets>,
    /// CPU time of each process from `/proc/PID/stat`, by process id. On machines with very many
    /// processes, only those whose CPU time grew during the recording are included.
    #[serde(default)]
    pub programs: BTreeMap<i32, ProgramTime>,
    /// When the last process in `programs` was read, on `CLOCK_MONOTONIC`; `None` in recordings
    /// from earlier versions of ticktax.
    #[serde(default, rename = "programs_read_ns")]
    pub programs_read: Option<Nanos>,
    /// Whether processes that ran during the recording may be missing from `programs` because there
    /// were too many to read.
    #[serde(
        default,
        skip_serializing_if = "std::ops::Not::not",
        alias = "programs_cut"
    )]
    pub programs_truncated: bool,
    /// Ids of the processes that existed. Present only in recordings without `programs`, such as a
    /// part of a longer recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<BTreeSet<i32>>,
    /// Kernel messages printed to serial consoles since the start of the recording; `None` if the
    /// machine has no serial console, or if the kernel's log cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console: Option<ConsoleOutput>,
    /// Numbers of objects in the kernel's lists.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kernel_objects: BTreeMap<KernelList, u64>,
    /// Number of times the kernel stopped each CPU's tick since the tracer started counting. Empty
    /// if the tracer did not count.
    #[serde(default)]
    pub ticks_stopped: BTreeMap<u32, u64>,
}

/// Kernel messages printed to serial consoles. A CPU that prints them waits for the serial line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConsoleOutput {
    /// The serial consoles. Each one prints every message.
    pub consoles: Vec<SerialConsole>,
    /// Messages are printed if their level is below this one (`kernel.printk`).
    pub level: u8,
    /// Number of messages printed.
    pub messages: u64,
    /// Length of these messages as printed, including time stamps.
    pub bytes: u64,
    /// Whether there were further messages that could not be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_incomplete: bool,
}

/// A serial line that the kernel prints its messages on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SerialConsole {
    /// Name of the device, such as `ttyS0`.
    pub name: String,
    /// Speed of the line, if a boot parameter sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits_per_s: Option<u32>,
}

impl ConsoleOutput {
    /// Number of bits that a serial line sends per byte: a start bit, the byte, and a stop bit.
    const BITS: f64 = 10.0;

    /// Returns the minimum time that all lines need for these messages; `None` if no speed is
    /// known.
    pub fn time(&self) -> Option<Nanos> {
        let speeds = self.consoles.iter().filter_map(|line| line.bits_per_s);
        let speeds = speeds.filter(|&speed| speed > 0);
        let seconds = speeds.map(|speed| self.bytes as f64 * Self::BITS / f64::from(speed));
        let seconds = seconds.reduce(|a, b| a + b)?;
        #[expect(clippy::cast_possible_truncation, reason = "a log is not that long")]
        Some(Nanos((seconds * 1e9) as i64))
    }
}

/// A UDP socket of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UdpSocket {
    /// Inode number of the socket.
    pub inode: u64,
    /// Local port.
    pub port: u16,
    /// Id of a process that has the socket open. Other processes may share it.
    pub pid: i32,
    /// Data waiting to be read, in bytes of buffer space.
    pub queued_bytes: u64,
    /// Number of datagrams dropped, usually because the buffer was full.
    pub drops: u64,
    /// Size of the receive buffer as the kernel counts it, which is twice the size set with
    /// `SO_RCVBUF`. `None` if the kernel does not report it or if the socket is in another network
    /// namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_bytes: Option<u64>,
    /// Memory that the kernel charges to the buffer, both for waiting data and for data that was
    /// read recently. Known whenever `buffer_bytes` is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_bytes: Option<u64>,
}

/// Packet counters of a network device in this network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DevicePackets {
    /// Packets received, counted before GRO merges them.
    pub received: u64,
    /// Packets sent, counted before the device segments them.
    pub sent: u64,
}

/// One CPU's counters of received network frames, summed over all network namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SoftnetCounts {
    /// Frames processed.
    pub processed: u64,
    /// Frames dropped because the CPU's backlog queue was full.
    pub dropped: u64,
    /// Number of times `NET_RX` stopped with work left because it had used up its packet budget or
    /// its time limit (`time_squeeze`).
    pub squeezed: u64,
}

impl SoftnetCounts {
    /// Returns how much each counter grew since `before`, even if the kernel's 32-bit counters
    /// wrapped around in between.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let passed = |after: u64, before: u64| after.wrapping_sub(before) & u64::from(u32::MAX);
        Self {
            processed: passed(self.processed, before.processed),
            dropped: passed(self.dropped, before.dropped),
            squeezed: passed(self.squeezed, before.squeezed),
        }
    }
}

/// CPU time of a process from `/proc/PID/stat`, including threads that have exited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramTime {
    /// Process name.
    pub name: String,
    /// User time plus system time, as a whole number of `USER_HZ` ticks.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Whether the process is a kernel thread or ticktax itself.
    #[serde(alias = "own_or_kernel")]
    pub ticktax_or_kernel: bool,
    /// Whether the process's nice value is positive, so that its user time is in the `nice` column.
    #[serde(default)]
    pub nice: bool,
    /// CPU time of the process's children that have exited and been waited for.
    #[serde(default, rename = "children_time_ns")]
    pub children: Nanos,
    /// CPU time of the process's living threads, according to the scheduler (`schedstat`); `None`
    /// if it is unknown.
    #[serde(default, rename = "on_cpu_ns")]
    pub on_cpu: Option<Nanos>,
}

/// Offsets of other clocks from `CLOCK_MONOTONIC`. The kernel adjusts the rates of all these clocks
/// together, so the offsets change only when the time of day is set or the machine is suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockOffsets {
    /// `CLOCK_REALTIME`, the time of day.
    #[serde(rename = "wall_ns")]
    pub wall: Nanos,
    /// `CLOCK_BOOTTIME`, which keeps running while the machine is suspended.
    #[serde(rename = "boot_ns")]
    pub boot: Nanos,
}

/// Changes in the clock offsets between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockChanges {
    /// Time that the machine was suspended.
    pub suspended: Nanos,
    /// Change of the time of day; negative if it was set back.
    pub stepped: Nanos,
}

impl ClockOffsets {
    /// Smallest change that counts. The clocks are not all read at exactly the same time, so
    /// smaller changes mean nothing.
    const SHORTEST: Nanos = Nanos::from_millis(1);

    /// Returns the changes of the offsets since `before`.
    pub fn since(&self, before: &Self) -> ClockChanges {
        let significant = |change: Nanos| {
            let is_significant = change >= Self::SHORTEST || -change >= Self::SHORTEST;
            if is_significant { change } else { Nanos::ZERO }
        };
        let suspended = self.boot - before.boot;
        ClockChanges {
            suspended: significant(suspended),
            stepped: significant(self.wall - before.wall - suspended),
        }
    }
}

/// Pressure stall information: total time since boot that tasks were stalled for lack of one
/// resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pressure {
    /// Time that at least one task was stalled.
    #[serde(rename = "some_ns")]
    pub some: Nanos,
    /// Time that all non-idle tasks were stalled.
    #[serde(rename = "full_ns")]
    pub full: Nanos,
}

/// Counters of a cgroup's CPU quota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Throttling {
    /// Path of the cgroup.
    pub cgroup: String,
    /// Quota periods in which the cgroup was runnable.
    pub periods: u64,
    /// Quota periods in which the cgroup was throttled after using up its quota.
    pub throttled: u64,
    /// Time that the cgroup was throttled, summed over CPUs.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// CPU time that the cgroup may use in each period; `None` if it is not limited or unknown.
    #[serde(default, rename = "quota_ns", skip_serializing_if = "Option::is_none")]
    pub quota: Option<Nanos>,
    /// Length of a period, if known.
    #[serde(default, rename = "period_ns", skip_serializing_if = "Option::is_none")]
    pub period: Option<Nanos>,
    /// Extra CPU time, saved from earlier periods, that the cgroup may use; `None` if the kernel
    /// has no such setting.
    #[serde(default, rename = "burst_ns", skip_serializing_if = "Option::is_none")]
    pub burst: Option<Nanos>,
}

impl Throttling {
    /// Returns how much each counter grew since `before`; `None` if `before` is for a different
    /// cgroup.
    pub fn since(&self, before: &Self) -> Option<Self> {
        (self.cgroup == before.cgroup).then(|| Self {
            periods: self.periods.saturating_sub(before.periods),
            throttled: self.throttled.saturating_sub(before.throttled),
            time: self.time - before.time,
            ..self.clone()
        })
    }
}

/// A memory limit of a cgroup, and how often the cgroup reached it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLimit {
    /// Path of the cgroup's directory.
    pub cgroup: String,
    /// Name of the file that sets the limit: `memory.max`, `memory.high` or
    /// `memory.limit_in_bytes`.
    pub file: String,
    /// The limit.
    pub bytes: u64,
    /// Number of times the cgroup reached the limit, so that memory had to be reclaimed.
    pub hits: u64,
}

/// Samples of how many threads were running or waiting for a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunQueue {
    /// Number of samples.
    pub samples: u64,
    /// Sum of the thread counts over all samples.
    pub threads: u64,
    /// Largest thread count in any sample.
    pub max: u64,
}

impl RunQueue {
    /// Adds a sample.
    pub fn sample(&mut self, threads: u64) {
        self.samples += 1;
        self.threads += threads;
        self.max = self.max.max(threads);
    }
}

/// A row of `/proc/interrupts`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterruptRow {
    /// Devices on the interrupt line. For an architecture-specific interrupt, the kernel's
    /// description of it.
    pub description: String,
    /// Number of interrupts, by CPU number.
    pub counts: BTreeMap<u32, u64>,
}

/// One CPU's line in `/proc/stat`, converted to nanoseconds. The unit in the file is 10 ms
/// (`USER_HZ` = 100), and most kernels determine the times by sampling at the tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTimes {
    /// Time of programs with a nice value of 0 or below.
    #[serde(rename = "user_ns")]
    pub user: Nanos,
    /// Time of programs with a positive nice value.
    #[serde(rename = "nice_ns")]
    pub nice: Nanos,
    /// Time in the kernel, on behalf of programs and in kernel threads.
    #[serde(rename = "system_ns")]
    pub system: Nanos,
    /// Idle time.
    #[serde(rename = "idle_ns")]
    pub idle: Nanos,
    /// Idle time in which a task waited for a disk.
    #[serde(rename = "iowait_ns")]
    pub iowait: Nanos,
    /// Time in hardware interrupts; 0 on kernels that only sample at the tick and do not measure
    /// it.
    #[serde(rename = "irq_ns")]
    pub irq: Nanos,
    /// Time in softirqs.
    #[serde(rename = "softirq_ns")]
    pub softirq: Nanos,
    /// Stolen time, according to the hypervisor's steal clock.
    #[serde(rename = "steal_ns")]
    pub steal: Nanos,
}

impl CpuTimes {
    /// Returns the busy time: user, nice, system, irq and softirq.
    pub fn busy(&self) -> Nanos {
        self.user + self.nice + self.system + self.irq + self.softirq
    }

    /// Returns the time added to each column since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            user: self.user - before.user,
            nice: self.nice - before.nice,
            system: self.system - before.system,
            idle: self.idle - before.idle,
            iowait: self.iowait - before.iowait,
            irq: self.irq - before.irq,
            softirq: self.softirq - before.softirq,
            steal: self.steal - before.steal,
        }
    }
}

impl Counters {
    /// Returns the number of interrupts in the row `label` on `cpu` since `before`; `None` if the
    /// row is missing from either reading.
    pub fn interrupts_since(&self, before: &Self, label: &str, cpu: Cpu) -> Option<u64> {
        let count = |counters: &Self| counters.interrupts.get(label)?.counts.get(&cpu.0).copied();
        Some(count(self)?.saturating_sub(count(before)?))
    }

    /// Returns the ids of processes that existed at the time of this reading, including all that
    /// ran during the recording. Returns `None` if some of these may be missing.
    pub fn present(&self) -> Option<BTreeSet<i32>> {
        let listed = !self.programs_truncated && !self.programs.is_empty();
        let listed = || listed.then(|| self.programs.keys().copied().collect());
        self.pids.clone().or_else(listed)
    }

    /// Removes the programs that did not run between `before` and `self` from both readings,
    /// because a long list would make the file too large. Readings with few programs stay
    /// unchanged.
    pub fn keep_what_ran(&mut self, before: &mut Self) {
        const FEW: usize = 1_000;
        if self.programs.len() <= FEW {
            return;
        }
        // `on_cpu` shrinks by a thread's time when the thread exits.
        let ran = |pid: &i32, after: &ProgramTime| {
            let time = before.programs.get(pid).map_or(Nanos::ZERO, |b| b.time);
            let children = before.programs.get(pid).map_or(Nanos::ZERO, |b| b.children);
            let on_cpu = before.programs.get(pid).and_then(|b| b.on_cpu);
            after.time > time || after.children > children || after.on_cpu != on_cpu
        };
        // Only the scheduler's accounting (`on_cpu`) shows a process that ran for less than a tick.
        let may_be_missed = |after: &ProgramTime| after.on_cpu.is_none();
        self.programs_truncated |= self.programs.values().any(may_be_missed);
        self.programs.retain(|pid, after| ran(pid, after));
        let after = &self.programs;
        before.programs.retain(|pid, _| after.contains_key(pid));
    }

    /// Returns the changes of the clock offsets since `before`; `None` if either reading lacks the
    /// offsets.
    pub fn clocks_since(&self, before: &Self) -> Option<ClockChanges> {
        Some(self.clocks?.since(before.clocks.as_ref()?))
    }

    /// Returns whether the steal clock has advanced on any CPU since boot. `/proc/stat` always has
    /// a column for stolen time, so a 0 there may just mean that the hypervisor does not report it.
    pub fn tells_steal(&self) -> bool {
        let mut all = self.cpu_times.values();
        all.any(|times| times.steal > Nanos::ZERO)
    }

    /// Returns the time stolen from `cpu` since `before`, according to the hypervisor's steal
    /// clock; `None` if either reading lacks the CPU.
    pub fn steal_since(&self, before: &Self, cpu: Cpu) -> Option<Nanos> {
        let steal = |counters: &Self| Some(counters.cpu_times.get(&cpu.0)?.steal);
        Some(steal(self)? - steal(before)?)
    }
}

#[cfg(test)]
mod tests {
    use super::{Counters, ProgramTime};
    use crate::Nanos;

    fn program(ms: i64, on_cpu_ms: Option<i64>) -> ProgramTime {
        ProgramTime {
            time: Nanos::from_millis(ms),
            on_cpu: on_cpu_ms.map(Nanos::from_millis),
            ..ProgramTime::default()
        }
    }

    /// Returns two readings of more processes than a recording keeps. All but two of them slept
    /// between the readings.
    fn readings_of_many_processes(on_cpu: impl Fn(i64) -> Option<i64>) -> (Counters, Counters) {
        let reading = |ran: i64| {
            let process = |pid: i32| match pid {
                1 => (pid, program(10 + ran, on_cpu(10 + ran))),
                // A thread of this process exited between the readings.
                2 => (pid, program(10, on_cpu(10 - ran))),
                _ => (pid, program(10, on_cpu(10))),
            };
            Counters {
                programs: (1..=1_200).map(process).collect(),
                ..Counters::default()
            }
        };
        (reading(0), reading(7))
    }

    #[test]
    fn programs_that_ran_are_kept_and_listed_as_present() {
        let (mut before, mut after) = readings_of_many_processes(Some);
        after.keep_what_ran(&mut before);
        assert_eq!(after.present(), Some([1, 2].into()));
        // Without the scheduler's times, a process that ran can appear to have slept.
        let (mut before, mut after) = readings_of_many_processes(|_| None);
        after.keep_what_ran(&mut before);
        assert_eq!(after.present(), None);
        assert_eq!(Counters::default().present(), None);
        let part = Counters {
            pids: Some([3].into()),
            ..Counters::default()
        };
        assert_eq!(part.present(), Some([3].into()));
    }
}
