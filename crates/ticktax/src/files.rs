//! Files written while rows arrive: recordings, traces and HTML pages.
//!
//! To add a format, write a module with a [`RowFile`] and add an entry to [`FORMATS`]. Every verb
//! that produces rows then has an option for the format.

mod page;
mod profile;
mod recording;
mod trace;

use std::fmt;
use std::path::Path;

use ticktax_model::SourceTable;
use ticktax_model::recording::{Row, RowSink};
use ticktax_report::RowsEnded;

use page::HtmlFormat;
use profile::ProfileFormat;
use recording::RecordingFormat;
use trace::TraceFormat;

pub(crate) use page::HtmlFile;

/// All formats, in the order of their options.
const FORMATS: &[&dyn FileFormat] = &[&RecordingFormat, &TraceFormat, &HtmlFormat];

/// A file format that rows can be written in.
pub(crate) trait FileFormat: Sync {
    /// Returns the name of the command-line option, without the dashes.
    fn option(&self) -> &'static str;

    /// Returns the description of the option in the help.
    fn about(&self) -> &'static str;

    /// Creates a file that will appear as `path` once it is finished.
    fn create(&self, path: &Path) -> Result<Box<dyn RowFile>, RowFileError>;
}

/// A file that rows are being written to. If it is dropped before it is finished, it leaves nothing
/// behind, and an existing file with that name stays unchanged.
pub(crate) trait RowFile: RowSink {
    /// Writes the remaining data and moves the file to its final path.
    fn finish(self: Box<Self>, ended: &RowsEnded<'_>) -> Result<Finished, RowFileError>;
}

/// Messages for the user about a finished file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// The path of the file, and a hint on how to use it.
    pub(crate) note: String,
    /// A warning that the file lacks some content.
    pub(crate) warning: Option<String>,
}

/// Why a row file could not be written, as a single line that names the file.
#[derive(Debug)]
pub(crate) struct RowFileError(String);

impl RowFileError {
    pub(crate) fn new(line: impl fmt::Display) -> Self {
        Self(line.to_string())
    }

    /// Returns the error for `-`, which stands for standard output. The option needs a real file,
    /// because a finished file is renamed to its final path.
    pub(crate) fn no_output(option: &str) -> Self {
        Self::new(format_args!(
            "--{option} cannot write to standard output: give a file name, or ./- for a file named \
             -"
        ))
    }
}

impl fmt::Display for RowFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RowFileError {}

/// A file format registered in [`FORMATS`].
#[derive(Clone, Copy)]
pub(crate) struct RowFormat(&'static dyn FileFormat);

impl RowFormat {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        FORMATS.iter().copied().map(Self)
    }

    /// The format of profiles. It is not registered in [`FORMATS`], because only some verbs have
    /// profiles.
    pub(crate) const PROFILE: Self = Self(&ProfileFormat);

    pub(crate) fn option(self) -> &'static str {
        self.0.option()
    }

    pub(crate) fn about(self) -> &'static str {
        self.0.about()
    }
}

impl fmt::Debug for RowFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.option())
    }
}

#[derive(Default)]
pub(crate) struct RowFiles(Vec<Box<dyn RowFile>>);

impl RowFiles {
    /// Creates another output file, which appears as `path` once it is finished.
    ///
    /// # Errors
    /// Returns an error if `path` is `-`, a directory or a device, if its directory does not exist
    /// or is not writable, or if the disk is full.
    pub(crate) fn add(&mut self, format: RowFormat, path: &Path) -> Result<(), RowFileError> {
        if path == Path::new("-") {
            return Err(RowFileError::no_output(format.option()));
        }
        self.0.push(format.0.create(path)?);
        Ok(())
    }

    /// Finishes all files and returns a result for each. If one fails, the rest are still finished.
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
