//! A verb's output: prints its document or writes it to a file, and finishes the files that
//! received its rows.

use std::path::Path;

use crate::files::{Finished, HtmlFile, RowFileError, RowFiles};
use ticktax_model::document::Document;
use ticktax_report::{Format, RowsEnded};

use crate::arguments::FileArguments;
use crate::failure::Failure;
use crate::terminal::{Terminal, require_writable};

/// Where to print a document, and in which format.
#[derive(Clone, Copy)]
pub(crate) struct Output<'a> {
    format: Format,
    /// The file to write, or `None` for standard output.
    path: Option<&'a Path>,
}

impl<'a> Output<'a> {
    pub(crate) fn new(format: Format, path: Option<&'a Path>) -> Self {
        Self { format, path }
    }

    pub(crate) fn to_stdout(format: Format) -> Self {
        Self { format, path: None }
    }

    /// Fails if the file cannot be written.
    pub(crate) fn require_writable(self) -> Result<(), Failure> {
        self.path.map_or(Ok(()), require_writable)
    }
}

/// Creates the requested files before anything runs, so that an unwritable path does not waste a
/// measurement.
pub(crate) fn begin(files: &FileArguments, output: Option<&Path>) -> Result<RowFiles, Failure> {
    let mut created = RowFiles::default();
    for (format, path) in files.iter() {
        created.add(*format, path)?;
    }
    if let Some(output) = output {
        require_writable(output)?;
    }
    Ok(created)
}

pub(crate) fn begin_page(path: Option<&Path>) -> Result<Option<HtmlFile>, Failure> {
    Ok(path.map(HtmlFile::create).transpose()?)
}

/// Prints a document. If there is an HTML page, finishes that first and prints a note about it.
pub(crate) fn put(
    document: &Document,
    page: Option<HtmlFile>,
    output: Output<'_>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let written = page.map_or(Ok(()), |page| report_file(page.finish(document), terminal));
    terminal
        .put(document, output.format, output.path)
        .and(written)
}

pub(crate) fn put_page(
    page: Result<Finished, RowFileError>,
    document: &Document,
    format: Format,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let written = report_file(page, terminal);
    terminal.put(document, format, None).and(written)
}

/// Finishes the files before printing the document, because notes about the files would otherwise
/// come last and scroll the verdict off the first screen. The document is printed even if a file
/// cannot be written.
pub(crate) fn finish(
    ended: &RowsEnded<'_>,
    files: RowFiles,
    output: Output<'_>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let written = finish_files(ended, files, terminal);
    terminal
        .put(ended.document, output.format, output.path)
        .and(written)
}

pub(crate) fn finish_files(
    ended: &RowsEnded<'_>,
    files: RowFiles,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let mut written = Ok(());
    for finished in files.finish(ended) {
        written = written.and(report_file(finished, terminal));
    }
    written
}

fn report_file(
    finished: Result<Finished, RowFileError>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let finished = finished?;
    if let Some(warning) = finished.warning {
        terminal.complain(&warning);
    }
    terminal.remark(&finished.note);
    Ok(())
}
