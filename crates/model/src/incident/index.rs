//! The lines of a folder's index.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Incident;

/// A line of the index, `index.jsonl`. A reader passes over lines that it does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum IndexLine {
    /// A recorder began.
    Began {
        /// When, ms since 1970.
        at_unix_ms: i64,
    },
    /// It ended. Where this is missing it was killed, and nothing is known of it after its last line.
    Ended {
        /// When, ms since 1970.
        at_unix_ms: i64,
    },
    /// An incident.
    Incident(Box<IncidentEntry>),
    /// A recording was removed, so that the folder keeps to its budget.
    Removed {
        /// The number of its incident.
        number: u64,
        /// Why.
        cause: LossCause,
    },
    /// Something else was not kept.
    Lost {
        /// Why.
        cause: LossCause,
        /// How many.
        count: u64,
    },
}

/// What a folder's index holds, and what was found beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncidentIndex {
    /// Its lines, in order; then the incidents of recordings that it lacks.
    pub lines: Vec<IndexLine>,
    /// How many of these there are.
    pub found_again: u64,
    /// Lines that cannot be read.
    pub damaged: u64,
}

impl IncidentIndex {
    /// The incidents, in order of their lines.
    pub fn entries(&self) -> impl Iterator<Item = &IncidentEntry> {
        self.lines.iter().filter_map(|line| match line {
            IndexLine::Incident(entry) => Some(&**entry),
            _ => None,
        })
    }

    /// The highest number of an incident; 0 where there is none.
    pub fn last_number(&self) -> u64 {
        self.entries().map(|entry| entry.number).max().unwrap_or(0)
    }
}

/// An incident as the index has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IncidentEntry {
    /// Its number in the folder, from 1 on.
    pub number: u64,
    /// The name of its recording's file, where that was kept.
    pub recording: Option<String>,
    /// The size of that file.
    pub bytes: u64,
    /// Why the recording was not kept, where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<LossCause>,
    /// What its rows tell.
    pub incident: Incident,
}

/// Why something was not kept.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LossCause {
    /// More incidents in an hour than recordings are kept of.
    PerHour,
    /// More recordings than are kept.
    Count,
    /// More bytes than are kept.
    Bytes,
    /// The disk was full.
    DiskFull,
    /// The recording could not be written for another reason.
    NotWritten,
    /// Triggers that the kernel did not hand out, or that a recording does not name: there were too many.
    Suppressed,
    /// The index itself had grown too long: its oldest incidents were left out.
    IndexFull,
}

impl LossCause {
    /// Every cause.
    pub const ALL: [Self; 7] = [
        Self::PerHour,
        Self::Count,
        Self::Bytes,
        Self::DiskFull,
        Self::NotWritten,
        Self::Suppressed,
        Self::IndexFull,
    ];

    /// The word for it, as files write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PerHour => "per_hour",
            Self::Count => "count",
            Self::Bytes => "bytes",
            Self::DiskFull => "disk_full",
            Self::NotWritten => "not_written",
            Self::Suppressed => "suppressed",
            Self::IndexFull => "index_full",
        }
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
