//! Autogroups (`CONFIG_SCHED_AUTOGROUP`): scheduling groups that the kernel creates automatically,
//! one per session. The kernel divides CPU time between the groups first, then between the threads
//! in each group.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The autogroup of one session.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Autogroup {
    /// Number of the autogroup, as in `/proc/PID/autogroup`.
    pub number: u32,
    /// Nice value of the autogroup, -20 to 19. It sets the weight of the entire group.
    pub nice: i8,
}

/// A process and its autogroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessAutogroup {
    /// Process id.
    pub pid: i32,
    /// Autogroup of the process.
    #[serde(flatten)]
    pub group: Autogroup,
}
