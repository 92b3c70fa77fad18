//! Data that the kernel writes to disks, swap and NFS servers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Write counters from `/proc/vmstat` and `/proc/self/mountstats`. `swapped_out_bytes` counts since
/// boot and `nfs_sent_bytes` since the mounts; the others are the current state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Writeback {
    /// Program memory written to swap.
    pub swapped_out_bytes: u64,
    /// Data sent to NFS servers, over all mounts; `None` if no NFS file system is mounted.
    pub nfs_sent_bytes: Option<u64>,
    /// Dirty data that is waiting to be written.
    pub dirty_bytes: u64,
    /// Data being written. On kernels before 5.8 it also includes data that an NFS server has
    /// received but not yet written to its disk.
    pub writing_bytes: u64,
}
