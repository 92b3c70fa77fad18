//! Lines of an incident directory's index.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Incident;

/// A line of the index, `index.jsonl`. Readers skip unknown lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum IndexLine {
    /// A recorder started.
    Began {
        /// Time, in ms since 1970.
        at_unix_ms: i64,
    },
    /// The recorder stopped. If this line is missing, the recorder was killed, and what happened
    /// after its last line is unknown.
    Ended {
        /// Time, in ms since 1970.
        at_unix_ms: i64,
    },
    /// An incident. If it names a recording, a later line reports whether the recording was kept.
    Incident(Box<IncidentEntry>),
    /// A recording was written completely.
    Recorded {
        /// File name.
        recording: String,
        /// File size.
        bytes: u64,
    },
    /// A recording that incidents refer to was not kept.
    NotRecorded {
        /// Intended file name.
        recording: String,
        /// Why it was not kept.
        cause: LossCause,
    },
    /// A recording was deleted to keep the directory within its budget.
    Removed {
        /// Number of its first incident.
        number: u64,
        /// Why it was deleted.
        cause: LossCause,
    },
    /// Something other than a recording was not kept.
    Lost {
        /// Why it was not kept.
        cause: LossCause,
        /// Number of lost items.
        count: u64,
    },
}

/// Upper limit on the number of incidents that share one recording. Fewer fit in practice, because
/// incidents are at least some seconds apart.
const SHARED: usize = 16;

/// Contents of an index, including incidents that were missing from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncidentIndex {
    /// The file's lines in order, followed by incidents found only in recordings.
    pub lines: Vec<IndexLine>,
    /// Number of incidents that were missing from the index.
    pub found_again: u64,
    /// Number of unreadable lines.
    pub damaged: u64,
}

impl IncidentIndex {
    /// Incidents, in the order of their lines.
    pub fn entries(&self) -> impl Iterator<Item = &IncidentEntry> {
        self.lines.iter().filter_map(|line| match line {
            IndexLine::Incident(entry) => Some(&**entry),
            _ => None,
        })
    }

    /// Appends a line. If the line reports the outcome of a recording, updates the incidents that
    /// refer to that recording.
    pub fn add(&mut self, line: IndexLine) {
        let (name, outcome) = match &line {
            IndexLine::Recorded { recording, bytes } => (recording, Ok(*bytes)),
            IndexLine::NotRecorded { recording, cause } => (recording, Err(*cause)),
            _ => return self.lines.push(line),
        };
        // Only the latest incidents can refer to this recording.
        let entries = self.lines.iter_mut().rev().filter_map(IndexLine::entry_mut);
        for entry in entries.take(SHARED).filter(|entry| entry.names(name)) {
            entry.settle(outcome);
        }
        self.lines.push(line);
    }

    /// Highest incident number; 0 if the index is empty.
    pub fn last_number(&self) -> u64 {
        self.entries().map(|entry| entry.number).max().unwrap_or(0)
    }
}

impl IndexLine {
    /// The incident in this line, if it is one.
    pub fn entry_mut(&mut self) -> Option<&mut IncidentEntry> {
        match self {
            Self::Incident(entry) => Some(entry),
            _ => None,
        }
    }
}

impl IncidentEntry {
    /// Whether `recording` names this incident's existing or planned recording.
    pub fn names(&self, recording: &str) -> bool {
        self.recording.as_deref() == Some(recording)
    }

    /// Stores the outcome of this incident's recording: the file size, or why it was not kept.
    pub fn settle(&mut self, outcome: Result<u64, LossCause>) {
        match outcome {
            Ok(bytes) => self.bytes = bytes,
            Err(cause) => (self.recording, self.not_kept) = (None, Some(cause)),
        }
    }
}

/// An incident in the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IncidentEntry {
    /// Number in the directory, from 1.
    pub number: u64,
    /// File name of the incident's recording, if it was kept or is still being written. Incidents
    /// in close succession share a recording.
    pub recording: Option<String>,
    /// Size of the recording's file; 0 if it does not exist yet.
    pub bytes: u64,
    /// Why the recording was not kept, if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<LossCause>,
    /// Analysis of the incident's recorded rows.
    pub incident: Incident,
}

/// Reason why something was not kept.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LossCause {
    /// The limit on recordings per hour was reached.
    PerHour,
    /// The limit on the number of recordings was reached.
    Count,
    /// The limit on the size of all recordings was reached.
    Bytes,
    /// The disk was full.
    DiskFull,
    /// The recording could not be written for another reason.
    NotWritten,
    /// The recorder was killed before it wrote the recording.
    Killed,
    /// Too many triggers fired, so the kernel did not deliver them or the recording does not list
    /// them.
    Suppressed,
    /// The index reached its size limit, so its oldest incidents were dropped.
    IndexFull,
}

impl LossCause {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::PerHour,
        Self::Count,
        Self::Bytes,
        Self::DiskFull,
        Self::NotWritten,
        Self::Killed,
        Self::Suppressed,
        Self::IndexFull,
    ];

    /// Word used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PerHour => "per_hour",
            Self::Count => "count",
            Self::Bytes => "bytes",
            Self::DiskFull => "disk_full",
            Self::NotWritten => "not_written",
            Self::Killed => "killed",
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
