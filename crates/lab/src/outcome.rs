//! How far a guest has come, and what it handed over.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use ticktax_store::recording::RecordingReader;

use crate::error::LabError;
use crate::guest;
use crate::wire::Frame;

/// How far a guest has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its kernel starts, and settles.
    Boots,
    /// The verb runs.
    Runs,
    /// Results come in: so many bytes so far.
    Sends(usize),
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boots => f.write_str("boots"),
            Self::Runs => f.write_str("runs"),
            Self::Sends(bytes) => write!(f, "{bytes} bytes have come"),
        }
    }
}

impl Stage {
    /// What was going on when it was ended, in words.
    pub(crate) fn words(self) -> String {
        match self {
            Self::Boots => "its kernel was booting".to_owned(),
            Self::Runs => "the verb was running".to_owned(),
            Self::Sends(bytes) => format!("{bytes} bytes of results had come"),
        }
    }
}

/// What a guest handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The verb's exit code.
    pub exit: i32,
    /// The files that it wrote, its standard output and standard error among them.
    pub files: Vec<Frame>,
    /// The instructions that it executed from its start to its end, where they were counted.
    pub instructions: Option<u64>,
    /// How long it all took on the host's clock.
    pub took: Duration,
}

impl Outcome {
    /// The contents of a file that the guest wrote.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        let found = self.files.iter().find(|file| file.name == name);
        found.map(|file| &*file.contents)
    }

    /// The recording that the verb left behind as [`guest::RECORDING`].
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub fn recording(&self) -> Result<RecordingReader, LabError> {
        let name = guest::RECORDING;
        let missing = || LabError::NoResult(format!("it wrote no {name}"));
        let bytes = self.file(name).ok_or_else(missing)?;
        Ok(RecordingReader::from_bytes(
            name,
            Bytes::copy_from_slice(bytes),
        )?)
    }

    /// The same, where it ended with 0 or with one of `accepted`.
    pub(crate) fn require(self, accepted: &[u8]) -> Result<Self, LabError> {
        let with_result = |code| code == 0 || accepted.contains(&code);
        if u8::try_from(self.exit).is_ok_and(with_result) {
            return Ok(self);
        }
        let why = self.complaint();
        Err(LabError::NoResult(
            why.trim_start_matches("ticktax: ").to_owned(),
        ))
    }

    /// What the verb complained about, as a line.
    fn complaint(&self) -> String {
        let bytes = self.file(guest::STANDARD_ERROR).unwrap_or_default();
        let text = String::from_utf8_lossy(bytes);
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        last.unwrap_or("it did not say why").to_owned()
    }
}
