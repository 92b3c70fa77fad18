//! Counters of a cgroup during a recording, and processes that changed cgroups.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::machine::Pressure;

/// Growth of a cgroup's counters during a recording. Ancestors' counters are included, because
/// their limits apply to the cgroup too. Cgroups that counted nothing are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupCounters {
    /// Periods of CPU quotas, outermost cgroup first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttling: Vec<GroupThrottling>,
    /// Events caused by memory limits, outermost cgroup first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<GroupMemoryEvents>,
    /// Pressure stall times of the cgroup itself, by resource: `cpu`, `io` and `memory`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pressure: BTreeMap<String, Pressure>,
}

/// Counters of a CPU quota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupThrottling {
    /// Path of the cgroup that has the quota.
    pub path: String,
    /// Number of periods with runnable threads in the cgroup.
    pub periods: u64,
    /// Number of periods with throttled threads.
    pub throttled_periods: u64,
    /// Time that threads were throttled, summed over all CPUs.
    #[serde(rename = "throttled_ns")]
    pub throttled: Nanos,
    /// Number of periods in which threads ran longer than the quota, using time saved up in earlier
    /// periods; `None` if the kernel does not count them (before Linux 5.14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursts: Option<u64>,
    /// Time beyond the quota in these periods; `None` if the kernel does not count it.
    #[serde(default, rename = "burst_ns", skip_serializing_if = "Option::is_none")]
    pub burst: Option<Nanos>,
}

/// Events caused by a cgroup's memory limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupMemoryEvents {
    /// Path of the cgroup that has the limits.
    pub path: String,
    /// Number of times threads had to reclaim memory because of `memory.high`. Always 0 with cgroup
    /// v1.
    #[serde(default)]
    pub high: u64,
    /// Number of times memory use was about to exceed `memory.max` (`memory.failcnt` with cgroup
    /// v1).
    #[serde(default)]
    pub max: u64,
    /// Number of processes killed because of the limit.
    #[serde(default)]
    pub oom_kills: u64,
}

impl GroupThrottling {
    /// Returns whether threads were throttled or ran longer than the quota.
    pub fn is_noteworthy(&self) -> bool {
        self.throttled_periods > 0 || self.bursts.is_some_and(|bursts| bursts > 0)
    }
}

/// A process, or one of its threads, that moved to another cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupMove {
    /// When it moved, on `CLOCK_MONOTONIC`; `None` if the move was noticed only at the end of the
    /// recording.
    #[serde(default, rename = "at_ns", skip_serializing_if = "Option::is_none")]
    pub at: Option<Nanos>,
    /// Process id.
    pub pid: i32,
    /// Id of the thread that moved alone; `None` if the entire process moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<i32>,
    /// Path of the cgroup it left; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Path of the cgroup it entered, which can be the root cgroup.
    pub to: String,
}
