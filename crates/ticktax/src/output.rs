//! What a verb leaves behind: its document on the screen or in a file, and files of its rows.

use std::path::Path;

use ticktax_report::{Format, RowFiles, RowsEnded};

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
        match finished {
            Ok(finished) => {
                if let Some(warning) = finished.warning {
                    terminal.complain(&warning);
                }
                terminal.remark(&finished.note);
            }
            Err(error) => written = written.and(Err(error.into())),
        }
    }
    terminal.put(ended.document, format, output).and(written)
}
