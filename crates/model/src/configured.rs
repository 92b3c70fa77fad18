//! A machine's configured settings, for comparison with the settings in effect.
//!
//! These types hold only what was read. The findings are left to the analysis.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limitation::Limitation;
use crate::{Cpu, CpuList};

/// Settings found in configuration files, and the values in effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Configured {
    /// Resolution of the CPU times that the kernel reports to programs (`USER_HZ`), in Hz.
    pub user_hz: Option<u32>,
    /// Kernel build options that affect timekeeping, by name without `CONFIG_`. Options that are
    /// not set are omitted. Empty if the build configuration is not available.
    pub build: BTreeMap<String, String>,
    /// Contents of short files, most of them below `/proc/sys` and `/sys`, keyed by path without
    /// the leading slash.
    pub files: BTreeMap<String, String>,
    /// Facts from `/proc/timer_list`; `None` if the file, which only root can read, could not be
    /// read.
    pub timers: Option<TimerList>,
    /// Kernel messages since boot, if they can be read.
    pub log: Option<KernelLog>,
    /// Kernel parameters that are set in `sysctl.conf` or `sysctl.d` and exist in this kernel.
    pub sysctl: Vec<SysctlSetting>,
    /// Lines of `fstab`, each with the file system that is actually mounted there.
    pub fstab: Vec<FstabLine>,
    /// Mounted file systems that store data but have no line in `fstab`; at most 64.
    pub other_mounts: Vec<OtherMount>,
    /// Write cache of each SCSI or ATA disk, as reported by the kernel and by the disk itself.
    pub write_caches: Vec<WriteCache>,
    /// Processes in which `fsync` has no effect, according to `/proc`.
    pub fsync_off: Vec<FsyncOff>,
    /// Frequency scaling of the CPUs, with one entry for all CPUs that share a policy.
    pub frequency: Vec<FrequencyPolicy>,
    /// The latency limit in `/dev/cpu_dma_latency`, if it could be read. It keeps CPUs out of idle
    /// states that take longer than this to leave.
    pub wake_latency: Option<WakeLatency>,
    /// Receive queues of network devices whose packets are steered to other CPUs (Receive Packet
    /// Steering). Limited to devices in this network namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steered_queues: Vec<SteeredQueue>,
    /// Network devices in this network namespace that have available offloads turned off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offloads_off: Vec<DeviceOffloads>,
    /// CPUs that device interrupts are routed to, by interrupt number. Read only if some CPUs are
    /// isolated or if the machine has few interrupts.
    pub interrupt_cpus: BTreeMap<String, String>,
    /// Whether `irqbalance` is running; `None` if this was not checked.
    pub irqbalance: Option<bool>,
    /// Settings that could not be read, with the reasons.
    pub unread: Vec<Limitation>,
}

impl Configured {
    /// Returns the CPUs that are isolated, and those whose tick stops even while they are busy.
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

    /// Returns the contents of the file at `path`; `None` if the file was not read.
    pub fn file(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Returns whether the kernel was built with `option`; `None` if its build configuration is
    /// unknown.
    pub fn built(&self, option: &str) -> Option<bool> {
        let value = self.build.get(option).map(String::as_str);
        (!self.build.is_empty()).then_some(value == Some("y"))
    }
}

/// The parts of `/proc/timer_list` that describe the tick.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimerList {
    /// Whether high-resolution timers are active on every CPU.
    pub high_resolution: Option<bool>,
    /// Whether the tick can be stopped on every CPU.
    pub nohz: Option<bool>,
    /// Names of the clock event devices that generate the tick.
    pub devices: Vec<String>,
}

/// Kernel messages about settings and clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelLog {
    /// Whether the log still contains the first messages after boot.
    pub complete: bool,
    /// Boot parameters that the kernel did not recognise.
    pub unknown_parameters: Vec<String>,
    /// Messages saying that the kernel stopped using a clocksource.
    pub clock: Vec<String>,
}

/// A kernel parameter with its configured value and its current value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SysctlSetting {
    /// Name, such as `net.core.rmem_max`.
    pub key: String,
    /// Configured value. If several files set the parameter, this is the value loaded last.
    pub value: String,
    /// Values set in `sysctl.d` but overridden by a different value in `sysctl.conf`. They take
    /// effect if the program that loads the settings does not read `sysctl.conf`.
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
    /// The file system mounted there, if any.
    pub mounted: Option<Mounted>,
}

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mounted {
    /// Device or source.
    pub device: String,
    /// File system type.
    pub kind: String,
    /// Mount options in effect, including options that the file system does not list in
    /// `/proc/mounts`.
    pub options: Vec<String>,
}

/// A mounted file system that has no line in `fstab`. It was mounted by hand, by a program or by
/// systemd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherMount {
    /// Mount point.
    #[serde(alias = "place")]
    pub mount_point: String,
    /// The mounted file system.
    pub mounted: Mounted,
}

/// A disk's write cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WriteCache {
    /// Disk, such as `sda`.
    pub disk: String,
    /// The kernel's assumption about the cache (`queue/write_cache`). The kernel flushes the cache
    /// only if this is `write back`.
    pub kernel: String,
    /// The disk's own report about its cache (`cache_type`).
    #[serde(alias = "own")]
    pub cache_type: String,
}

/// A process in which `fsync` has no effect.
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

/// Why `fsync` has no effect in a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FsyncOffBy {
    /// The process has a library mapped that intercepts fsync calls. The value is the library's
    /// file name.
    Library(String),
    /// A command-line argument.
    Argument(String),
}

/// Frequency scaling of CPUs that share one policy.
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

/// A receive queue whose packets are steered to other CPUs (`rps_cpus`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SteeredQueue {
    /// Network device.
    pub device: String,
    /// Queue, such as `rx-0`.
    pub queue: String,
    /// CPUs that the packets are steered to.
    pub cpus: CpuList,
}

/// Offloads of a network device that are available but turned off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceOffloads {
    /// Network device.
    pub device: String,
    /// The offloads that are turned off.
    pub off: Vec<Offload>,
}

/// Packet processing that a device can do instead of the CPU, or that the kernel can do once for
/// several packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// Computing the checksums of sent packets.
    Checksum,
    /// Dividing TCP data into segments in the device.
    Segmentation,
    /// Dividing data into segments in the kernel, as the last step before the device.
    GenericSegmentation,
    /// Verifying the checksums of received packets.
    ReceiveChecksum,
    /// Merging received segments into larger packets in the kernel.
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

    /// Returns whether the offload applies to received packets.
    pub const fn is_of_received(self) -> bool {
        matches!(self, Self::ReceiveChecksum | Self::GenericReceive)
    }

    /// Returns the kernel's names for the features that provide the offload. Any one of them is
    /// enough.
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

/// The limit on CPU wake-up latency that programs set by writing to `/dev/cpu_dma_latency`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WakeLatency {
    /// Limit in effect, in µs.
    #[serde(rename = "latency_us")]
    pub micros: u32,
    /// Programs known to have `/dev/cpu_dma_latency` open, each as name and process id.
    pub holders: Vec<String>,
}
