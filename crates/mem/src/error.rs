//! Errors, as shown to the user.

use ticktax_probes::ProbeError;

/// Why the cost of memory accesses is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemError {
    /// The measuring thread could not run on the chosen CPU.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The kernel refused to map the memory for the measurement.
    #[error("cannot map {mebibytes} MiB to measure with ({why}): choose a smaller --max")]
    NoMemory {
        /// Requested memory.
        mebibytes: u64,
        /// The kernel's reason.
        why: &'static str,
    },
    /// The requested working set is too large for this machine.
    #[error(
        "cannot measure with {asked_mib} MiB: only {free_mib} MiB are available, and a measurement \
         may use half of that; choose a smaller --max"
    )]
    TooLarge {
        /// Requested memory.
        asked_mib: u64,
        /// Memory that is available.
        free_mib: u64,
    },
    /// The synthetic objects are too large for this machine.
    #[error(
        "cannot check the walk with {asked_mib} MiB of objects: only {free_mib} MiB are available, \
         and the check may use half of that; choose a smaller --count"
    )]
    TooManyObjects {
        /// Required memory.
        asked_mib: u64,
        /// Memory that is available.
        free_mib: u64,
    },
    /// The loop touches a cache line more often than the line has words.
    #[error(
        "cannot check a walk that touches a cache line more than {words} times: list fewer fields \
         of that line"
    )]
    TooManyTouches {
        /// Words of 8 bytes in a line.
        words: u64,
    },
    /// The measuring thread ended without a result.
    #[error("the measurement ended early: run it again")]
    Panicked,
}

/// Why a walk over objects cannot be described.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// The bytes are not valid BTF.
    #[error("not valid BTF: give a file such as /sys/kernel/btf/vmlinux")]
    Btf,
    /// The BTF contains no structure with this name.
    #[error("no structure `{name}` in this BTF{}", did_you_mean(similar))]
    NoStructure {
        /// Requested name.
        name: String,
        /// Similar names.
        similar: Vec<String>,
    },
    /// The structure has no such member.
    #[error("no field `{name}` in struct {structure}{}", did_you_mean(similar))]
    NoField {
        /// Structure.
        structure: String,
        /// Requested path.
        name: String,
        /// Similar names.
        similar: Vec<String>,
    },
}

fn did_you_mean(similar: &[String]) -> String {
    if similar.is_empty() {
        ": check the spelling".to_owned()
    } else {
        format!(": did you mean {}?", similar.join(", "))
    }
}
