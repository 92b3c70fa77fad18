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
    #[error("no structure `{name}`{}", did_you_mean(similar))]
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

/// Why a layout file is invalid, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct LayoutError {
    /// Line, counted from 1.
    pub line: usize,
    /// Reason.
    pub problem: LayoutProblem,
}

/// Why a layout file is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutProblem {
    /// The grammar requires something else.
    #[error("found {found}, expected {wanted}")]
    Expected {
        /// Token that the grammar allows here.
        wanted: String,
        /// Token in the file.
        found: String,
    },
    /// A character that no declaration contains.
    #[error("unexpected character `{}`", .0.escape_default())]
    Character(char),
    /// A malformed number.
    #[error("invalid number `{0}`: write it as 24 or 0x18")]
    Number(String),
    /// A comment without its end.
    #[error("the comment does not end: add `*/`")]
    OpenComment,
    /// A type that the file does not define.
    #[error(
        "unknown type `{0}`: define it above, or use a type of the same size, such as `u32` or \
         `char[12]`"
    )]
    UnknownType(String),
    /// Two structures with the same name.
    #[error("`{0}` is already defined: remove or rename one of the definitions")]
    Twice(String),
    /// A field that starts before the end of the one before.
    #[error(
        "`{field}` at {offset:#x} overlaps the field before it, which ends at {end:#x}: list the \
         fields by offset, or put them in a `union`"
    )]
    Overlap {
        /// Field.
        field: String,
        /// Its offset.
        offset: u64,
        /// End of the field before.
        end: u64,
    },
    /// A structure that is smaller than its fields.
    #[error("a size of {size} is too small: the fields end at {end:#x}, which is {end}")]
    TooSmall {
        /// Given size.
        size: u64,
        /// End of the last field.
        end: u64,
    },
    /// A structure without fields, or a very large one.
    #[error("a structure must have 1 byte to 256 MiB")]
    Size(u64),
    /// A bit-field.
    #[error("`{0}` is a bit-field: declare the number that contains it instead")]
    Bitfield(String),
    /// An unsupported size of pointers.
    #[error("invalid pointer size {0}: choose 4 or 8")]
    Pointer(u64),
    /// Structures in structures in structures.
    #[error("too many nested structures: define the inner ones separately")]
    TooDeep,
    /// Too many declarations.
    #[error("the file is too long: keep only the structures that the walk needs")]
    TooLong,
    /// No structure at all.
    #[error("the file defines no structure: add one, for example `struct item {{ u32 state; }};`")]
    Empty,
}

fn did_you_mean(similar: &[String]) -> String {
    if similar.is_empty() {
        ": check the spelling".to_owned()
    } else {
        format!(": did you mean {}?", similar.join(", "))
    }
}
