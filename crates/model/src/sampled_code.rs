//! The code that kept others waiting, according to samples.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Kind;
use crate::kernel_walk::SampledWalk;

/// The code in which timer interrupts found a program, kernel thread or softirq while somebody
/// waited for its CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampledCode {
    /// Number of samples, including those whose code is unknown.
    pub samples: u64,
    /// If more than half of the samples found the same code, only that code. Otherwise, up to two
    /// that were found most often.
    pub places: Vec<SampledPlace>,
    /// The kernel function that more than half of the samples found walking a list of objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walk: Option<SampledWalk>,
}

/// A program, kernel thread or softirq, and the code in which samples found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampledSource {
    /// Name of the program, kernel thread or softirq.
    pub name: String,
    /// Kind of activity on the CPU.
    pub kind: Kind,
    /// Process id, if it is a program.
    pub pid: Option<i32>,
    /// Code in which samples found it.
    pub code: SampledCode,
}

/// Code that samples found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampledPlace {
    /// Innermost function that these samples have in common. In user mode, if the function is
    /// unknown or the samples don't agree on it, the executable file or library. If the samples
    /// agree on the offset in the file, it includes the offset.
    pub function: String,
    /// Executable file or library that contains `function`, if it is a function in user mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// System call, work item or other outermost function that led to `function`. `None` if it is
    /// `function` itself or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_from: Option<String>,
    /// Whether `function` belongs to the kernel.
    pub is_kernel: bool,
    /// Number of samples in `function` or the functions that it called.
    pub samples: u64,
}
