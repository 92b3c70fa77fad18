//! What a machine was told to do, beside what it says that it does.
//!
//! Nothing here is judged: these are the facts that findings are made from, as far as they could be
//! read.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limitation::Limitation;
use crate::{Cpu, CpuList};

/// Settings from files, and the values in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Configured {
    /// Frequency in which the kernel tells programs of CPU time (`USER_HZ`), in Hz.
    pub user_hz: Option<u32>,
    /// Options of the kernel's build that concern time, by name without `CONFIG_`; one that is not
    /// set is left out. Empty where the build's configuration is not to be had.
    pub build: BTreeMap<String, String>,
    /// The contents of short files, most of them below `/proc/sys` and `/sys`, by path without the first slash.
    pub files: BTreeMap<String, String>,
    /// What the kernel's timers say of themselves, which only root may read.
    pub timers: Option<TimerList>,
    /// What the kernel said when it booted, where that may be read.
    pub log: Option<KernelLog>,
    /// Settings of `sysctl.conf` and `sysctl.d` that there are in this kernel.
    pub sysctl: Vec<SysctlSetting>,
    /// Lines of `fstab`, beside what is mounted.
    pub fstab: Vec<FstabLine>,
    /// File systems that keep data and that no line of `fstab` is about; the first 64.
    pub other_mounts: Vec<OtherMount>,
    /// How the kernel and each SCSI or ATA disk see the disk's cache.
    pub write_caches: Vec<WriteCache>,
    /// Programs whose fsync does nothing, as far as `/proc` tells.
    pub fsync_off: Vec<FsyncOff>,
    /// How CPUs choose their frequency.
    pub frequency: Vec<FrequencyPolicy>,
    /// A limit on how long a CPU may take to wake up.
    pub wake_latency: Option<WakeLatency>,
    /// Receive queues of network devices whose packets are handed to other CPUs (RPS), in this network namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steered_queues: Vec<SteeredQueue>,
    /// Network devices that could take work off the CPUs and do not, in this network namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offloads_off: Vec<DeviceOffloads>,
    /// The CPUs that device interrupts go to, by number; where CPUs are isolated, or there are not many interrupts.
    pub interrupt_cpus: BTreeMap<String, String>,
    /// Whether `irqbalance` runs; `None` where it was not checked.
    pub irqbalance: Option<bool>,
    /// What could not be read, and why.
    pub unread: Vec<Limitation>,
}

impl Configured {
    /// CPUs that are kept free of other work, or whose tick stops while they are busy.
    pub fn set_apart(&self) -> CpuList {
        let files = [
            "sys/devices/system/cpu/isolated",
            "sys/devices/system/cpu/nohz_full",
        ];
        let lists = files.into_iter().filter_map(|file| self.file(file));
        let lists = lists.filter_map(|list| list.parse::<CpuList>().ok());
        let cpus: Vec<Cpu> = lists
            .flat_map(|list| list.iter().collect::<Vec<_>>())
            .collect();
        cpus.into_iter().collect()
    }

    /// The contents of a file, where it was read.
    pub fn file(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether an option was built in; `None` where the build's configuration is not known.
    pub fn built(&self, option: &str) -> Option<bool> {
        let value = self.build.get(option).map(String::as_str);
        (!self.build.is_empty()).then_some(value == Some("y"))
    }
}

/// `/proc/timer_list`, as far as it concerns the tick.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimerList {
    /// Whether high-resolution timers are active, on every CPU.
    pub high_resolution: Option<bool>,
    /// Whether the tick may stop, on every CPU.
    pub nohz: Option<bool>,
    /// The devices that give the tick.
    pub devices: Vec<String>,
}

/// The kernel's messages about its own settings and clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelLog {
    /// Whether it goes back to the boot.
    pub complete: bool,
    /// Boot parameters that no part of the kernel knew.
    pub unknown_parameters: Vec<String>,
    /// Messages by which a clock was given up.
    pub clock: Vec<String>,
}

/// A kernel parameter as a file sets it, and as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SysctlSetting {
    /// The parameter, `net.core.rmem_max`.
    pub key: String,
    /// The value that is set last.
    pub value: String,
    /// Values of other files that some loaders would let win.
    pub others: Vec<String>,
    /// Where it is set: file and line.
    pub place: String,
    /// The value in force.
    pub live: String,
}

/// A line of `fstab`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FstabLine {
    /// What is to be mounted.
    pub device: String,
    /// Where.
    pub place: String,
    /// As which file system.
    pub kind: String,
    /// With which options.
    pub options: Vec<String>,
    /// What is mounted there.
    pub mounted: Option<Mounted>,
}

/// A file system that is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mounted {
    /// The device or the source.
    pub device: String,
    /// The file system.
    pub kind: String,
    /// The options in force, those that the file system tells elsewhere among them.
    pub options: Vec<String>,
}

/// A file system that is mounted without a line of `fstab`: by hand, by a program, by systemd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherMount {
    /// Where.
    pub place: String,
    /// What is mounted there.
    pub mounted: Mounted,
}

/// A disk's cache of what is to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WriteCache {
    /// The disk, such as `sda`.
    pub disk: String,
    /// What the kernel goes by (`queue/write_cache`): it flushes the cache only where this is `write back`.
    pub kernel: String,
    /// What the disk said of itself (`cache_type`).
    pub own: String,
}

/// A process whose fsync does nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FsyncOff {
    /// Its name.
    pub program: String,
    /// Its process id.
    pub pid: i32,
    /// Why it does nothing.
    pub by: FsyncOffBy,
}

/// What keeps a program's fsync from doing anything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FsyncOffBy {
    /// A library that is mapped in it and takes the calls: its file.
    Library(String),
    /// An argument of its command line.
    Argument(String),
}

/// How the CPUs of one policy choose their frequency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FrequencyPolicy {
    /// Which CPUs.
    pub cpus: String,
    /// The driver.
    pub driver: String,
    /// The governor.
    pub governor: String,
    /// The most that the policy allows, in kHz.
    pub max_khz: Option<u64>,
    /// The most that the hardware can, in kHz.
    pub hardware_max_khz: Option<u64>,
}

/// A receive queue whose packets are handed to certain CPUs (`rps_cpus`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SteeredQueue {
    /// The device.
    pub device: String,
    /// The queue, such as `rx-0`.
    pub queue: String,
    /// The CPUs.
    pub cpus: CpuList,
}

/// What a network device could do, and does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceOffloads {
    /// The device.
    pub device: String,
    /// What is off that could be on.
    pub off: Vec<Offload>,
}

/// Work with packets that a device, or the kernel once for many packets, can take off the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// Checksums of what is sent.
    Checksum,
    /// Cutting TCP data into segments.
    Segmentation,
    /// The same put off to the last moment before the device.
    GenericSegmentation,
    /// Checksums of what is received.
    ReceiveChecksum,
    /// Putting together segments that were received.
    GenericReceive,
}

impl Offload {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::Checksum,
        Self::Segmentation,
        Self::GenericSegmentation,
        Self::ReceiveChecksum,
        Self::GenericReceive,
    ];

    /// What ethtool takes for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Checksum => "tx",
            Self::Segmentation => "tso",
            Self::GenericSegmentation => "gso",
            Self::ReceiveChecksum => "rx",
            Self::GenericReceive => "gro",
        }
    }

    /// What it is of packets that are received.
    pub const fn is_of_received(self) -> bool {
        matches!(self, Self::ReceiveChecksum | Self::GenericReceive)
    }

    /// The kernel's features of which any is it.
    pub const fn features(self) -> &'static [&'static str] {
        match self {
            Self::Checksum => &[
                "tx-checksum-ip-generic",
                "tx-checksum-ipv4",
                "tx-checksum-ipv6",
            ],
            Self::Segmentation => &["tx-tcp-segmentation"],
            Self::GenericSegmentation => &["tx-generic-segmentation"],
            Self::ReceiveChecksum => &["rx-checksum"],
            Self::GenericReceive => &["rx-gro"],
        }
    }
}

/// The limit behind `/dev/cpu_dma_latency`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WakeLatency {
    /// The limit in force, in µs.
    #[serde(rename = "latency_us")]
    pub micros: u32,
    /// Programs that hold the file open, as far as they may be seen: name and process id.
    pub holders: Vec<String>,
}
