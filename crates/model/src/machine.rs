//! What kind of machine it was, and what its own counters said.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::configured::Configured;
use crate::{Cpu, CpuList, Nanos};

mod kernel;
mod writeback;

pub use kernel::{Known, MachineFact, Preemption, TickMode};
pub use writeback::Writeback;

/// Facts about the machine that was observed; what could not be read is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Machine architecture, as `uname -m` prints it.
    pub arch: String,
    /// Timer interrupt frequency that the kernel was built for, in Hz.
    pub hz_configured: Option<u32>,
    /// When the tick stops, by the kernel's build and its boot parameters.
    pub tick_mode: Option<TickMode>,
    /// High-resolution timers on or off.
    pub high_resolution: Option<bool>,
    /// Clocksource in use.
    pub clocksource: Option<String>,
    /// The kernel's command line.
    pub cmdline: Option<String>,
    /// CPUs online at the start.
    pub online: CpuList,
    /// The hypervisor's name, where the machine is virtual and says so.
    pub hypervisor: Option<String>,
    /// How the kernel counts CPU time: the configuration options in force.
    pub accounting: Vec<String>,
    /// The preemption model in force.
    pub preemption: Option<Preemption>,
    /// How facts about the kernel are known; those that are not here, from its build configuration and
    /// its boot parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub known: BTreeMap<MachineFact, Known>,
    /// What it was told to do, for findings.
    #[serde(default)]
    pub configured: Configured,
    /// What a simulated machine was set to, by the names and in the words of a scenario; empty for
    /// a real one.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// The boot parameter that says what the time of a lab guest is; what runs in a guest knows by it
/// that it does.
pub const LAB_PARAMETER: &str = "ticktax.lab";

impl Machine {
    /// The value of a boot parameter: see [`parameter`].
    pub fn parameter(&self, name: &str) -> Option<&str> {
        parameter(self.cmdline.as_deref().unwrap_or_default(), name)
    }
}

/// The words of a command line that are for the kernel: those behind `--` are for its first program.
pub fn kernel_words(cmdline: &str) -> impl Iterator<Item = &str> {
    cmdline
        .split_ascii_whitespace()
        .take_while(|word| *word != "--")
}

/// The value of a boot parameter; where it is given more than once, the last.
pub fn parameter<'a>(cmdline: &'a str, name: &str) -> Option<&'a str> {
    let value = |word: &'a str| word.strip_prefix(name)?.strip_prefix('=');
    kernel_words(cmdline).filter_map(value).last()
}

/// A reading of the kernel's own counters, taken at both ends of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// When they were read, on `CLOCK_MONOTONIC`.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// `/proc/stat`, a line a CPU.
    pub cpu_times: BTreeMap<u32, CpuTimes>,
    /// `/proc/interrupts`: row label and device names → a count for each CPU. The local timer's row is
    /// called [`LOCAL_TIMER_ROW`](crate::interrupt_rows::LOCAL_TIMER_ROW) on every architecture.
    pub interrupts: BTreeMap<String, InterruptRow>,
    /// `/proc/softirqs`: vector → a count for each CPU.
    pub softirqs: BTreeMap<String, BTreeMap<u32, u64>>,
    /// `/proc/net/softnet_stat`, a line a CPU.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub softnet: BTreeMap<u32, SoftnetCounts>,
    /// `/proc/net/dev`, by device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, DevicePackets>,
    /// `/proc/pressure`: resource (`cpu`, `io`, `memory`) → time lost to its scarcity.
    #[serde(default)]
    pub pressure: BTreeMap<String, Pressure>,
    /// The UDP sockets of the victim's processes, from `/proc/PID/net/udp`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub udp_sockets: Vec<UdpSocket>,
    /// `cpu.stat` of the victim's cgroup.
    #[serde(default)]
    pub throttling: Option<Throttling>,
    /// Threads that ran or waited for a CPU, on the whole machine, as sampled until then.
    #[serde(default)]
    pub run_queue: Option<RunQueue>,
    /// What was written to swap and to servers, and what is still to be written.
    #[serde(default)]
    pub writeback: Option<Writeback>,
    /// Where the other clocks stand.
    #[serde(default)]
    pub clocks: Option<ClockOffsets>,
    /// CPU time of processes, from `/proc/PID/stat`, by process id; where there are very many, of
    /// those whose time grew while recording.
    #[serde(default)]
    pub programs: BTreeMap<i32, ProgramTime>,
    /// When the last of `programs` had been read; `None` in recordings of earlier versions.
    #[serde(default, rename = "programs_read_ns")]
    pub programs_read: Option<Nanos>,
    /// Whether `programs` may lack some that ran while recording: there were too many to read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub programs_cut: bool,
    /// The processes that were there where `programs` is left out, as it is of a part of a recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<BTreeSet<i32>>,
    /// How often the kernel had stopped the tick since the tracer began to count, by CPU; empty
    /// where it did not.
    #[serde(default)]
    pub ticks_stopped: BTreeMap<u32, u64>,
}

/// A UDP socket of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UdpSocket {
    /// The kernel's number of it.
    pub inode: u64,
    /// The port that it receives on.
    pub port: u16,
    /// A process that has it open.
    pub pid: i32,
    /// What waits to be read, in bytes of the buffer.
    pub queued_bytes: u64,
    /// Datagrams that it dropped, most of them because its buffer was full.
    pub drops: u64,
    /// What its buffer may hold as the kernel counts, twice what `SO_RCVBUF` was set to; `None` where the kernel does not
    /// tell, and of a socket of another network namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_bytes: Option<u64>,
    /// What its buffer is charged for: what waits, and what was read of late. Known where `buffer_bytes` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_bytes: Option<u64>,
}

/// Packets that a network device counted, in this network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DevicePackets {
    /// Received; of what was put together (GRO), as it came.
    pub received: u64,
    /// Sent; of what is cut to size by the device itself, uncut.
    pub sent: u64,
}

/// What a CPU counts of what it receives from the network, for all network namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SoftnetCounts {
    /// Frames that it took.
    pub processed: u64,
    /// Frames that it dropped because its backlog was full.
    pub dropped: u64,
    /// How often `NET_RX` ended with work left, because its budget or its time was used up (`time_squeeze`).
    pub squeezed: u64,
}

impl SoftnetCounts {
    /// What passed from `before` to here. The kernel's counters have 32 bits, and begin again.
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

/// What `/proc/PID/stat` says of a process' CPU time, its threads that are gone included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramTime {
    /// Its name.
    pub name: String,
    /// User and system time together, in whole ticks of `USER_HZ`.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Whether it is a thread of the kernel, or ticktax itself.
    pub own_or_kernel: bool,
    /// Whether its nice value is above 0, so that its user time is in a column of its own.
    #[serde(default)]
    pub nice: bool,
    /// The same times of its children that have ended, and that it has waited for.
    #[serde(default, rename = "children_time_ns")]
    pub children: Nanos,
    /// The time of its threads that live on their CPUs, by the scheduler (`schedstat`).
    #[serde(default, rename = "on_cpu_ns")]
    pub on_cpu: Option<Nanos>,
}

/// How far other clocks are ahead of `CLOCK_MONOTONIC`. The kernel slews all of them together, so
/// that these change only when the time of day is set, or by suspension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockOffsets {
    /// `CLOCK_REALTIME`, the time of day.
    #[serde(rename = "wall_ns")]
    pub wall: Nanos,
    /// `CLOCK_BOOTTIME`, which goes on while the machine is suspended.
    #[serde(rename = "boot_ns")]
    pub boot: Nanos,
}

/// What happened to the clocks between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockChanges {
    /// For how long the machine was suspended.
    pub suspended: Nanos,
    /// By how much the time of day was set, forward or, below zero, back.
    pub stepped: Nanos,
}

impl ClockOffsets {
    /// What is shorter is how far apart two readings may be.
    const SHORTEST: Nanos = Nanos::from_millis(1);

    /// What happened from `before` to here.
    pub fn since(&self, before: &Self) -> ClockChanges {
        let told = |change: Nanos| {
            let is_told = change >= Self::SHORTEST || -change >= Self::SHORTEST;
            if is_told { change } else { Nanos::ZERO }
        };
        let suspended = self.boot - before.boot;
        ClockChanges {
            suspended: told(suspended),
            stepped: told(self.wall - before.wall - suspended),
        }
    }
}

/// Time since boot in which tasks stood still for want of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pressure {
    /// At least one did.
    #[serde(rename = "some_ns")]
    pub some: Nanos,
    /// All did that were not idle.
    #[serde(rename = "full_ns")]
    pub full: Nanos,
}

/// What a cgroup's CPU quota did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Throttling {
    /// The cgroup's folder.
    pub cgroup: String,
    /// Periods in which it ran.
    pub periods: u64,
    /// Those in which it used up its quota.
    pub throttled: u64,
    /// For how long it was throttled, summed over the CPUs.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

impl Throttling {
    /// What passed from `before` to here; `None` where it is another cgroup.
    pub fn since(&self, before: &Self) -> Option<Self> {
        (self.cgroup == before.cgroup).then(|| Self {
            cgroup: self.cgroup.clone(),
            periods: self.periods.saturating_sub(before.periods),
            throttled: self.throttled.saturating_sub(before.throttled),
            time: self.time - before.time,
        })
    }
}

/// How many threads ran or waited to, at the moments of sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunQueue {
    /// How many samples.
    pub samples: u64,
    /// Threads, over all samples.
    pub threads: u64,
    /// The most at one time.
    pub max: u64,
}

impl RunQueue {
    /// Takes note of a sample.
    pub fn sample(&mut self, threads: u64) {
        self.samples += 1;
        self.threads += threads;
        self.max = self.max.max(threads);
    }
}

/// A row of `/proc/interrupts`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterruptRow {
    /// The devices on the line, or the kernel's description of an architecture's own interrupt.
    pub description: String,
    /// Count by CPU number.
    pub counts: BTreeMap<u32, u64>,
}

/// One CPU's line of `/proc/stat`, in time rather than in ticks. Sampled at the tick on most
/// kernels, with a resolution of 10 ms (`USER_HZ` = 100).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTimes {
    /// Programs, at nice 0 or below.
    #[serde(rename = "user_ns")]
    pub user: Nanos,
    /// Programs, at a positive nice value.
    #[serde(rename = "nice_ns")]
    pub nice: Nanos,
    /// The kernel, for programs and its own threads.
    #[serde(rename = "system_ns")]
    pub system: Nanos,
    /// Nothing to run.
    #[serde(rename = "idle_ns")]
    pub idle: Nanos,
    /// Nothing to run, with a task waiting for a disk.
    #[serde(rename = "iowait_ns")]
    pub iowait: Nanos,
    /// Hardware interrupts; 0 on kernels that sample at the tick alone.
    #[serde(rename = "irq_ns")]
    pub irq: Nanos,
    /// Softirqs.
    #[serde(rename = "softirq_ns")]
    pub softirq: Nanos,
    /// Taken by the hypervisor, by its own clock.
    #[serde(rename = "steal_ns")]
    pub steal: Nanos,
}

impl CpuTimes {
    /// What counts as busy: user, nice, system, irq and softirq.
    pub fn busy(&self) -> Nanos {
        self.user + self.nice + self.system + self.irq + self.softirq
    }

    /// What passed from `before` to here, account by account.
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
    /// By how much the interrupt row `label` grew on `cpu` from `before` to here; `None` when
    /// either reading lacks it.
    pub fn interrupts_since(&self, before: &Self, label: &str, cpu: Cpu) -> Option<u64> {
        let count = |counters: &Self| counters.interrupts.get(label)?.counts.get(&cpu.0).copied();
        Some(count(self)?.saturating_sub(count(before)?))
    }

    /// The processes that were there, at least those that ran while recording; `None` where some of these may
    /// be missing.
    pub fn present(&self) -> Option<BTreeSet<i32>> {
        let listed = !self.programs_cut && !self.programs.is_empty();
        let listed = || listed.then(|| self.programs.keys().copied().collect());
        self.pids.clone().or_else(listed)
    }

    /// Leaves out of both readings the programs whose time did not change from `before` to here, where
    /// there are so many that a file would be full of them.
    pub fn keep_what_ran(&mut self, before: &mut Self) {
        const FEW: usize = 1_000;
        if self.programs.len() <= FEW {
            return;
        }
        // Threads that end take their part of `on_cpu` with them.
        let ran = |pid: &i32, after: &ProgramTime| {
            let time = before.programs.get(pid).map_or(Nanos::ZERO, |b| b.time);
            let children = before.programs.get(pid).map_or(Nanos::ZERO, |b| b.children);
            let on_cpu = before.programs.get(pid).and_then(|b| b.on_cpu);
            after.time > time || after.children > children || after.on_cpu != on_cpu
        };
        // What ran for less than a tick is known by the scheduler's own account alone.
        let unknown = |after: &ProgramTime| after.on_cpu.is_none();
        self.programs_cut |= self.programs.values().any(unknown);
        self.programs.retain(|pid, after| ran(pid, after));
        let after = &self.programs;
        before.programs.retain(|pid, _| after.contains_key(pid));
    }

    /// What happened to the clocks from `before` to here; `None` where either reading lacks them.
    pub fn clocks_since(&self, before: &Self) -> Option<ClockChanges> {
        Some(self.clocks?.since(before.clocks.as_ref()?))
    }

    /// Whether the hypervisor's clock has run on any CPU since the machine was started. Where it has not, the
    /// hypervisor may not say what it takes: `/proc/stat` has the column all the same.
    pub fn tells_steal(&self) -> bool {
        let mut all = self.cpu_times.values();
        all.any(|times| times.steal > Nanos::ZERO)
    }

    /// The time that the hypervisor's clock says it took from `cpu`, from `before` to here.
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

    /// More processes than are kept, which ran before: all but two slept.
    fn many(on_cpu: impl Fn(i64) -> Option<i64>) -> (Counters, Counters) {
        let of = |ran: i64| {
            let of = |pid: i32| match pid {
                1 => (pid, program(10 + ran, on_cpu(10 + ran))),
                // A thread of it ended.
                2 => (pid, program(10, on_cpu(10 - ran))),
                _ => (pid, program(10, on_cpu(10))),
            };
            Counters {
                programs: (1..=1_200).map(of).collect(),
                ..Counters::default()
            }
        };
        (of(0), of(7))
    }

    #[test]
    fn a_program_that_ran_is_among_those_that_were_there() {
        let (mut before, mut after) = many(Some);
        after.keep_what_ran(&mut before);
        assert_eq!(after.present(), Some([1, 2].into()));
        // By ticks alone, one that ran may seem to have slept.
        let (mut before, mut after) = many(|_| None);
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
