//! The kernels in the lab's cache, and the result of building kernels.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// The kernels in the lab's cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelList {
    /// Kernels, sorted by name.
    pub kernels: Vec<CachedKernel>,
}

/// A kernel in the lab's cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CachedKernel {
    /// Name on the command line.
    pub name: String,
    /// Release, as in `uname -r`.
    pub release: String,
    /// Origin of the kernel: a package with its version, or the source code and how it was built.
    pub origin: String,
    /// Tick rate in Hz, if the kernel's configuration shows it.
    pub hz: Option<u32>,
    /// Size of the kernel image.
    pub image_bytes: u64,
}

/// The result of `lab build`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelBuild {
    /// Source of the kernels: a package, directory or tarball.
    pub source: String,
    /// File with additional configuration, if one was given.
    pub config: Option<String>,
    /// Kernels that were built, one per tick rate, in the order of the command line.
    pub kernels: Vec<BuiltKernel>,
}

/// A kernel that was built or found in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuiltKernel {
    /// Name of the kernel, for `lab run --kernel`.
    pub name: String,
    /// Release, as in `uname -r`.
    pub release: String,
    /// Tick rate, in Hz.
    pub hz: u32,
    /// Name of the unpacked source code, with a digest of everything that affects the build.
    pub origin: String,
    /// Path of the kernel image.
    pub image: String,
    /// Whether this invocation compiled the kernel. If not, it was already in the cache.
    pub compiled: bool,
    /// Build time, including the time to unpack the source.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
}
