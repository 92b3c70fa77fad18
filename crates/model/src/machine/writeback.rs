//! What the kernel writes out of memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `/proc/vmstat` and `/proc/self/mountstats`, as far as they concern writing. The first two count from
/// the boot or the mount; the others are as of the reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Writeback {
    /// Memory of programs that was written to swap.
    pub swapped_out_bytes: u64,
    /// Data that was sent to NFS servers, over all mounts; `None` where there is no such mount.
    pub nfs_sent_bytes: Option<u64>,
    /// Data that is to be written.
    pub dirty_bytes: u64,
    /// Data that is being written; on kernels before 5.8 also what an NFS server has, and has not
    /// written to its disk.
    pub writing_bytes: u64,
}
