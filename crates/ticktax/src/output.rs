//! What a verb leaves behind: its document on the screen or in a file, and files of its rows.

use std::path::Path;

use crate::files::{Finished, HtmlFile, RowFileError, RowFiles};
use ticktax_model::document::Document;
use ticktax_report::{Format, RowsEnded};

use crate::arguments::FileArguments;
use crate::failure::Failure;
use crate::terminal::{Terminal, require_writable};

/// Begins the files that were asked for, before anything is watched: one that cannot be made should
/// not cost a minute's wait.
pub(crate) fn begin(files: &FileArguments, output: Option<&Path>) -> Result<RowFiles, Failure> {
    let mut begun = RowFiles::default();
    for (format, path) in files.iter() {
        begun.add(*format, path)?;
    }
    if let Some(output) = output {
        require_writable(output)?;
    }
    Ok(begun)
}

/// Begins the page for a browser, where one was asked for, before anything is run.
pub(crate) fn begin_page(path: Option<&Path>) -> Result<Option<HtmlFile>, Failure> {
    Ok(path.map(HtmlFile::create).transpose()?)
}

/// Prints a document below what is said of its page for a browser, where there is one.
pub(crate) fn put(
    document: &Document,
    page: Option<HtmlFile>,
    (format, output): (Format, Option<&Path>),
    terminal: &Terminal,
) -> Result<(), Failure> {
    let written = page.map_or(Ok(()), |page| tell(page.finish(document), terminal));
    terminal.put(document, format, output).and(written)
}

/// Prints a document below what is said of its page for a browser.
pub(crate) fn put_page(
    page: Result<Finished, RowFileError>,
    (document, format): (&Document, Format),
    terminal: &Terminal,
) -> Result<(), Failure> {
    let written = tell(page, terminal);
    terminal.put(document, format, None).and(written)
}

/// Finishes the files, and prints the document below what is said of them: a first screen fills a terminal, and what
/// came after it would scroll its verdict away. A file that cannot be written is no reason to lose the page as well.
pub(crate) fn finish(
    ended: &RowsEnded<'_>,
    files: RowFiles,
    (format, output): (Format, Option<&Path>),
    terminal: &Terminal,
) -> Result<(), Failure> {
    let mut written = Ok(());
    for finished in files.finish(ended) {
        written = written.and(tell(finished, terminal));
    }
    terminal.put(ended.document, format, output).and(written)
}

/// Says what became of a file.
fn tell(finished: Result<Finished, RowFileError>, terminal: &Terminal) -> Result<(), Failure> {
    let finished = finished?;
    if let Some(warning) = finished.warning {
        terminal.complain(&warning);
    }
    terminal.remark(&finished.note);
    Ok(())
}
