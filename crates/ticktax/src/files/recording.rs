//! The recording written by `--save FILE`.

use std::path::{Path, PathBuf};

use ticktax_host::breaks;
use ticktax_model::SourceTable;
use ticktax_model::recording::{Row, RowSink};
use ticktax_report::RowsEnded;
use ticktax_store::recording::RecordingWriter;

use super::{FileFormat, Finished, RowFile, RowFileError};

pub(super) struct RecordingFormat;

impl FileFormat for RecordingFormat {
    fn option(&self) -> &'static str {
        "save"
    }

    fn about(&self) -> &'static str {
        "Save all collected data as a recording (a Parquet file) for `report` and `beats`"
    }

    fn create(&self, path: &Path) -> Result<Box<dyn RowFile>, RowFileError> {
        let writer = RecordingWriter::create(path).map_err(RowFileError::new)?;
        let writer = writer.with_breaks(breaks::take_break_if_due);
        let path = path.to_owned();
        Ok(Box::new(RecordingFile { path, writer }))
    }
}

struct RecordingFile {
    path: PathBuf,
    writer: RecordingWriter,
}

impl RowSink for RecordingFile {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.writer.row(sources, row);
    }
}

impl RowFile for RecordingFile {
    fn finish(self: Box<Self>, ended: &RowsEnded<'_>) -> Result<Finished, RowFileError> {
        let Self { path, writer } = *self;
        writer.finish(ended.header).map_err(RowFileError::new)?;
        Ok(Finished {
            note: format!(
                "Saved as {0}; `ticktax report {0}` prints it again.",
                path.display()
            ),
            warning: None,
        })
    }
}
