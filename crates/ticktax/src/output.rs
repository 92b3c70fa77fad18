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

/// Prints the document, and finishes the files: a page that cannot be printed is no reason to lose a
/// recording as well.
pub(crate) fn finish(
    ended: &RowsEnded<'_>,
    files: RowFiles,
    (format, output): (Format, Option<&Path>),
    terminal: &Terminal,
) -> Result<(), Failure> {
    let mut result = terminal.put(ended.document, format, output);
    for finished in files.finish(ended) {
        match finished {
            Ok(finished) => {
                if let Some(warning) = finished.warning {
                    terminal.complain(&warning);
                }
                terminal.remark(&finished.note);
            }
            Err(error) => result = result.and(Err(error.into())),
        }
    }
    result
}
