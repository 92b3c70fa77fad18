//! The HTML page written by `--html FILE`. It appears under its name only once it is complete.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ticktax_model::SourceTable;
use ticktax_model::document::Document;
use ticktax_model::recording::{Row, RowSink};
use ticktax_report::{HtmlPage, RowsEnded};
use ticktax_store::disk::{Temporary, creation_words, error_words};

use super::{FileFormat, Finished, RowFile, RowFileError};

const ABOUT: &str = "Also write the report as a self-contained HTML file. It includes every \
    section and figure, the data as JSON, and a timeline if events were recorded";

/// An HTML page that is being written. If it is dropped before it is finished, it leaves nothing
/// behind, and an existing file with that name stays unchanged.
#[derive(Debug)]
pub(crate) struct HtmlFile {
    path: PathBuf,
    temporary: Temporary,
    page: HtmlPage,
}

impl HtmlFile {
    pub(crate) const OPTION: &str = "html";
    pub(crate) const ABOUT: &str = ABOUT;

    /// Creates a file that will appear as `path` once it is finished.
    ///
    /// # Errors
    /// Returns an error if `path` is `-`, a directory or a device, if its directory does not exist
    /// or is not writable, or if the disk is full.
    pub(crate) fn create(path: &Path) -> Result<Self, RowFileError> {
        if path == Path::new("-") {
            return Err(RowFileError::no_output(Self::OPTION));
        }
        let temporary = Temporary::beside(path).map_err(|error| {
            let why = creation_words(path, &error);
            RowFileError::new(format_args!(
                "cannot create the HTML file {}: {why}",
                path.display()
            ))
        })?;
        Ok(Self {
            path: path.to_owned(),
            temporary,
            page: HtmlPage::default(),
        })
    }

    /// Renders `document` and moves the file to its final path.
    pub(crate) fn finish(self, document: &Document) -> Result<Finished, RowFileError> {
        self.write(&HtmlPage::default().finish(document))
    }

    /// Does the same as [`finish`](Self::finish) for a document computed from rows. The page also
    /// shows a timeline of the rows received so far.
    pub(crate) fn finish_with_rows(
        mut self,
        ended: &RowsEnded<'_>,
    ) -> Result<Finished, RowFileError> {
        let page = std::mem::take(&mut self.page);
        self.write(&page.finish_with_rows(ended))
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
                "cannot write the HTML file {}: {why}",
                path.display()
            ))
        })?;
        Ok(Finished {
            note: format!("Written to {}; open it in a browser.", path.display()),
            warning: None,
        })
    }
}

/// The HTML page, as one of the formats in which rows can be written.
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
        self.page.row(sources, row);
    }
}

impl RowFile for HtmlFile {
    fn finish(self: Box<Self>, ended: &RowsEnded<'_>) -> Result<Finished, RowFileError> {
        self.finish_with_rows(ended)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use ticktax_fixture::statement;
    use ticktax_model::document::Document;
    use ticktax_report::HtmlPage;

    use super::HtmlFile;

    #[test]
    fn a_page_appears_only_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it.html");
        fs::write(&path, "what was there").unwrap();
        let file = HtmlFile::create(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "what was there");
        let document: Document = statement().into();
        let finished = file.finish(&document).unwrap();
        assert!(finished.note.contains("it.html"), "{}", finished.note);
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            HtmlPage::default().finish(&document)
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_unfinished_page_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        drop(HtmlFile::create(&folder.path().join("it.html")).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn paths_that_cannot_be_files_are_refused_in_one_line() {
        for (path, why) in [
            ("-", "standard output"),
            ("/", "directory"),
            ("/nowhere/it.html", "directory does not exist"),
            ("/dev/null", "device"),
        ] {
            let error = HtmlFile::create(Path::new(path)).unwrap_err().to_string();
            assert!(error.contains(why) && error.lines().count() == 1, "{error}");
        }
    }
}
