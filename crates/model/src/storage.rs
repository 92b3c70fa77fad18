//! Storage: how file systems are mounted and which caches their disks have, and what an fsync
//! writes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Number of a device, as in `/sys/dev/block/MAJOR:MINOR`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl std::fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// Effective settings of the mounted file systems that keep their data on disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Storage {
    /// Mounts, in the order in which they were mounted.
    pub mounts: Vec<Mount>,
}

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mount {
    /// Directory at which it is mounted.
    pub path: String,
    /// Type of the file system that the kernel uses, for example `ext4`.
    pub file_system: String,
    /// Source, for example a device or a server's directory.
    pub source: String,
    /// Type in `/etc/fstab`, if that file has a line for this directory.
    pub fstab_type: Option<String>,
    /// Whether the mount is read-only.
    pub is_read_only: bool,
    /// Directory of an overlay that receives all writes.
    pub upper: Option<String>,
    /// Effective options, as the kernel reports them.
    pub options: Vec<String>,
    /// How file data is journalled. `None` if the kernel does not report it.
    pub journal: Option<Journal>,
    /// Whether the file system flushes the disk's write cache when it has to.
    pub barriers: Option<bool>,
    /// Whether blocks are allocated only when data is written to the disk. `None` if the kernel
    /// does not report it.
    pub delayed_allocation: Option<bool>,
    /// Device that contains the file system. `None` if it is on no block device.
    pub device: Option<BlockDevice>,
}

/// How a file system journals the data of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Journal {
    /// The file system keeps no journal.
    None,
    /// Only metadata is journalled, and newly allocated data is written before it.
    Ordered,
    /// Only metadata is journalled, and data is written at any time.
    Writeback,
    /// Data and metadata are journalled.
    Data,
    /// Only metadata is journalled. The file system has no other mode.
    Metadata,
    /// The file system never overwrites data, and has a log of recent fsyncs.
    CopyOnWrite,
}

/// A block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockDevice {
    /// Kernel's name, for example `vda1`.
    pub name: String,
    /// Device number.
    pub number: DeviceNumber,
    /// Disk that contains the device. Unless the device is a partition, it is the device itself.
    pub disk: String,
    /// Number of the disk.
    pub disk_number: DeviceNumber,
    /// First sector of the partition on the disk, in units of 512 bytes.
    pub first_sector: u64,
    /// Size in sectors of 512 bytes.
    pub sectors: u64,
    /// How the kernel treats the disk's write cache, from `queue/write_cache`: `write back` or
    /// `write through`. With `write through`, it sends no flushes.
    pub write_cache: Option<String>,
    /// Whether the kernel writes single blocks through the cache (FUA), from `queue/fua`.
    pub fua: Option<bool>,
    /// Whether the disk has rotating media.
    pub rotational: Option<bool>,
    /// Devices that this one is built from, for example by LVM, RAID or encryption.
    pub below: Vec<BlockDevice>,
    /// File that backs a loop device.
    pub backing_file: Option<String>,
}

impl BlockDevice {
    /// Returns whether a write lies on this device.
    pub fn contains(&self, write: &DiskWrite) -> bool {
        let end = self.first_sector.saturating_add(self.sectors);
        write.disk == self.disk_number && (self.first_sector..end).contains(&write.sector)
    }

    /// Returns the numbers of this device, of its disk, and of all devices below it.
    pub fn numbers(&self) -> Vec<DeviceNumber> {
        let mut all = vec![self.number, self.disk_number];
        all.extend(self.below.iter().flat_map(Self::numbers));
        all
    }
}

/// A write that a disk has completed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a write can have any combination of these flags"
)]
pub struct DiskWrite {
    /// When it was submitted, on `CLOCK_MONOTONIC`.
    pub queued: Nanos,
    /// When it was completed.
    pub completed: Nanos,
    /// Disk.
    pub disk: DeviceNumber,
    /// First sector, in units of 512 bytes.
    pub sector: u64,
    /// Length in bytes. A flush without data has 0.
    pub bytes: u64,
    /// Inode whose page is written. `None` if the page belongs to no inode, for example in direct
    /// I/O.
    pub owner: Option<PageOwner>,
    /// Whether the file system marked the data as its metadata.
    pub is_metadata: bool,
    /// Whether the write had to reach the medium (FUA).
    pub is_fua: bool,
    /// Whether the disk's cache was flushed before the write.
    pub is_flush: bool,
    /// Whether the data is swapped-out memory.
    pub is_swap: bool,
    /// Thread that submitted the write.
    pub writer: Writer,
}

/// Inode that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOwner {
    /// Device number of the file system.
    pub file_system: DeviceNumber,
    /// Inode number.
    pub inode: u64,
    /// Whether the inode is a block device. File systems keep their metadata in its pages.
    pub is_block_device: bool,
}

/// A thread that submitted a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Process ID.
    pub pid: i32,
    /// Thread ID.
    pub tid: i32,
    /// Thread name.
    pub name: String,
    /// Whether it is a thread of the kernel.
    pub is_kernel_thread: bool,
    /// Whether it is the kernel's *flusher*, which writes old or excess dirty data.
    pub is_flusher: bool,
}

/// Writes of fsyncs of a small file, with and without dirty data of another file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FsyncStudy {
    /// File system that contains the files.
    pub mount: Mount,
    /// How the small file is written.
    pub write: FileWrite,
    /// Size of a write to the small file.
    pub write_bytes: u64,
    /// How the other file's data becomes dirty.
    pub foreign: ForeignData,
    /// Size of the other file's dirty data.
    pub foreign_bytes: u64,
    /// Fsyncs, in the order in which they were done.
    pub fsyncs: Vec<Fsync>,
    /// Fsyncs without foreign data.
    pub without: FsyncArm,
    /// Fsyncs next to foreign data.
    pub with: FsyncArm,
    /// Mean difference between the medians of a pair of blocks: with minus without foreign data.
    /// `None` with fewer than two pairs.
    pub effect: Option<FsyncEffect>,
    /// The set of data that an fsync writes. `None` if the writes could not be attributed.
    pub verdict: Option<FsyncVerdict>,
    /// Comparison of the observed bytes with the disk's counters.
    pub check: Option<CounterCheck>,
    /// Data that could not be observed.
    pub limitations: Vec<StorageLimitation>,
}

/// How the small file is written before an fsync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileWrite {
    #[default]
    /// At the end of the file, as a log is.
    Append,
    /// In the middle of the file, where blocks are already allocated.
    Overwrite,
}

/// How foreign data becomes dirty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForeignData {
    #[default]
    /// The file is new, so its blocks are not allocated yet.
    New,
    /// The file is overwritten, so its blocks are allocated.
    Overwritten,
}

/// An fsync.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fsync {
    /// Number of the pair of blocks, from 0.
    pub pair: u64,
    /// Whether foreign data was dirty.
    pub with_foreign: bool,
    /// When it started, from the first fsync.
    #[serde(rename = "start_ns")]
    pub start: Nanos,
    /// Time in fsync.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Foreign bytes that were dirty when it started. `None` without tracing.
    pub dirty_foreign_bytes: Option<u64>,
    /// Bytes that the disk wrote during the fsync, from its counters.
    pub disk_bytes: Option<u64>,
    /// Writes that belong to the fsync: those of its thread and of the file system's own threads.
    pub own: Option<FsyncWrites>,
    /// Writes that the kernel's flusher and other programs submitted during the fsync.
    pub meanwhile: Option<FsyncWrites>,
    /// Causes of the fsync's length.
    pub waits: Option<FsyncWaits>,
}

/// Times in an fsync, by the kind of its writes that were in flight. Writes of several kinds can be
/// in flight at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FsyncWaits {
    /// Time in which data of the file was in flight.
    #[serde(rename = "file_ns")]
    pub file: Nanos,
    /// Time in which metadata or a flush was in flight.
    #[serde(rename = "metadata_ns")]
    pub metadata: Nanos,
    /// Time in which data of others was in flight.
    #[serde(rename = "others_ns")]
    pub others: Nanos,
    /// Time without any write of the fsync in flight.
    #[serde(rename = "nothing_ns")]
    pub nothing: Nanos,
}

impl FsyncWaits {
    /// Adds other times.
    pub fn add(&mut self, more: &Self) {
        self.file += more.file;
        self.metadata += more.metadata;
        self.others += more.others;
        self.nothing += more.nothing;
    }
}

/// Writes during an fsync, by owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FsyncWrites {
    /// Data of the file.
    pub file_bytes: u64,
    /// Metadata of the file system, including its journal.
    pub metadata_bytes: u64,
    /// The foreign file's data.
    pub foreign_bytes: u64,
    /// Data of other files in the same file system.
    pub other_file_bytes: u64,
    /// Data of other file systems, on any disk.
    pub elsewhere_bytes: u64,
    /// Data without a known owner, for example direct I/O of another program.
    pub unknown_bytes: u64,
    /// Flushes of the disk's cache.
    pub flushes: u64,
    /// Writes that had to reach the medium (FUA).
    pub fua_writes: u64,
}

impl FsyncWrites {
    /// Returns all bytes.
    pub fn bytes(&self) -> u64 {
        self.file_bytes
            + self.metadata_bytes
            + self.foreign_bytes
            + self.other_file_bytes
            + self.elsewhere_bytes
            + self.unknown_bytes
    }

    /// Adds other writes.
    pub fn add(&mut self, more: &Self) {
        self.file_bytes += more.file_bytes;
        self.metadata_bytes += more.metadata_bytes;
        self.foreign_bytes += more.foreign_bytes;
        self.other_file_bytes += more.other_file_bytes;
        self.elsewhere_bytes += more.elsewhere_bytes;
        self.unknown_bytes += more.unknown_bytes;
        self.flushes += more.flushes;
        self.fua_writes += more.fua_writes;
    }

    /// Returns the data of other files in the same file system.
    pub fn others_bytes(&self) -> u64 {
        self.foreign_bytes + self.other_file_bytes
    }
}

/// All fsyncs with or without foreign data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FsyncArm {
    /// Number of fsyncs.
    pub count: u64,
    /// Median length.
    #[serde(rename = "median_ns")]
    pub median: Nanos,
    /// 99th percentile. With fewer than 100 fsyncs, it is the maximum.
    #[serde(rename = "p99_ns")]
    pub p99: Nanos,
    /// Maximum length.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// Writes that belong to the fsyncs, summed up. `None` without tracing.
    pub own: Option<FsyncWrites>,
    /// Writes of the flusher and of other programs during the fsyncs, summed up.
    pub meanwhile: Option<FsyncWrites>,
    /// Causes of the fsyncs' lengths, summed up.
    pub waits: Option<FsyncWaits>,
}

/// Effect of foreign data on the length of an fsync.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FsyncEffect {
    /// Number of pairs.
    pub pairs: u64,
    /// Mean difference.
    #[serde(rename = "mean_ns")]
    pub mean: Nanos,
    /// Lower end of the mean's 95 % confidence interval.
    #[serde(rename = "low_ns")]
    pub low: Nanos,
    /// Upper end of the mean's 95 % confidence interval.
    #[serde(rename = "high_ns")]
    pub high: Nanos,
}

/// The largest set of data that an fsync of one file writes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FsyncVerdict {
    /// Only the file's own data.
    File,
    /// The file's data and the file system's metadata.
    Metadata,
    /// Also the data of other files in the same file system.
    Partition,
    /// Also the data of other file systems.
    World,
}

/// Comparison of the bytes in the observed writes with the disk's counters, from before the first
/// fsync until everything was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CounterCheck {
    /// Bytes in the observed writes.
    pub observed_bytes: u64,
    /// Bytes that the disk counted.
    pub counted_bytes: u64,
}

impl CounterCheck {
    /// Returns the difference as a share of the counted bytes.
    pub fn difference(&self) -> f64 {
        let difference = self.observed_bytes.abs_diff(self.counted_bytes);
        difference as f64 / self.counted_bytes.max(1) as f64
    }
}

/// Something that could not be observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StorageLimitation {
    /// The writes could not be traced.
    NotTraced {
        /// Why not.
        why: String,
    },
    /// Writes did not fit into the tracer's buffer.
    Lost {
        /// Number of writes.
        writes: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// The disk counts no bytes.
    NoCounters,
    /// The kernel wrote foreign data before the fsync.
    WrittenEarly {
        /// Median part of the foreign data that was still dirty, in percent.
        dirty_percent: u64,
    },
    /// The measurement was interrupted.
    Interrupted,
}
