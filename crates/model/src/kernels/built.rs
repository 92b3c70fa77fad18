//! Kernels in the lab's cache, and those that were built into it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// The kernels in the lab's cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelList {
    /// Each, by name.
    pub kernels: Vec<CachedKernel>,
}

/// A kernel in the lab's cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CachedKernel {
    /// What to call it.
    pub name: String,
    /// Its release, as `uname -r` prints it.
    pub release: String,
    /// A package with its version, or a source with what was built.
    pub origin: String,
    /// Its tick rate, where its configuration tells.
    pub hz: Option<u32>,
    /// The size of its image.
    pub image_bytes: u64,
}

/// What `lab build` built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelBuild {
    /// The source that was asked for: a package, a folder or a tarball.
    pub source: String,
    /// The file with more configuration, where one was named.
    pub config: Option<String>,
    /// A kernel for each tick rate, in the order in which they were named.
    pub kernels: Vec<BuiltKernel>,
}

/// A kernel that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuiltKernel {
    /// What to call it, as `lab run --kernel` takes it.
    pub name: String,
    /// Its release, as `uname -r` prints it.
    pub release: String,
    /// Its tick rate.
    pub hz: u32,
    /// The source as it was unpacked, and the digest of all that the build depends on.
    pub origin: String,
    /// Its image.
    pub image: String,
    /// Whether it was compiled now; otherwise the cache had it.
    pub compiled: bool,
    /// How long that took, unpacking the source included.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
}
