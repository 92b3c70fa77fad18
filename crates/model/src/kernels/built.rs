//! Kernels in the lab's cache, and the results of building them.

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
    /// A package with its version, or a source with a description of its build.
    pub origin: String,
    /// Tick rate in Hz, if the kernel's configuration shows it.
    pub hz: Option<u32>,
    /// Size of the kernel image.
    pub image_bytes: u64,
}

/// The result of `lab build`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelBuild {
    /// Source: a package, directory or tarball.
    pub source: String,
    /// File with additional configuration, if one was given.
    pub config: Option<String>,
    /// One kernel per tick rate, in the order of the command line.
    pub kernels: Vec<BuiltKernel>,
}

/// A kernel that was built or found in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuiltKernel {
    /// Name for `lab run --kernel`.
    pub name: String,
    /// Release, as in `uname -r`.
    pub release: String,
    /// Tick rate, in Hz.
    pub hz: u32,
    /// Name of the unpacked source, with a digest of everything that went into the build.
    pub origin: String,
    /// Path of the kernel image.
    pub image: String,
    /// Whether this invocation compiled the kernel; otherwise it came from the cache.
    pub compiled: bool,
    /// Build time, including the time to unpack the source.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
}
