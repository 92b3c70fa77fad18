//! Amounts of data that the kernel writes to disks, to swap and to NFS servers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Write counters from `/proc/vmstat` and `/proc/self/mountstats`. `swapped_out_bytes` counts from
/// boot, and `nfs_sent_bytes` from when each file system was mounted. The other fields are current
/// amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Writeback {
    /// Program memory written to swap.
    pub swapped_out_bytes: u64,
    /// Data sent to NFS servers, summed over all mounts; `None` if no NFS file system is mounted.
    pub nfs_sent_bytes: Option<u64>,
    /// Modified data in memory that is still to be written.
    pub dirty_bytes: u64,
    /// Data being written. On kernels before 5.8, this includes data that an NFS server has
    /// received but not yet written to its disk.
    pub writing_bytes: u64,
}
