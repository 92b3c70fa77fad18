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
    /// An incident. Where it names a recording, a line that follows says what became of that.
    Incident(Box<IncidentEntry>),
    /// A recording is there, whole.
    Recorded {
        /// Its file's name.
        recording: String,
        /// The file's size.
        bytes: u64,
    },
    /// A recording that incidents name was not kept.
    NotRecorded {
        /// The name that its file was to have.
        recording: String,
        /// Why.
        cause: LossCause,
    },
    /// A recording was removed, so that the folder keeps to its budget.
    Removed {
        /// The number of its first incident.
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

/// More incidents than one recording has: some seconds lie between two.
const SHARED: usize = 16;

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

    /// Adds the next line. What it says of a recording is put into the incidents that name it.
    pub fn add(&mut self, line: IndexLine) {
        let (name, became) = match &line {
            IndexLine::Recorded { recording, bytes } => (recording, Ok(*bytes)),
            IndexLine::NotRecorded { recording, cause } => (recording, Err(*cause)),
            _ => return self.lines.push(line),
        };
        // They are among the last ones.
        let entries = self.lines.iter_mut().rev().filter_map(IndexLine::entry_mut);
        for entry in entries.take(SHARED).filter(|entry| entry.names(name)) {
            entry.settle(became);
        }
        self.lines.push(line);
    }

    /// The highest number of an incident; 0 where there is none.
    pub fn last_number(&self) -> u64 {
        self.entries().map(|entry| entry.number).max().unwrap_or(0)
    }
}

impl IndexLine {
    /// The incident that it tells of.
    pub fn entry_mut(&mut self) -> Option<&mut IncidentEntry> {
        match self {
            Self::Incident(entry) => Some(entry),
            _ => None,
        }
    }
}

impl IncidentEntry {
    /// Whether its recording has, or is to have, this name.
    pub fn names(&self, recording: &str) -> bool {
        self.recording.as_deref() == Some(recording)
    }

    /// Notes what became of its recording: its bytes, or why it was not kept.
    pub fn settle(&mut self, became: Result<u64, LossCause>) {
        match became {
            Ok(bytes) => self.bytes = bytes,
            Err(cause) => (self.recording, self.not_kept) = (None, Some(cause)),
        }
    }
}

/// An incident as the index has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IncidentEntry {
    /// Its number in the folder, from 1 on.
    pub number: u64,
    /// The name of its recording's file, where that was kept or is still going on. Incidents that follow each other closely
    /// have one recording.
    pub recording: Option<String>,
    /// The size of that file; 0 before it is there.
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
    /// More recordings in an hour than are kept.
    PerHour,
    /// More recordings than are kept.
    Count,
    /// More bytes than are kept.
    Bytes,
    /// The disk was full.
    DiskFull,
    /// The recording could not be written for another reason.
    NotWritten,
    /// The recorder was killed before the recording was written.
    Killed,
    /// Triggers that the kernel did not hand out, or that a recording does not name: there were too many.
    Suppressed,
    /// The index itself had grown too long: its oldest incidents were left out.
    IndexFull,
}

impl LossCause {
    /// Every cause.
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

    /// The word for it, as files write it.
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
