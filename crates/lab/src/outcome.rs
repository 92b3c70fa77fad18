//! Progress and results of a guest.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use ticktax_store::recording::RecordingReader;

use crate::error::LabError;
use crate::guest;
use crate::wire::Frame;

/// The stage that a guest has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The kernel is booting and settling.
    Boots,
    /// The verb is running.
    Runs,
    /// The guest is sending its results. The field is how many bytes have been received so far.
    Sends(usize),
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boots => f.write_str("boots"),
            Self::Runs => f.write_str("runs"),
            Self::Sends(bytes) => write!(f, "received {bytes} bytes"),
        }
    }
}

impl Stage {
    pub(crate) fn words(self) -> String {
        match self {
            Self::Boots => "booting its kernel".to_owned(),
            Self::Runs => "running the verb".to_owned(),
            Self::Sends(bytes) => format!("after receiving {bytes} bytes of results"),
        }
    }
}

/// The results of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The verb's exit code.
    pub exit: i32,
    /// Files written by the verb, including its standard output and standard error.
    pub files: Vec<Frame>,
    /// Number of instructions that the guest executed, or `None` if they were not counted.
    pub instructions: Option<u64>,
    /// Time that the guest ran, on the host's clock.
    pub took: Duration,
}

impl Outcome {
    /// Returns the contents of the file called `name`, or `None` if the verb did not write it.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        let found = self.files.iter().find(|file| file.name == name);
        found.map(|file| &*file.contents)
    }

    /// Opens the recording that the verb wrote as [`guest::RECORDING`].
    ///
    /// # Errors
    /// Returns an error if the recording is missing or damaged.
    pub fn recording(&self) -> Result<RecordingReader, LabError> {
        let name = guest::RECORDING;
        let missing = || LabError::NoResult(format!("it did not write {name}"));
        let bytes = self.file(name).ok_or_else(missing)?;
        Ok(RecordingReader::from_bytes(
            name,
            Bytes::copy_from_slice(bytes),
        )?)
    }

    /// Returns `self` if the exit code is 0 or one of `accepted`, otherwise an error.
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

    /// Returns the last line that the verb wrote to its standard error.
    fn complaint(&self) -> String {
        let bytes = self.file(guest::STANDARD_ERROR).unwrap_or_default();
        let text = String::from_utf8_lossy(bytes);
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        last.unwrap_or("no reason given").to_owned()
    }
}
