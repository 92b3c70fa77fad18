//! The kernel's groups by session (`CONFIG_SCHED_AUTOGROUP`): CPU time is shared between groups first, and
//! then within each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A group of the processes of a session.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Autogroup {
    /// Which, as `/proc/PID/autogroup` numbers them.
    pub number: u32,
    /// Its nice value, from -20 to 19: the weight of all of it.
    pub nice: i8,
}

/// The group that a process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessAutogroup {
    /// The process.
    pub pid: i32,
    /// Its group.
    #[serde(flatten)]
    pub group: Autogroup,
}
