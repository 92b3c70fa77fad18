//! Writeback pressure: which program's writes to a slow device make other programs wait.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// A wait of a thread for the kernel's writeback or for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PressureEvent {
    /// Process of the thread.
    pub pid: i32,
    /// Name of the process.
    pub name: String,
    /// Length of the wait, until the thread ran again.
    pub length: Nanos,
    /// Kind of the wait.
    pub kind: PressureWait,
}

/// Kind of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PressureWait {
    /// The kernel throttled a thread that writes to a file.
    Throttled(ThrottledWrite),
    /// The thread had to free memory itself (direct reclaim).
    Reclaim,
}

/// State of the dirty memory when the kernel throttled a writer. Sizes are in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThrottledWrite {
    /// Device that the thread writes to, as in `/sys/class/bdi`.
    pub device: String,
    /// Dirty data that counts against the limit.
    pub dirty: u64,
    /// The limit.
    pub limit: u64,
    /// Amount of dirty data below which writers are not throttled for the sake of the limit.
    pub free: u64,
    /// Dirty data for the device.
    pub device_dirty: u64,
    /// The device's share of the limit.
    pub device_limit: u64,
    /// Data for the device that is dirty, but not being written yet.
    pub device_waiting: u64,
    /// Data for the device that is being written.
    pub device_writing: u64,
    /// The kernel's estimate of the device's speed, in pages per second.
    pub bandwidth_hz: u64,
}

/// Writeback pressure during a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WritePressure {
    /// Length of the run.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Dirty memory of the machine.
    pub memory: DirtyMemory,
    /// Devices with mounts or throttled writers, starting with the one with most dirty data.
    pub devices: Vec<PressedDevice>,
    /// Programs that waited or that wrote to a device with throttled writers, starting with the one
    /// that waited longest. `None` if the waits were not traced.
    pub programs: Option<Vec<PressedProgram>>,
    /// Result. `None` if the waits were not traced.
    pub verdict: Option<PressureVerdict>,
    /// Programs whose waits another program caused, starting with the longest wait.
    pub causes: Vec<PressureCause>,
    /// Network mounts on which writes can fail with an error.
    pub soft_mounts: Vec<SoftMount>,
    /// Data that could not be observed.
    pub limitations: Vec<PressureLimitation>,
}

/// Owners of the dirty data that throttled writers waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PressureVerdict {
    /// The kernel throttled no writer.
    Quiet,
    /// Throttled writers waited for their own dirty data.
    Own,
    /// Programs were throttled because of other programs' dirty data.
    Others,
}

/// Mean and maximum of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ByteLevel {
    /// Mean of the samples.
    pub mean_bytes: u64,
    /// Maximum of the samples.
    pub max_bytes: u64,
    /// Number of samples.
    pub samples: u64,
}

/// Dirty memory of the machine, from `/proc/vmstat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirtyMemory {
    /// Dirty data that is not being written yet. `None` if the counters cannot be read.
    pub dirty: Option<ByteLevel>,
    /// Data that is being written.
    pub writeback: Option<ByteLevel>,
    /// Sum of both.
    pub both: Option<ByteLevel>,
    /// Amount of dirty data that the kernel allows, at the end.
    pub limit_bytes: Option<u64>,
    /// Amount at which the kernel starts to write, at the end.
    pub background_bytes: Option<u64>,
    /// Share of the samples, in percent, in which dirty data and data being written exceeded the
    /// mean of both amounts. Above it, the kernel throttles writers.
    pub throttling_percent: Option<u64>,
    /// Data that became dirty during the run.
    pub dirtied_bytes: Option<u64>,
    /// Data that the kernel wrote during the run.
    pub written_bytes: Option<u64>,
    /// Memory that was read back from swap during the run.
    pub swapped_in_bytes: Option<u64>,
}

/// A device with dirty data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PressedDevice {
    /// Name in `/sys/class/bdi`, for example `8:0`.
    pub bdi: String,
    /// Kernel's name of the disk, for example `sda`.
    pub disk: Option<String>,
    /// Directories at which file systems on the device are mounted.
    pub mounts: Vec<String>,
    /// Dirty data that is not being written yet.
    pub dirty: Option<ByteLevel>,
    /// Data that is being written.
    pub writeback: Option<ByteLevel>,
    /// Data that the disk wrote during the run.
    pub written_bytes: Option<u64>,
    /// The kernel's last estimate of the device's speed, in bytes per second.
    pub bandwidth_bytes_hz: Option<u64>,
    /// Largest share of the dirty limit that the device may use, in percent.
    pub max_ratio_percent: Option<u64>,
}

/// Number and length of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PressureWaits {
    /// Sum of the waits, over all threads.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of waits.
    pub count: u64,
    /// Longest wait.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
}

impl PressureWaits {
    /// Adds a wait.
    pub fn add(&mut self, length: Nanos) {
        self.time += length;
        self.count += 1;
        self.max = self.max.max(length);
    }
}

/// A program that waited or wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PressedProgram {
    /// Process.
    pub pid: i32,
    /// Name of the process.
    pub name: String,
    /// Waits in which the kernel throttled its writes (`balance_dirty_pages`).
    pub throttled: PressureWaits,
    /// The same, by device.
    pub devices: Vec<DevicePauses>,
    /// Waits in which its threads had to free memory (direct reclaim).
    pub reclaim: PressureWaits,
    /// Data of files that it made dirty, up to the last time it was seen. `None` if unknown.
    pub dirtied_bytes: Option<u64>,
    /// Page faults that read from a disk: from files or from swap. `None` if unknown.
    pub major_faults: Option<u64>,
    /// Its cgroup in the unified hierarchy.
    pub cgroup: Option<String>,
}

/// Throttled writes of a program to a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DevicePauses {
    /// Name of the device in `/sys/class/bdi`.
    pub bdi: String,
    /// All waits.
    pub waits: PressureWaits,
    /// Time of the waits at a limit that all devices share, during which less than half of the
    /// dirty data was for this device.
    #[serde(rename = "behind_other_devices_ns")]
    pub behind_other_devices: Nanos,
    /// Time of the waits during which the limit was the machine's.
    #[serde(rename = "at_machine_limit_ns")]
    pub at_machine_limit: Nanos,
    /// Time of the waits that no shared limit required, but only the device's own one
    /// (`strict_limit`).
    #[serde(rename = "at_device_limit_ns")]
    pub at_device_limit: Nanos,
}

/// A program that waited because of another program's dirty data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PressureCause {
    /// Process that waited.
    pub payer_pid: i32,
    /// Its name.
    pub payer: String,
    /// Time that it waited because of other programs' dirty data.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Device that it wrote to.
    pub payer_bdi: String,
    /// Device that most of the dirty data was for. `None` if it is unknown.
    pub bdi: Option<String>,
    /// Process that dirtied most data of that device. `None` if it is unknown.
    pub writer_pid: Option<i32>,
    /// Its name.
    pub writer: Option<String>,
    /// The limit that stopped the payer.
    pub limit: PressureLimit,
}

/// A limit on dirty data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PressureLimit {
    /// The machine's: `vm.dirty_bytes` or `vm.dirty_ratio`.
    Machine,
    /// A smaller one, such as that of a cgroup with a memory limit.
    Smaller,
    /// The device's own (`strict_limit` in `/sys/class/bdi`).
    Device,
}

/// A network mount whose requests fail after a while, instead of being retried forever.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SoftMount {
    /// Directory at which it is mounted.
    pub path: String,
    /// Type of the file system.
    pub file_system: String,
    /// Source, for example a server's directory.
    pub source: String,
    /// The option: `soft` or `softerr`.
    pub option: String,
    /// Time until the first repetition of a request, from the option `timeo`.
    #[serde(rename = "timeout_ns")]
    pub timeout: Option<Nanos>,
    /// Number of repetitions, from the option `retrans`.
    pub repetitions: Option<u64>,
}

/// Data about writeback pressure that could not be observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PressureLimitation {
    /// Programs were not traced.
    NotTraced {
        /// Reason.
        why: String,
    },
    /// Waits did not fit into the tracer's buffer.
    Lost {
        /// Number of waits.
        waits: u64,
    },
    /// Dirty data of devices is known only from the moments at which writers were throttled.
    DevicesAtPauses,
    /// Dirty data of devices is unknown.
    NoDevices,
    /// The machine's counters could not be read.
    NoCounters,
    /// The run was interrupted.
    Interrupted,
}
