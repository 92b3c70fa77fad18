//! Settings of a cgroup that decide when its threads run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CpuList, Nanos};

/// Settings that apply to the threads in a cgroup. An ancestor's limit applies as well, so each
/// limit is the strictest one along the path. A value is missing if nothing sets it or if it cannot
/// be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupSettings {
    /// CPU weights of the cgroup and its ancestors, outermost first. Each weight applies among that
    /// cgroup's siblings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<GroupWeight>,
    /// Outermost cgroup along the path that runs only when nothing else wants the CPU (`cpu.idle`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<String>,
    /// The CPU quota that allows the smallest share of a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<GroupQuota>,
    /// CPUs that the threads may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuList>,
    /// File of the outermost cgroup along the path that restricts the threads to these CPUs; `None`
    /// if nothing restricts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus_file: Option<String>,
    /// Smallest real-time budget (`cpu.rt_runtime_us`). If its quota is 0, real-time priorities are
    /// refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_time: Option<GroupQuota>,
    /// Minimum CPU utilisation to assume when the CPU's frequency is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation_min_share: Option<f64>,
    /// Maximum CPU utilisation to assume when the CPU's frequency is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation_max_share: Option<f64>,
    /// Outermost frozen cgroup along the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
    /// Smallest memory limit beyond which memory is reclaimed (`memory.high`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_high: Option<GroupMemory>,
    /// Smallest memory limit beyond which processes are killed (`memory.max`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<GroupMemory>,
    /// Weight for disk time among the siblings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_weight: Option<u64>,
}

/// CPU weight of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupWeight {
    /// Path of the cgroup.
    pub path: String,
    /// The weight. The default is 100 with cgroup v2, and 1024 (`cpu.shares`) with v1.
    pub weight: u64,
    /// File that contains the weight; `None` in recordings from older versions of ticktax.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// A limit on CPU time per period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupQuota {
    /// Path of the cgroup that sets the limit.
    pub path: String,
    /// CPU time per period.
    #[serde(rename = "quota_ns")]
    pub quota: Nanos,
    /// Length of a period.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// CPU time that the cgroup can save up for later periods.
    #[serde(default, rename = "burst_ns", skip_serializing_if = "Nanos::is_zero")]
    pub burst: Nanos,
}

/// A limit on memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupMemory {
    /// Path of the cgroup that sets the limit.
    pub path: String,
    /// The limit.
    pub bytes: u64,
}
