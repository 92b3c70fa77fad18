//! Comparisons of two recordings or two statements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::beats::BeatLine;
use crate::machine::Machine;
use crate::recording::{Level, World};
use crate::{Cpu, Nanos};

/// Record of a comparison of two recordings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordingsRecord {
    /// First recording.
    pub first: ComparedRecording,
    /// Second recording.
    pub second: ComparedRecording,
    /// Periodic sources that occur in only one of the recordings, or whose period changed.
    pub beats: Vec<BeatChange>,
    /// Number of periodic sources that have the same period in both recordings.
    pub beats_kept: u64,
}

/// One of the compared recordings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedRecording {
    /// File.
    pub file: String,
    /// Whether the recording comes from a real machine, a virtual lab or the simulator.
    pub world: World,
    /// Capability level, which limits what could be observed.
    pub level: Level,
    /// Machine.
    pub machine: Machine,
    /// Wall-clock start time, in seconds since 1970.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// Length of the recording in wall-clock time.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// CPUs.
    pub cpus: Vec<Cpu>,
    /// Name of the analysed program.
    pub program: Option<String>,
    /// Number of equal parts that the recording was divided into to compute confidence intervals.
    /// `None` for a statement, which contains only sums.
    pub blocks: Option<u64>,
    /// Whether the file lacks checksums, so that damage to it would go unnoticed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_verified: bool,
}

/// A periodic source that occurs in only one of the recordings, or whose period changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BeatChange {
    /// The source in the first recording; `None` if it does not occur there.
    pub first: Option<BeatLine>,
    /// The source in the second recording; `None` if it does not occur there.
    pub second: Option<BeatLine>,
}
