//! The recording that `--save` asks for.

use std::path::PathBuf;

use ticktax_model::SourceTable;
use ticktax_model::recording::{Header, RecordingWriter, Row, RowSink};

use crate::failure::Failure;
use crate::terminal::Terminal;

/// A recording in the making.
pub(crate) struct SavedAs {
    path: PathBuf,
    writer: RecordingWriter,
}

impl SavedAs {
    pub(crate) fn create(path: PathBuf) -> Result<Self, Failure> {
        let writer = RecordingWriter::create(&path)?;
        Ok(Self { path, writer })
    }

    pub(crate) fn finish(self, header: &Header, terminal: &Terminal) -> Result<(), Failure> {
        self.writer.finish(header)?;
        terminal.remark(&format!(
            "Saved as {0}; `ticktax report {0}` prints it again.",
            self.path.display()
        ));
        Ok(())
    }
}

impl RowSink for SavedAs {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.writer.row(sources, row);
    }
}
