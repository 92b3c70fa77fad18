//! `--html FILE`: a page that appears under its name once it is complete.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ticktax_model::SourceTable;
use ticktax_model::disk::{Temporary, creation_words, error_words};
use ticktax_model::document::Document;
use ticktax_model::recording::{Row, RowSink};

use super::{Timeline, page_with};
use crate::rows::{FileFormat, Finished, RowFile, RowFileError, RowsEnded};

/// What the option does.
const ABOUT: &str = "Write the page as one HTML file as well, for a browser: with every section, every figure and \
    the document itself, and a timeline where there are rows; nothing is fetched";

/// A page for a browser, in the making. Where it is dropped before it is finished, nothing of it is left and what was
/// there before is as it was.
#[derive(Debug)]
pub struct HtmlFile {
    path: PathBuf,
    temporary: Temporary,
    timeline: Timeline,
}

impl HtmlFile {
    /// Its option on the command line, without the dashes.
    pub const OPTION: &str = "html";
    /// What the option does, for the help.
    pub const ABOUT: &str = ABOUT;

    /// Begins a file that will appear as `path` once it is finished.
    ///
    /// # Errors
    /// `path` is `-`, the folder of `path` does not exist or may not be written, `path` is a folder or a device, or the
    /// disk is full.
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

    /// Writes the page of a document, and puts the file under its name.
    ///
    /// # Errors
    /// The disk is full, or does not work.
    pub fn finish(self, document: &Document) -> Result<Finished, RowFileError> {
        self.write(&page_with(document, None))
    }

    /// The same of a document that was made of rows, with a timeline of those that came.
    ///
    /// # Errors
    /// The disk is full, or does not work.
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

/// Pages for a browser, beside other files of rows.
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
