//! The Perfetto trace written by `--perfetto FILE`. It appears under its name only once it is
//! complete.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use ticktax_model::SourceTable;
use ticktax_model::recording::{Row, RowSink};
use ticktax_report::{Perfetto, RowsEnded};
use ticktax_store::disk::{Temporary, creation_words, error_words};

use super::{FileFormat, Finished, RowFile, RowFileError};

pub(crate) struct TraceFormat;

impl FileFormat for TraceFormat {
    fn option(&self) -> &'static str {
        "perfetto"
    }

    fn about(&self) -> &'static str {
        "Also write all recorded events to a trace file for Perfetto (<https://ui.perfetto.dev>)"
    }

    fn create(&self, path: &Path) -> Result<Box<dyn RowFile>, RowFileError> {
        let cannot = |error: io::Error| {
            let why = creation_words(path, &error);
            RowFileError::new(format_args!(
                "cannot create the trace {}: {why}",
                path.display()
            ))
        };
        let temporary = Temporary::beside(path).map_err(cannot)?;
        let trace = Perfetto::new(temporary.handle().map_err(cannot)?);
        Ok(Box::new(TraceFile {
            path: path.to_owned(),
            trace,
            temporary,
        }))
    }
}

struct TraceFile {
    path: PathBuf,
    trace: Perfetto<File>,
    temporary: Temporary,
}

impl RowSink for TraceFile {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.trace.row(sources, row);
    }
}

impl RowFile for TraceFile {
    fn finish(self: Box<Self>, ended: &RowsEnded<'_>) -> Result<Finished, RowFileError> {
        let Self {
            path,
            trace,
            temporary,
        } = *self;
        let written = trace.finish(ended.sources, ended.document, &ended.header.code_files);
        let sums = written.and_then(|sums| temporary.appear().map(|()| sums));
        let sums = sums.map_err(|error| {
            let why = error_words(&error);
            RowFileError::new(format_args!(
                "cannot write the trace {}: {why}",
                path.display()
            ))
        })?;
        let warning = "--perfetto: this recording has only sums, but a trace needs spans; record \
            with --keep \
                       spans";
        Ok(Finished {
            note: format!(
                "Traced to {}; open it at https://ui.perfetto.dev.",
                path.display()
            ),
            warning: (sums > 0).then(|| warning.to_owned()),
        })
    }
}
