//! Writes a recording to memory and reads it from there.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use parquet::file::writer::SerializedFileWriter;
use ticktax_model::SourceTable;
use ticktax_model::recording::{Header, Row, RowSink};

use super::checksum::SummedOutput;
use super::error::RecordingError;
use super::reader::RecordingReader;
use super::schema;
use super::writer::{Buffer, finish, header_json, too_many_sources, write_error};

/// A recording in memory, in the compressed form that a file would have. A row takes about 10
/// bytes.
///
/// Rows arrive through [`RowSink`]. [`RecordingBuffer::finish`] returns the first error.
pub struct RecordingBuffer {
    name: PathBuf,
    file: SerializedFileWriter<SummedOutput>,
    bytes: Shared,
    buffer: Buffer,
    failed: Option<RecordingError>,
}

impl fmt::Debug for RecordingBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingBuffer")
            .field("name", &self.name)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl RecordingBuffer {
    /// Starts an empty recording. Messages use `name` as the path of the file.
    ///
    /// # Errors
    /// Returns [`RecordingError::Write`] if the Parquet library fails.
    pub fn new(name: impl Into<PathBuf>) -> Result<Self, RecordingError> {
        let name = name.into();
        let bytes = Shared::default();
        let output = SummedOutput::new(Box::new(bytes.clone()));
        let file = schema::message()
            .and_then(|message| SerializedFileWriter::new(output, message, schema::properties()))
            .map_err(|error| write_error(&name, &error))?;
        Ok(Self {
            name,
            file,
            bytes,
            buffer: Buffer::default(),
            failed: None,
        })
    }

    /// Adds `header` and returns a reader for the recording.
    ///
    /// # Errors
    /// Returns [`RecordingError::Write`] if there were too many sources, [`RecordingError::Header`]
    /// if the header contains a number that is not finite, and [`RecordingError::Refused`] if the
    /// header exceeds a limit.
    pub fn finish(mut self, header: &Header) -> Result<RecordingReader, RecordingError> {
        self.flush();
        if let Some(error) = self.failed {
            return Err(error);
        }
        let json = header_json(header).map_err(|why| RecordingError::Header {
            path: self.name.clone(),
            why: why.to_string(),
        })?;
        finish(&mut self.file, json).map_err(|error| write_error(&self.name, &error))?;
        drop(self.file);
        let bytes = std::mem::take(&mut *self.bytes.lock());
        RecordingReader::from_bytes(self.name, bytes.into())
    }

    fn flush(&mut self) {
        if self.failed.is_some() || self.buffer.is_empty() {
            return;
        }
        if let Err(error) = self.buffer.write(&mut self.file, || {}) {
            self.failed = Some(write_error(&self.name, &error));
            self.buffer = Buffer::default();
        }
    }
}

impl RowSink for RecordingBuffer {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        if self.failed.is_some() {
            return;
        }
        if !self.buffer.push(sources, row) {
            self.failed = Some(too_many_sources(&self.name));
        }
        if self.buffer.is_full() {
            self.flush();
        }
    }
}

/// Bytes that the Parquet writer appends to and that its owner takes afterwards.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
