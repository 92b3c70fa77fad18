//! Contests: pairs of thread groups that compete for the time of a CPU.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::group::Group;

/// Two contenders for CPU time, at the level of the hierarchy where the cgroups of two programs
/// diverge. The kernel compares only the contenders' weights, so nice values of threads inside one
/// have no effect on the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupContest {
    /// The side with the program that should benefit.
    pub own: Contender,
    /// The side with the program that others wait behind.
    pub other: Contender,
}

/// One side of a [`GroupContest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contender {
    /// Kind of contender.
    #[serde(flatten)]
    pub kind: ContenderKind,
    /// Weight, in the unit of the machine's cgroups: the default is 100 with cgroup v2, and 1024
    /// with v1.
    pub weight: u64,
    /// Whether the contender runs only when the other does not want the CPU (`cpu.idle`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
}

/// Kind of a [`Contender`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "contender", rename_all = "snake_case")]
pub enum ContenderKind {
    /// A cgroup.
    Cgroup {
        /// The cgroup, without settings.
        cgroup: Box<Group>,
        /// File that contains the weight, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// Whether the program is directly in this cgroup rather than in one below it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        innermost: bool,
    },
    /// A session, whose weight depends on the nice value of its autogroup.
    Autogroup {
        /// Nice value of the autogroup, -20 to 19.
        nice: i8,
    },
    /// A single thread.
    Thread {
        /// Nice value of the thread, -20 to 19.
        nice: i8,
    },
}

impl Contender {
    /// Returns the cgroup, if the contender is one.
    pub fn cgroup(&self) -> Option<&Group> {
        match &self.kind {
            ContenderKind::Cgroup { cgroup, .. } => Some(cgroup),
            _ => None,
        }
    }

    /// Returns the file that contains the weight, if the contender is a cgroup and the file is
    /// known.
    pub fn file(&self) -> Option<&str> {
        match &self.kind {
            ContenderKind::Cgroup { file, .. } => file.as_deref(),
            _ => None,
        }
    }
}

impl GroupContest {
    /// Default weight with cgroup v1.
    pub const DEFAULT_SHARES: u64 = 1024;
    /// Default weight with cgroup v2.
    pub const DEFAULT_WEIGHT: u64 = 100;
    /// Smallest and largest weights that the kernel accepts with cgroup v1.
    pub const SHARES: (u64, u64) = (2, 262_144);
    /// Smallest and largest weights that the kernel accepts with cgroup v2.
    pub const WEIGHTS: (u64, u64) = (1, 10_000);

    /// Returns whether the weights are those of cgroup v1.
    pub fn is_version_1(&self) -> bool {
        let files = [self.own.file(), self.other.file()];
        files
            .iter()
            .flatten()
            .any(|file| file.ends_with("cpu.shares"))
    }
}
