//! The kinds of files that are written while rows come, side by side with whatever else takes them: recordings,
//! traces, and pages for a browser.
//!
//! A new kind is a file with a [`RowFile`] and a line in [`FORMATS`]; every verb that has rows
//! then has an option for it.

mod page;
mod recording;
mod trace;

use std::fmt;
use std::path::Path;

use ticktax_model::SourceTable;
use ticktax_model::recording::{Row, RowSink};
use ticktax_report::RowsEnded;

use page::HtmlFormat;
use recording::RecordingFormat;
use trace::TraceFormat;

pub(crate) use page::HtmlFile;

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

/// What to say of a file that is finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// Where it is, and what to do with it.
    pub(crate) note: String,
    /// What it lacks.
    pub(crate) warning: Option<String>,
}

/// Why a file of rows could not be written: one line that names the file.
#[derive(Debug)]
pub(crate) struct RowFileError(String);

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
pub(crate) struct RowFormat(&'static dyn FileFormat);

impl RowFormat {
    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        FORMATS.iter().copied().map(Self)
    }

    /// Its option on the command line, without the dashes.
    pub(crate) fn option(self) -> &'static str {
        self.0.option()
    }

    /// What the option does, for the help.
    pub(crate) fn about(self) -> &'static str {
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
pub(crate) struct RowFiles(Vec<Box<dyn RowFile>>);

impl RowFiles {
    /// Begins one more, which will appear as `path` once all are finished.
    ///
    /// # Errors
    /// The folder of `path` does not exist or may not be written, `path` is a folder or a device, or
    /// the disk is full.
    pub(crate) fn add(&mut self, format: RowFormat, path: &Path) -> Result<(), RowFileError> {
        if path == Path::new("-") {
            return Err(RowFileError::no_output(format.option()));
        }
        self.0.push(format.0.create(path)?);
        Ok(())
    }

    /// Finishes all of them: where one fails, the others are there all the same.
    pub(crate) fn finish(self, ended: &RowsEnded<'_>) -> Vec<Result<Finished, RowFileError>> {
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
