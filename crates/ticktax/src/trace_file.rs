//! `--perfetto FILE`: a trace beside the statement.

use std::fs::File;
use std::path::{Path, PathBuf};

use ticktax_model::SourceTable;
use ticktax_model::recording::{Row, RowSink};
use ticktax_model::statement::Statement;
use ticktax_report::Perfetto;

use crate::failure::Failure;
use crate::terminal::{Terminal, cannot_write};

/// A trace in the making.
pub(crate) struct TraceFile {
    path: PathBuf,
    trace: Perfetto<File>,
}

impl TraceFile {
    /// An empty trace at `path`.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            trace: Perfetto::new(file),
        })
    }

    /// Writes what is left of it, and says where it is.
    pub(crate) fn finish(
        self,
        sources: &SourceTable,
        statement: &Statement,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        let Self { path, trace } = self;
        let sums = trace
            .finish(sources, statement)
            .map_err(|error| cannot_write(&path, &error))?;
        if sums > 0 {
            terminal.complain(
                &"--perfetto: this recording keeps sums, and a trace shows spans; \
                                record with --keep spans",
            );
        }
        terminal.remark(&format!(
            "Traced to {}; open it at https://ui.perfetto.dev.",
            path.display()
        ));
        Ok(())
    }
}

impl RowSink for TraceFile {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.trace.row(sources, row);
    }
}
