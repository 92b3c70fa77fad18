//! The cost of memory accesses: measured latencies, and the cost of walking over many objects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Cpu, Nanos};

/// Latency and bandwidth of one CPU's caches and memory, by size of the working set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemLatency {
    /// CPU on which the measuring thread ran.
    pub cpu: Cpu,
    /// Size of a cache line.
    pub line_bytes: u64,
    /// Pages that backed the memory of the columns for huge pages.
    pub huge_pages: PageBacking,
    /// Short measurements that each latency was computed from.
    pub repetitions: u64,
    /// Measured working sets, smallest first.
    pub points: Vec<LatencyPoint>,
    /// Caches and main memory, nearest to the CPU first.
    pub levels: Vec<MemLevel>,
    /// Lines that the hardware fetches along with a loaded line; `None` if unknown.
    #[serde(default)]
    pub prefetch: Option<Prefetch>,
    /// Properties of the measurement that the reader should know.
    pub limitations: Vec<MemLimitation>,
}

/// Lines that the hardware fetches along with a loaded line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prefetch {
    /// Largest number of lines by which a load may lie after an earlier one and still take less
    /// than half the time of a load on its own. The distance is the same for all objects.
    pub after_lines: u64,
    /// The same for a load that lies before an earlier one.
    pub before_lines: u64,
    /// Memory that one load brings into the caches: a line, or an aligned pair of lines.
    pub fetch_bytes: u64,
}

impl Prefetch {
    /// Returns whether `line` comes along with the earlier line `first` of the same object.
    pub fn covers(&self, first: u64, line: u64) -> bool {
        if line > first {
            line - first <= self.after_lines
        } else {
            first - line <= self.before_lines
        }
    }
}

impl MemLatency {
    /// Maximum spread of the latencies on a plateau that counts as flat, as a share of their
    /// median.
    pub const FLAT: f64 = 0.1;
}

/// Pages behind a range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PageBacking {
    /// Huge pages that were reserved in `vm.nr_hugepages`.
    Reserved,
    /// Huge pages that the kernel provided on request.
    Transparent {
        /// Share of the memory that huge pages back, 0 to 1.
        share: f64,
    },
    /// Small pages only.
    Small,
}

impl PageBacking {
    /// Returns whether huge pages back at least nine tenths of the memory.
    pub fn is_huge(self) -> bool {
        match self {
            Self::Reserved => true,
            Self::Transparent { share } => share >= 0.9,
            Self::Small => false,
        }
    }
}

/// A latency measured many times, in ns per load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Median.
    pub median_ns: f64,
    /// Shortest.
    pub min_ns: f64,
    /// Ninetieth percentile. Interruptions of the measurement lengthen this one first.
    pub p90_ns: f64,
}

/// Latencies and bandwidth for one size of the working set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyPoint {
    /// Size of the working set.
    pub size_bytes: u64,
    /// Loads in a random order that each depend on the one before, on huge pages; `None` if the
    /// machine provided no huge pages.
    pub huge: Option<Latency>,
    /// The same on small pages, which adds misses of the address translation (TLB).
    pub small: Latency,
    /// Load from the cache line that follows one just loaded, in ns. Both lie in the same aligned
    /// 128 bytes, on the same pages as in `huge`.
    pub next_line_ns: f64,
    /// Time in which one thread reads a byte if it reads the working set in sequential order.
    pub read_ns_per_byte: f64,
}

impl LatencyPoint {
    /// Returns the latency in ns on huge pages, or on small pages if the machine provided no huge
    /// pages.
    pub fn latency_ns(&self) -> f64 {
        self.huge.unwrap_or(self.small).median_ns
    }
}

/// A cache or main memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemLevel {
    /// `L1`, `L2` and so on, or `memory`.
    pub name: String,
    /// Size that the kernel reports; `None` for main memory, and if it reports none.
    pub reported_bytes: Option<u64>,
    /// Largest working set on the plateau of this level; `None` if the latencies show no plateau.
    pub found_bytes: Option<u64>,
    /// Lines per set that the kernel reports.
    pub ways: Option<u64>,
    /// Latency in ns: the median over the working sets that fit here but not in the level before.
    pub latency_ns: f64,
    /// Largest minus smallest of these latencies, as a share of the median.
    #[serde(rename = "spread_share")]
    pub spread: f64,
    /// Number of working sets measured at this level.
    pub points: u64,
}

impl MemLevel {
    /// Returns whether the latencies of this level are close enough to one another to be those of
    /// one cache.
    pub fn is_flat(&self) -> bool {
        self.points >= 2 && self.spread <= MemLatency::FLAT
    }
}

/// A property of a measurement of memory that limits what it says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum MemLimitation {
    /// The machine provided no huge pages, so all latencies include misses of the address
    /// translation.
    NoHugePages,
    /// The kernel reports no cache sizes, so the levels come from the latencies alone.
    NoCacheSizes,
    /// The largest working set is less than four times the largest cache.
    TooSmall {
        /// Largest working set.
        size_bytes: u64,
    },
    /// Many repetitions took much longer than the median, because something interrupted the
    /// measurement or shares the caches.
    Disturbed {
        /// Share of the working sets concerned, 0 to 1.
        share: f64,
    },
}

/// Predicted cost of a loop that touches some fields of many objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemWalk {
    /// Type of the objects.
    pub structure: String,
    /// Size of an object.
    pub size_bytes: u64,
    /// Number of unused ranges between its members.
    pub holes: u64,
    /// Total size of these ranges.
    pub hole_bytes: u64,
    /// Size of a cache line.
    pub line_bytes: u64,
    /// Touched fields, in the order in which the loop touches them.
    pub touches: Vec<Touch>,
    /// Number of objects.
    pub items: u64,
    /// Cache lines that one object touches.
    pub lines: u64,
    /// Cache lines that one object would touch if the touched fields were moved together.
    pub packed_lines: u64,
    /// Number of objects whose touched lines fit in each cache.
    pub fits: Vec<LevelFit>,
    /// Cost if the loop touches the fields in the given order.
    pub interleaved: WalkCost,
    /// Cost if the loop touches the fields in the order of their addresses.
    pub sequential: WalkCost,
    /// Cost if the touched fields were moved together.
    pub packed: WalkCost,
    /// Time between the starts of two walks.
    #[serde(rename = "every_ns")]
    pub every: Option<Nanos>,
    /// Lines that the prediction assumes the hardware to fetch along; `None` if unknown.
    #[serde(default)]
    pub prefetch: Option<Prefetch>,
    /// Predicted time per object for other numbers of objects, smallest number first.
    #[serde(default)]
    pub curve: Vec<WalkPoint>,
    /// Comparison with walks over synthetic objects on this machine; `None` without `--verify`.
    pub check: Option<WalkCheck>,
}

/// Predicted walks, compared with walks over synthetic objects of the same layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WalkCheck {
    /// CPU on which the walks ran.
    pub cpu: Cpu,
    /// Latencies that the prediction uses.
    pub basis: CheckBasis,
    /// Number of times that each walk was measured.
    pub rounds: u64,
    /// Pages that backed the objects.
    pub huge_pages: PageBacking,
    /// Largest deviation of a measured median from its prediction that still counts as a fit, as a
    /// share of the prediction.
    #[serde(rename = "tolerance_share")]
    pub tolerance: f64,
    /// Predicted and measured walks. The objects are visited in a random order, and each load needs
    /// the result of the one before.
    pub walks: Vec<CheckedWalk>,
    /// Time per object if only the address of the next object depends on a load, so that the CPU
    /// can load the lines of an object at once. The model does not predict it.
    pub overlapping: Latency,
    /// Time per object if the objects are visited in the order of their addresses. The model does
    /// not predict it.
    pub sorted_objects: Latency,
}

impl WalkCheck {
    /// Tolerance of a check.
    pub const TOLERANCE: f64 = 0.2;

    /// Returns whether every measured walk is within the tolerance of its prediction.
    pub fn fits(&self) -> bool {
        self.walks
            .iter()
            .all(|walk| walk.deviation().abs() <= self.tolerance)
    }
}

/// Latencies that a checked prediction uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckBasis {
    /// Measured between the walks.
    SameRun,
    /// Read from a file.
    Table,
}

/// Variant of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WalkKind {
    /// Fields in the loop's order.
    InOrder,
    /// Fields in the order of their addresses.
    ByAddress,
    /// Fields moved together.
    Packed,
}

/// A predicted and measured walk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckedWalk {
    /// Variant.
    pub kind: WalkKind,
    /// Predicted time per object.
    pub predicted_ns: f64,
    /// Measured time per object.
    pub measured: Latency,
}

impl CheckedWalk {
    /// Returns by which share of the prediction the measured median exceeds it. Negative if the
    /// walk was faster.
    pub fn deviation(&self) -> f64 {
        self.measured.median_ns / self.predicted_ns - 1.0
    }
}

/// A field that a loop touches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Touch {
    /// Path of the field.
    pub field: String,
    /// Offset in the object.
    pub offset_bytes: u64,
    /// Size of the field.
    pub size_bytes: u64,
    /// Cache line of the object that contains the start of the field, counted from 0.
    pub line: u64,
    /// Whether this is the first touch of that line.
    pub is_first: bool,
}

/// Number of objects that fit in a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LevelFit {
    /// Name of the cache.
    pub level: String,
    /// Size of the cache.
    pub size_bytes: u64,
    /// Objects that fit.
    pub items: u64,
    /// Objects that would fit if the touched fields were moved together.
    pub packed_items: u64,
}

/// Predicted times per object for one number of objects.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WalkPoint {
    /// Number of objects.
    pub items: u64,
    /// Time with the fields in the loop's order.
    pub interleaved_ns: f64,
    /// Time with the fields in the order of their addresses.
    pub sequential_ns: f64,
    /// Time if the touched fields were moved together.
    pub packed_ns: f64,
}

/// Predicted cost of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WalkCost {
    /// Size of all touched lines.
    pub working_set_bytes: u64,
    /// Time per object.
    pub item_ns: f64,
    /// Time for all objects.
    #[serde(rename = "stall_ns")]
    pub stall: Nanos,
}

/// Objects that the kernel of a machine holds, and the predicted time of a walk over each kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemObjects {
    /// CPU on which the latencies were measured.
    pub cpu: Cpu,
    /// Size of a cache line.
    pub line_bytes: u64,
    /// Kinds of objects, those with the longest walk first.
    pub groups: Vec<ObjectGroup>,
    /// Longest time that a program can spare its CPU; `None` without `--budget`.
    #[serde(rename = "budget_ns")]
    pub budget: Option<Nanos>,
    /// Data that could not be read.
    pub limitations: Vec<ObjectLimitation>,
}

impl MemObjects {
    /// Lists the kinds of objects whose predicted walk takes longer than the budget.
    pub fn exceeding(&self) -> impl Iterator<Item = &ObjectGroup> {
        let groups = self.groups.iter();
        groups.filter(|group| self.budget.is_some_and(|budget| group.walk.median > budget))
    }
}

/// Objects of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectGroup {
    /// Name of a cache in slabinfo, or of a kind of objects that the kernel counts.
    pub name: String,
    /// Origin of the count.
    pub source: ObjectSource,
    /// Number of objects.
    pub objects: u64,
    /// Size of an object; `None` if it is unknown.
    pub size_bytes: Option<u64>,
    /// Fields that the walk is assumed to touch. Empty if it is assumed to touch only one line.
    pub fields: Vec<String>,
    /// Walk that touches these fields of each object, or one line.
    pub walk: WalkTime,
    /// Walk that touches every line of each object; `None` if the size of an object is unknown.
    pub every_line: Option<WalkTime>,
}

/// Origin of a number of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectSource {
    /// `/proc/slabinfo`.
    Slabinfo,
    /// `/proc/sys/fs/inode-state`.
    InodeState,
    /// `/proc/sys/fs/dentry-state`.
    DentryState,
    /// `/proc/loadavg`.
    Loadavg,
}

/// Predicted time of a walk over all objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalkTime {
    /// Cache lines that the walk touches in each object.
    pub lines: u64,
    /// Size of all touched lines.
    pub working_set_bytes: u64,
    /// Time with the median of the measured latencies.
    #[serde(rename = "median_ns")]
    pub median: Nanos,
    /// Time with the shortest measured latency.
    #[serde(rename = "min_ns")]
    pub min: Nanos,
    /// Time with the ninetieth percentile of the measured latencies.
    #[serde(rename = "p90_ns")]
    pub p90: Nanos,
}

/// Data about the kernel's objects that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum ObjectLimitation {
    /// Only root may read `/proc/slabinfo`.
    SlabinfoNeedsRoot,
    /// The kernel has no `/proc/slabinfo`.
    NoSlabinfo,
    /// The kernel describes no types, so the touched fields and the sizes of objects are unknown.
    NoTypes,
    /// A count could not be read.
    NoCount {
        /// Origin of the count.
        source: ObjectSource,
    },
}
