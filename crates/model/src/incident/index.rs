//! The index of an incident directory, and the lines in it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Incident;

/// A line of the index, the file `index.jsonl`. Programs that read the index skip lines they don't
/// know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum IndexLine {
    /// A recorder started.
    Began {
        /// Time when the recorder started, in ms since 1970.
        at_unix_ms: i64,
    },
    /// The recorder stopped normally. If this line is missing, the recorder was killed, and it is
    /// unknown how long it kept watching after its last line.
    Ended {
        /// Time when the recorder stopped, in ms since 1970.
        at_unix_ms: i64,
    },
    /// An incident was detected. If it refers to a recording, a later line reports whether the
    /// recording was kept. It must be read as an [`IncidentEntry`].
    #[serde(skip_deserializing)]
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
        /// Why the recording was not kept.
        cause: LossCause,
    },
    /// A recording was deleted to keep the directory within its limits.
    Removed {
        /// Number of the first incident in the recording.
        number: u64,
        /// Why the recording was deleted.
        cause: LossCause,
    },
    /// Triggers were suppressed, or old incidents were dropped from the index.
    Lost {
        /// Why these items were not kept.
        cause: LossCause,
        /// Number of items that were not kept.
        count: u64,
    },
}

/// Upper limit on how many incidents share one recording. There are always fewer in practice,
/// because incidents are at least a few seconds apart.
const SHARED: usize = 16;

/// Contents of an index, plus incidents that the file lacked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncidentIndex {
    /// The lines of the file, in order, followed by incidents found only in recordings.
    pub lines: Vec<IndexLine>,
    /// Number of incidents found in recordings but missing from the index.
    pub found_again: u64,
    /// Number of unreadable lines.
    pub damaged: u64,
}

impl IncidentIndex {
    /// Returns the incidents, in the order of their lines.
    pub fn entries(&self) -> impl Iterator<Item = &IncidentEntry> {
        self.lines.iter().filter_map(|line| match line {
            IndexLine::Incident(entry) => Some(&**entry),
            _ => None,
        })
    }

    /// Appends a line. If the line reports whether a recording was kept, the incidents that refer
    /// to that recording are updated as well.
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

    /// Returns the highest incident number; 0 if the index is empty.
    pub fn last_number(&self) -> u64 {
        self.entries().map(|entry| entry.number).max().unwrap_or(0)
    }
}

impl IndexLine {
    /// Returns the incident that this line contains; `None` for other kinds of line.
    pub fn entry_mut(&mut self) -> Option<&mut IncidentEntry> {
        match self {
            Self::Incident(entry) => Some(entry),
            _ => None,
        }
    }
}

impl IncidentEntry {
    /// Returns whether `recording` is the file name of this incident's recording, written or not.
    pub fn names(&self, recording: &str) -> bool {
        self.recording.as_deref() == Some(recording)
    }

    /// Stores what happened to this incident's recording: the size of its file, or why it was not
    /// kept.
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
    /// Number of the incident in its directory, from 1.
    pub number: u64,
    /// File name of the incident's recording; `None` if it was not kept. The recording may still be
    /// in progress. Incidents in close succession share a recording.
    pub recording: Option<String>,
    /// Size of the recording's file in bytes; 0 if the file does not exist yet.
    pub bytes: u64,
    /// Why the recording was not kept; `None` if it was kept or is still in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<LossCause>,
    /// Analysis of the incident's recorded rows.
    pub incident: Incident,
}

/// Why an incident, a recording or a trigger was not kept.
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
    /// The recording could not be written for a reason other than a full disk.
    NotWritten,
    /// The recorder was killed before it wrote the recording.
    Killed,
    /// Too many triggers fired at once. The kernel did not deliver some of them, or the recording
    /// does not list them.
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

    /// Returns the word used in files.
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
