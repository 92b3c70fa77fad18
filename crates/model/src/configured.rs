//! A machine's configuration, for comparison with the settings in effect.
//!
//! This module draws no conclusions. It contains the facts from which findings are derived, to the
//! extent that they could be read.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limitation::Limitation;
use crate::{Cpu, CpuList};

/// Settings from files, and the values in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Configured {
    /// Resolution of the CPU times that the kernel reports to programs (`USER_HZ`), in Hz.
    pub user_hz: Option<u32>,
    /// Kernel build options that affect timekeeping, by name without `CONFIG_`. Options that are
    /// not set are omitted. Empty if the build configuration is not available.
    pub build: BTreeMap<String, String>,
    /// Contents of short files, most of them below `/proc/sys` and `/sys`. The key is the path
    /// without its leading slash.
    pub files: BTreeMap<String, String>,
    /// `/proc/timer_list`, which only root can read.
    pub timers: Option<TimerList>,
    /// Kernel boot messages, if they can be read.
    pub log: Option<KernelLog>,
    /// Settings in `sysctl.conf` and `sysctl.d` that exist in this kernel.
    pub sysctl: Vec<SysctlSetting>,
    /// Lines of `fstab`, with the file systems that are actually mounted.
    pub fstab: Vec<FstabLine>,
    /// Mounted file systems that store data but have no line in `fstab`; at most 64.
    pub other_mounts: Vec<OtherMount>,
    /// Write cache of each SCSI or ATA disk, as reported by the kernel and by the disk.
    pub write_caches: Vec<WriteCache>,
    /// Programs whose fsync does nothing, according to `/proc`.
    pub fsync_off: Vec<FsyncOff>,
    /// Frequency scaling of CPUs.
    pub frequency: Vec<FrequencyPolicy>,
    /// Limit on CPU wake-up latency.
    pub wake_latency: Option<WakeLatency>,
    /// Receive queues of network devices whose packets are steered to other CPUs (RPS), in this
    /// network namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steered_queues: Vec<SteeredQueue>,
    /// Network devices with offloads that are available but off, in this network namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offloads_off: Vec<DeviceOffloads>,
    /// CPUs that device interrupts are routed to, by interrupt number. Only read if CPUs are
    /// isolated or the machine has few interrupts.
    pub interrupt_cpus: BTreeMap<String, String>,
    /// Whether `irqbalance` is running; `None` if unchecked.
    pub irqbalance: Option<bool>,
    /// Settings that could not be read, with the reason.
    pub unread: Vec<Limitation>,
}

impl Configured {
    /// CPUs that are isolated, and CPUs whose tick stops while they are busy.
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

    /// The contents of the file at `path`, if it was read.
    pub fn file(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether `option` is built in; `None` if the build configuration is unknown.
    pub fn built(&self, option: &str) -> Option<bool> {
        let value = self.build.get(option).map(String::as_str);
        (!self.build.is_empty()).then_some(value == Some("y"))
    }
}

/// The parts of `/proc/timer_list` that concern the tick.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimerList {
    /// Whether high-resolution timers are active on every CPU.
    pub high_resolution: Option<bool>,
    /// Whether the tick can stop on every CPU.
    pub nohz: Option<bool>,
    /// Devices that generate the tick.
    pub devices: Vec<String>,
}

/// Kernel messages about settings and clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelLog {
    /// Whether the log goes back to boot.
    pub complete: bool,
    /// Boot parameters that the kernel did not recognise.
    pub unknown_parameters: Vec<String>,
    /// Messages that report an abandoned clocksource.
    pub clock: Vec<String>,
}

/// A kernel parameter with its configured and its current value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SysctlSetting {
    /// Name, such as `net.core.rmem_max`.
    pub key: String,
    /// Configured value; if several files set it, the one set last.
    pub value: String,
    /// Values from other files, which some loaders would prefer.
    #[serde(alias = "others")]
    pub other_values: Vec<String>,
    /// File and line that set the value.
    #[serde(alias = "place")]
    pub location: String,
    /// Value in effect.
    #[serde(alias = "live")]
    pub effective: String,
}

/// A line of `fstab`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FstabLine {
    /// Device to mount.
    pub device: String,
    /// Mount point.
    #[serde(alias = "place")]
    pub mount_point: String,
    /// File system type.
    pub kind: String,
    /// Mount options.
    pub options: Vec<String>,
    /// The file system mounted there.
    pub mounted: Option<Mounted>,
}

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mounted {
    /// Device or source.
    pub device: String,
    /// File system type.
    pub kind: String,
    /// Mount options in force, including those that the file system reports elsewhere.
    pub options: Vec<String>,
}

/// A file system mounted without a line in `fstab`, whether by hand, by a program or by systemd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherMount {
    /// Mount point.
    #[serde(alias = "place")]
    pub mount_point: String,
    /// The file system mounted there.
    pub mounted: Mounted,
}

/// A disk's write cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WriteCache {
    /// Disk, such as `sda`.
    pub disk: String,
    /// The kernel's setting (`queue/write_cache`). The kernel flushes the cache only if this is
    /// `write back`.
    pub kernel: String,
    /// The disk's own report (`cache_type`).
    #[serde(alias = "own")]
    pub cache_type: String,
}

/// A process whose fsync does nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FsyncOff {
    /// Process name.
    pub program: String,
    /// Process id.
    pub pid: i32,
    /// Cause.
    #[serde(alias = "by")]
    pub cause: FsyncOffBy,
}

/// Why a program's fsync has no effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FsyncOffBy {
    /// A library mapped into the process that intercepts fsync calls, by file name.
    Library(String),
    /// A command-line argument.
    Argument(String),
}

/// Frequency scaling of the CPUs that share one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FrequencyPolicy {
    /// CPUs.
    pub cpus: String,
    /// Driver.
    pub driver: String,
    /// Governor.
    pub governor: String,
    /// Maximum frequency that the policy allows, in kHz.
    pub max_khz: Option<u64>,
    /// Maximum frequency of the hardware, in kHz.
    pub hardware_max_khz: Option<u64>,
}

/// A receive queue whose packets are steered to certain CPUs (`rps_cpus`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SteeredQueue {
    /// Network device.
    pub device: String,
    /// Queue, such as `rx-0`.
    pub queue: String,
    /// CPUs that the packets are steered to.
    pub cpus: CpuList,
}

/// Unused offloads of a network device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceOffloads {
    /// Network device.
    pub device: String,
    /// Offloads that are available but off.
    pub off: Vec<Offload>,
}

/// Packet work that a device can take over, or that the kernel can do once for many packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// Checksums of sent packets.
    Checksum,
    /// Segmentation of TCP data.
    Segmentation,
    /// Software segmentation, done as the last step before the device.
    GenericSegmentation,
    /// Checksums of received packets.
    ReceiveChecksum,
    /// Merging of received segments.
    GenericReceive,
}

impl Offload {
    /// All offloads.
    pub const ALL: [Self; 5] = [
        Self::Checksum,
        Self::Segmentation,
        Self::GenericSegmentation,
        Self::ReceiveChecksum,
        Self::GenericReceive,
    ];

    /// Name in ethtool.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Checksum => "tx",
            Self::Segmentation => "tso",
            Self::GenericSegmentation => "gso",
            Self::ReceiveChecksum => "rx",
            Self::GenericReceive => "gro",
        }
    }

    /// Whether the offload applies to received packets.
    pub const fn is_of_received(self) -> bool {
        matches!(self, Self::ReceiveChecksum | Self::GenericReceive)
    }

    /// Kernel features that provide the offload; any of them is enough.
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

/// The latency limit in `/dev/cpu_dma_latency`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WakeLatency {
    /// Limit in force, in µs.
    #[serde(rename = "latency_us")]
    pub micros: u32,
    /// Programs known to have the file open, each as name and process id.
    pub holders: Vec<String>,
}
