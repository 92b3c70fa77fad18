//! The kinds of files that are written while rows come, side by side with whatever else takes them: recordings,
//! traces, and pages for a browser.
//!
//! A new kind is a folder with a [`RowFile`] and a line in [`FORMATS`]; every verb that has rows
//! then has an option for it.

mod recording;

use std::fmt;
use std::path::Path;

use ticktax_model::SourceTable;
use ticktax_model::document::Document;
use ticktax_model::recording::{Header, Row, RowSink};

use crate::html::HtmlFormat;
use crate::perfetto::TraceFormat;
use recording::RecordingFormat;

/// All of them, in the order of the options.
const FORMATS: &[&dyn FileFormat] = &[&RecordingFormat, &TraceFormat, &HtmlFormat];

/// A kind of file for rows.
pub(crate) trait FileFormat: Sync {
    /// Its option on the command line, without the dashes.
    fn option(&self) -> &'static str;

    /// What the option does, for the help.
    fn about(&self) -> &'static str;

    /// Begins a file that will appear as `path` once it is finished.
    fn create(&self, path: &Path) -> Result<Box<dyn RowFile>, RowFileError>;
}

/// A file of rows in the making. Where it is dropped before it is finished, nothing of it is left
/// and what was there before is as it was.
pub(crate) trait RowFile: RowSink {
    /// Writes what is left, and puts the file under its name.
    fn finish(self: Box<Self>, ended: &RowsEnded<'_>) -> Result<Finished, RowFileError>;
}

/// What is known once the last row has come.
#[derive(Clone, Copy, Debug)]
pub struct RowsEnded<'a> {
    /// Everything about the recording but its rows.
    pub header: &'a Header,
    /// The sources that the rows named.
    pub sources: &'a SourceTable,
    /// What was made of the rows.
    pub document: &'a Document,
}

/// What to say of a file that is finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Where it is, and what to do with it.
    pub note: String,
    /// What it lacks.
    pub warning: Option<String>,
}

/// Why a file of rows could not be written: one line that names the file.
#[derive(Debug)]
pub struct RowFileError(String);

impl RowFileError {
    pub(crate) fn new(line: impl fmt::Display) -> Self {
        Self(line.to_string())
    }

    /// The option needs a file that can be put under its name.
    pub(crate) fn no_output(option: &str) -> Self {
        Self::new(format_args!(
            "--{option} needs a file, which standard output is not; one that is called - is ./-"
        ))
    }
}

impl fmt::Display for RowFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RowFileError {}

/// One of the kinds of files that rows can be written to.
#[derive(Clone, Copy)]
pub struct RowFormat(&'static dyn FileFormat);

impl RowFormat {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        FORMATS.iter().copied().map(Self)
    }

    /// Its option on the command line, without the dashes.
    pub fn option(self) -> &'static str {
        self.0.option()
    }

    /// What the option does, for the help.
    pub fn about(self) -> &'static str {
        self.0.about()
    }
}

impl fmt::Debug for RowFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.option())
    }
}

/// Any number of files that take the same rows.
#[derive(Default)]
pub struct RowFiles(Vec<Box<dyn RowFile>>);

impl RowFiles {
    /// Begins one more, which will appear as `path` once all are finished.
    ///
    /// # Errors
    /// The folder of `path` does not exist or may not be written, `path` is a folder or a device, or
    /// the disk is full.
    pub fn add(&mut self, format: RowFormat, path: &Path) -> Result<(), RowFileError> {
        if path == Path::new("-") {
            return Err(RowFileError::no_output(format.option()));
        }
        self.0.push(format.0.create(path)?);
        Ok(())
    }

    /// Finishes all of them: where one fails, the others are there all the same.
    pub fn finish(self, ended: &RowsEnded<'_>) -> Vec<Result<Finished, RowFileError>> {
        let files = self.0.into_iter();
        files.map(|file| file.finish(ended)).collect()
    }
}

impl RowSink for RowFiles {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        for file in &mut self.0 {
            file.row(sources, row);
        }
    }
}
