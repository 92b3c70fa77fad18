//! The output file of `--html FILE`. It appears under its name only once it is complete.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ticktax_model::SourceTable;
use ticktax_model::disk::{Temporary, creation_words, error_words};
use ticktax_model::document::Document;
use ticktax_model::recording::{Row, RowSink};

use super::{Timeline, page_with};
use crate::rows::{FileFormat, Finished, RowFile, RowFileError, RowsEnded};

/// The help text of the option.
const ABOUT: &str = "Write the page as one HTML file as well, for a browser: with every section, every figure and \
    the document itself, and a timeline where there are rows; nothing is fetched";

/// An HTML page under construction. If it is dropped unfinished, it leaves nothing behind, and an
/// existing file stays unchanged.
#[derive(Debug)]
pub struct HtmlFile {
    path: PathBuf,
    temporary: Temporary,
    timeline: Timeline,
}

impl HtmlFile {
    /// The option on the command line, without the dashes.
    pub const OPTION: &str = "html";
    /// The help text of the option.
    pub const ABOUT: &str = ABOUT;

    /// Starts a file that will appear as `path` once it is finished.
    ///
    /// # Errors
    /// Fails if `path` is `-`, a directory or a device, or if the disk is full. Also fails if the
    /// directory of `path` does not exist or is not writable.
    pub fn create(path: &Path) -> Result<Self, RowFileError> {
        if path == Path::new("-") {
            return Err(RowFileError::no_output(Self::OPTION));
        }
        let temporary = Temporary::beside(path).map_err(|error| {
            let why = creation_words(&error);
            RowFileError::new(format_args!(
                "cannot create the page {}: {why}",
                path.display()
            ))
        })?;
        Ok(Self {
            path: path.to_owned(),
            temporary,
            timeline: Timeline::default(),
        })
    }

    /// Writes the page of a document and moves the file to its final path.
    ///
    /// # Errors
    /// Fails if the disk is full or broken.
    pub fn finish(self, document: &Document) -> Result<Finished, RowFileError> {
        self.write(&page_with(document, None))
    }

    /// Like [`finish`](Self::finish), for a document made from rows. The page has a timeline of the
    /// rows that were received.
    ///
    /// # Errors
    /// Fails if the disk is full or broken.
    pub fn finish_with_rows(mut self, ended: &RowsEnded<'_>) -> Result<Finished, RowFileError> {
        let timeline = std::mem::take(&mut self.timeline);
        self.write(&page_with(ended.document, timeline.finish(ended)))
    }

    fn write(self, page: &str) -> Result<Finished, RowFileError> {
        let Self {
            path, temporary, ..
        } = self;
        let write = |temporary: Temporary| -> io::Result<()> {
            temporary.handle()?.write_all(page.as_bytes())?;
            temporary.appear()
        };
        write(temporary).map_err(|error| {
            let why = error_words(&error);
            RowFileError::new(format_args!(
                "cannot write the page {}: {why}",
                path.display()
            ))
        })?;
        Ok(Finished {
            note: format!("Written to {}; open it in a browser.", path.display()),
            warning: None,
        })
    }
}

/// HTML pages as a file format for rows.
pub(crate) struct HtmlFormat;

impl FileFormat for HtmlFormat {
    fn option(&self) -> &'static str {
        HtmlFile::OPTION
    }

    fn about(&self) -> &'static str {
        ABOUT
    }

    fn create(&self, path: &Path) -> Result<Box<dyn RowFile>, RowFileError> {
        Ok(Box::new(HtmlFile::create(path)?))
    }
}

impl RowSink for HtmlFile {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.timeline.row(sources, row);
    }
}

impl RowFile for HtmlFile {
    fn finish(self: Box<Self>, ended: &RowsEnded<'_>) -> Result<Finished, RowFileError> {
        self.finish_with_rows(ended)
    }
}
