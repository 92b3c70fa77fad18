//! Writes a recording, one row group at a time.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ticktax_model::recording::{Effect, Header, Row, RowSink, SCHEMA_VERSION};
use ticktax_model::{Histogram, Source, SourceId, SourceTable, Span};

use super::checksum::{self, SummedOutput};
use super::error::RecordingError;
use super::schema;
use crate::disk::{Folder, Temporary, is_full};
use crate::parquet_file::{parquet_words, put_cells};

/// Function called while a row group is encoded, so that the thread can take breaks.
type Between = fn();

/// Number of rows after which [`Between`] is called. Encoding them takes less than 100 µs.
const BETWEEN_ROWS: usize = 512;

/// A writer for a recording, whose file appears under its final name once it is complete.
///
/// Rows arrive through [`RowSink`]. A write error does not interrupt the caller, who still has to
/// print a statement. Instead, later rows are dropped, [`RecordingWriter::error`] reports the
/// error, and [`RecordingWriter::finish`] returns it. Until `finish` succeeds, the disk contains at
/// most a hidden file called `.NAME.PID-N.part`, which remains only if the process is killed.
pub struct RecordingWriter {
    path: PathBuf,
    // Declared before `temporary`, so that everything is flushed before the file is removed.
    file: SerializedFileWriter<SummedOutput>,
    temporary: Temporary,
    buffer: Buffer,
    between: Between,
    failed: Option<RecordingError>,
}

impl fmt::Debug for RecordingWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingWriter")
            .field("path", &self.path)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl RecordingWriter {
    /// Starts a recording that will replace any file at `path`.
    ///
    /// # Errors
    /// Returns [`RecordingError::Create`] if the directory does not exist or is not writable, or if
    /// `path` is a directory or device. Returns [`RecordingError::Write`] if the disk is full.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, RecordingError> {
        Self::create_through(path.as_ref(), |file| Box::new(file))
    }

    /// Starts a recording that will appear in `folder` as `name`, readable only by its owner.
    ///
    /// # Errors
    /// Returns the errors of [`RecordingWriter::create`].
    pub fn create_in_folder(folder: Folder, name: &OsStr) -> Result<Self, RecordingError> {
        let path = folder.path().join(name);
        let temporary = Temporary::in_folder(folder, name, 0o600);
        Self::create_in(&path, temporary, |file| Box::new(file))
    }

    /// Starts a recording like [`RecordingWriter::create`], but passes the output through `wrap`.
    /// Tests use it to simulate a full disk.
    pub(super) fn create_through(
        path: &Path,
        wrap: impl FnOnce(File) -> Box<dyn Write + Send>,
    ) -> Result<Self, RecordingError> {
        Self::create_in(path, Temporary::beside(path), wrap)
    }

    fn create_in(
        path: &Path,
        temporary: io::Result<Temporary>,
        wrap: impl FnOnce(File) -> Box<dyn Write + Send>,
    ) -> Result<Self, RecordingError> {
        let cannot_create = |error: io::Error| RecordingError::create(path, &error);
        let temporary = temporary.map_err(cannot_create)?;
        let output = SummedOutput::new(wrap(temporary.handle().map_err(cannot_create)?));
        let file = schema::message()
            .and_then(|message| SerializedFileWriter::new(output, message, schema::properties()))
            .map_err(|error| write_error(path, &error))?;
        let path = path.to_owned();
        Ok(Self {
            path,
            file,
            temporary,
            buffer: Buffer::default(),
            between: || {},
            failed: None,
        })
    }

    /// Makes the writer call `between` after every few rows that it encodes. Encoding a row group
    /// takes tens of milliseconds of CPU time, during which other programs might have to wait.
    #[must_use]
    pub fn with_breaks(mut self, between: fn()) -> Self {
        self.between = between;
        self
    }

    /// Returns the error that kept the recording from being written, if any.
    pub fn error(&self) -> Option<&RecordingError> {
        self.failed.as_ref()
    }

    /// Writes `header` and the remaining rows, syncs the file to disk, and gives it its final name.
    /// The header always gets the schema version of this program.
    ///
    /// # Errors
    /// Returns the first error since the recording started: [`RecordingError::Write`], or
    /// [`RecordingError::Header`] if the header contains a number that is not finite. The file then
    /// does not appear, and any existing file stays unchanged.
    pub fn finish(mut self, header: &Header) -> Result<(), RecordingError> {
        self.between = || {};
        self.flush();
        if let Some(error) = self.failed {
            return Err(error);
        }
        let json = header_json(header).map_err(|why| RecordingError::Header {
            path: self.path.clone(),
            why: why.to_string(),
        })?;
        finish(&mut self.file, json).map_err(|error| write_error(&self.path, &error))?;
        drop(self.file);
        self.temporary
            .appear()
            .map_err(|error| RecordingError::write(&self.path, &error))
    }

    fn flush(&mut self) {
        if self.failed.is_some() || self.buffer.is_empty() {
            return;
        }
        if let Err(error) = self.buffer.write(&mut self.file, self.between) {
            self.failed = Some(write_error(&self.path, &error));
            self.buffer = Buffer::default();
        }
    }
}

impl RowSink for RecordingWriter {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        if self.failed.is_some() {
            return;
        }
        if !self.buffer.push(sources, row) {
            self.failed = Some(too_many_sources(&self.path));
        }
        if self.buffer.is_full() {
            self.flush();
        }
    }
}

pub(super) fn too_many_sources(path: &Path) -> RecordingError {
    RecordingError::Write {
        path: path.to_owned(),
        why: format!(
            "it has more than {} sources; record fewer programs",
            schema::SOURCES_MAX
        ),
        full: false,
    }
}

/// Writes the footer, which contains the header and the checksums.
pub(super) fn finish(
    file: &mut SerializedFileWriter<SummedOutput>,
    json: String,
) -> Result<(), ParquetError> {
    let entry = |key: &str, value| KeyValue::new(key.to_owned(), Some(value));
    let checksums = file.inner_mut().begin_footer();
    file.append_key_value_metadata(entry(schema::HEADER_KEY, json));
    file.append_key_value_metadata(entry(checksum::KEY, checksums));
    file.finish()?;
    file.inner_mut().finish()?;
    Ok(())
}

pub(super) fn write_error(path: &Path, error: &ParquetError) -> RecordingError {
    let kind = match error {
        ParquetError::External(inner) => inner.downcast_ref().map(io::Error::kind),
        _ => None,
    };
    RecordingError::Write {
        path: path.to_owned(),
        why: parquet_words(error),
        full: kind.is_some_and(is_full),
    }
}

/// Returns the header as JSON that a reader can parse. Fails if the header contains a number that
/// is not finite, because JSON cannot represent such numbers.
pub(super) fn header_json(header: &Header) -> Result<String, serde_json::Error> {
    let header = Header {
        schema: SCHEMA_VERSION,
        ..header.clone()
    };
    let json = serde_json::to_string(&header)?;
    serde_json::from_str::<Header>(&json)?;
    Ok(json)
}

/// Words that describe a source, as stored in columns.
struct Words {
    kind: ByteArray,
    source: ByteArray,
    detail: ByteArray,
    owner: ByteArray,
    program: Option<ByteArray>,
    pid: Option<i32>,
    tid: Option<i32>,
}

impl From<&Source> for Words {
    fn from(source: &Source) -> Self {
        let thread = source.thread.as_ref();
        Self {
            kind: source.kind.name().into(),
            source: (&*source.name).into(),
            detail: (&*source.detail).into(),
            owner: source.owner.name().into(),
            program: thread.map(|thread| (&*thread.program).into()),
            pid: thread.map(|thread| thread.pid),
            tid: thread.map(|thread| thread.tid),
        }
    }
}

/// A writer reserves memory for this many sources. When a list of many sources grows, it can take
/// milliseconds to copy it. Reserved memory is not used until it is needed.
const SOURCES: usize = 1 << 15;

/// Sources written so far, each with its number in the file.
struct Sources {
    table: SourceTable,
    words: Vec<Words>,
    /// Ids in `table`, indexed by the caller's id. They are only hints, because the caller may use
    /// several tables.
    hints: Vec<Option<SourceId>>,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            table: SourceTable::with_capacity(SOURCES),
            words: Vec::with_capacity(SOURCES),
            hints: Vec::with_capacity(SOURCES),
        }
    }
}

impl Sources {
    /// Returns the number in the file for the source with `id` in the caller's table `sources`;
    /// `None` if there are too many sources.
    fn number(&mut self, sources: &SourceTable, id: SourceId) -> Option<i32> {
        let source = sources.get(id);
        let place = id.0 as usize;
        // The comparison is cheap, because equal names usually share memory.
        if let Some(&Some(known)) = self.hints.get(place)
            && self.table.get(known) == source
        {
            return i32::try_from(known.0).ok();
        }
        let known = self.table.intern(source.clone());
        if known.0 >= schema::SOURCES_MAX {
            return None;
        }
        if self.words.len() < self.table.len() {
            self.words.push(source.into());
        }
        if self.hints.len() <= place {
            self.hints.resize(place + 1, None);
        }
        self.hints[place] = Some(known);
        i32::try_from(known.0).ok()
    }
}

/// The columns of a row group, written in order.
struct Columns<'c, 'g> {
    group: &'c mut SerializedRowGroupWriter<'g, SummedOutput>,
    between: Between,
}

impl Columns<'_, '_> {
    /// Writes the next column, in which every row has a value.
    fn required<T: DataType>(
        &mut self,
        cells: impl Iterator<Item = T::T>,
    ) -> Result<(), ParquetError> {
        self.put::<T>(false, cells.map(Some))
    }

    /// Writes the next column, in which rows may lack a value.
    fn optional<T: DataType>(
        &mut self,
        cells: impl Iterator<Item = Option<T::T>>,
    ) -> Result<(), ParquetError> {
        self.put::<T>(true, cells)
    }

    fn put<T: DataType>(
        &mut self,
        optional: bool,
        cells: impl Iterator<Item = Option<T::T>>,
    ) -> Result<(), ParquetError> {
        let between = self.between;
        let cells = cells.enumerate().map(|(row, cell)| {
            if row % BETWEEN_ROWS == BETWEEN_ROWS - 1 {
                between();
            }
            cell
        });
        put_cells::<T, _>(self.group, optional, cells)
    }
}

/// Returns the value of each row, from the rows' levels and the values of rows whose level is 1.
fn cells<T: Clone>(levels: &[i16], values: &[T]) -> impl Iterator<Item = Option<T>> {
    let mut values = values.iter();
    levels.iter().map(move |&level| match level {
        0 => None,
        _ => values.next().cloned(),
    })
}

/// Rows of the next row group, stored by column.
#[derive(Default)]
pub(super) struct Buffer {
    sources: Sources,
    cpu: Vec<i32>,
    start: Vec<i64>,
    dur: Vec<i64>,
    self_time: Vec<i64>,
    count: Vec<i64>,
    max: Vec<i64>,
    source: Vec<i32>,
    histograms: Vec<ByteArray>,
    /// One level for each row: 1 if the row has a histogram.
    histogram_levels: Vec<i16>,
    due: Vec<i64>,
    /// One level for each row: 1 if the row is a frame.
    due_levels: Vec<i16>,
    edges: Edges,
}

impl Buffer {
    /// Maximum number of histograms in a row group. It keeps the memory for long recordings of sums
    /// to a few MiB.
    const HISTOGRAMS: usize = 8 * 1024;

    pub(super) fn is_empty(&self) -> bool {
        self.cpu.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.cpu.len() >= schema::GROUP_ROWS || self.histograms.len() >= Self::HISTOGRAMS
    }

    /// Adds a row and returns whether that succeeded. It fails only if there are too many sources.
    pub(super) fn push(&mut self, sources: &SourceTable, row: &Row) -> bool {
        let Some(number) = self.sources.number(sources, row.source()) else {
            return false;
        };
        let &Span {
            cpu,
            start,
            dur,
            self_time,
            ..
        } = row.span();
        let (count, max) = match row {
            Row::Span(_) | Row::Frame(_) => (1, dur),
            Row::Edge(_) => (0, dur),
            Row::Sum(sum) => (i64::try_from(sum.count).unwrap_or(i64::MAX), sum.max),
        };
        self.cpu.push(i32::try_from(cpu.0).unwrap_or(i32::MAX));
        self.start.push(start.0);
        self.dur.push(dur.0);
        self.self_time.push(self_time.0);
        self.count.push(count);
        self.max.push(max.0);
        self.source.push(number);
        self.histogram_levels
            .push(i16::from(matches!(row, Row::Sum(_))));
        if let Row::Sum(sum) = row {
            self.histograms.push(histogram_bytes(&sum.histogram));
        }
        self.due_levels
            .push(i16::from(matches!(row, Row::Frame(_))));
        if let Row::Frame(frame) = row {
            self.due.push(frame.due.0);
        }
        self.edges.push(match row {
            Row::Edge(edge) => Some(&edge.effect),
            _ => None,
        });
        true
    }

    /// Writes all rows as one row group and clears the buffer. Calls `between` every few rows.
    pub(super) fn write(
        &mut self,
        file: &mut SerializedFileWriter<SummedOutput>,
        between: Between,
    ) -> Result<(), ParquetError> {
        let mut row_group = file.next_row_group()?;
        let group = &mut Columns {
            group: &mut row_group,
            between,
        };
        let all = &self.sources.words;
        let words = || {
            self.source
                .iter()
                .filter_map(|&id| all.get(usize::try_from(id).ok()?))
        };
        let text = |pick: fn(&Words) -> &ByteArray| words().map(move |words| pick(words).clone());

        group.required::<Int32Type>(self.cpu.iter().copied())?;
        group.required::<Int64Type>(self.start.iter().copied())?;
        group.required::<Int64Type>(self.dur.iter().copied())?;
        group.required::<Int64Type>(self.self_time.iter().copied())?;
        group.required::<ByteArrayType>(text(|words| &words.kind))?;
        group.required::<ByteArrayType>(text(|words| &words.source))?;
        group.required::<ByteArrayType>(text(|words| &words.detail))?;
        group.required::<ByteArrayType>(text(|words| &words.owner))?;
        // A row has either all three values about its thread or none of them.
        group.optional::<ByteArrayType>(words().map(|words| words.program.clone()))?;
        group.optional::<Int32Type>(words().map(|words| words.pid))?;
        group.optional::<Int32Type>(words().map(|words| words.tid))?;
        group.required::<Int64Type>(self.count.iter().copied())?;
        group.required::<Int64Type>(self.max.iter().copied())?;
        group.optional::<ByteArrayType>(cells(&self.histogram_levels, &self.histograms))?;
        group.required::<Int32Type>(self.source.iter().copied())?;
        group.optional::<Int64Type>(cells(&self.due_levels, &self.due))?;
        self.edges.write(group)?;
        row_group.close()?;
        file.flush()?;
        file.inner_mut().end_part();

        for numbers in [&mut self.cpu, &mut self.source] {
            numbers.clear();
        }
        for times in [
            &mut self.start,
            &mut self.dur,
            &mut self.self_time,
            &mut self.count,
            &mut self.max,
            &mut self.due,
        ] {
            times.clear();
        }
        self.histograms.clear();
        self.histogram_levels.clear();
        self.due_levels.clear();
        Ok(())
    }
}

/// Columns that have values only for edges. Each has one level for each row: 1 if the row has a
/// value.
#[derive(Default)]
struct Edges {
    kinds: Vec<ByteArray>,
    kind_levels: Vec<i16>,
    tids: Vec<i32>,
    tid_levels: Vec<i16>,
    names: Vec<ByteArray>,
    name_levels: Vec<i16>,
}

impl Edges {
    /// Adds the effect of the next row, or `None` if the row is not an edge.
    fn push(&mut self, effect: Option<&Effect>) {
        let (mut tid, mut name) = (None, None);
        match effect {
            Some(Effect::Woke(thread) | Effect::Started(thread)) => tid = Some(*thread),
            Some(
                Effect::Queued(to)
                | Effect::Raised(to)
                | Effect::Sampled(to)
                | Effect::Profiled(to)
                | Effect::Waited(to),
            ) => name = Some(to),
            None => {}
        }
        self.kind_levels.push(i16::from(effect.is_some()));
        self.tid_levels.push(i16::from(tid.is_some()));
        self.name_levels.push(i16::from(name.is_some()));
        self.kinds
            .extend(effect.map(|effect| ByteArray::from(effect.kind().name())));
        self.tids.extend(tid);
        self.names.extend(name.map(|name| ByteArray::from(&**name)));
    }

    /// Writes the edge columns of a row group and clears them.
    fn write(&mut self, group: &mut Columns<'_, '_>) -> Result<(), ParquetError> {
        group.optional::<ByteArrayType>(cells(&self.kind_levels, &self.kinds))?;
        group.optional::<Int32Type>(cells(&self.tid_levels, &self.tids))?;
        group.optional::<ByteArrayType>(cells(&self.name_levels, &self.names))?;
        for levels in [
            &mut self.kind_levels,
            &mut self.tid_levels,
            &mut self.name_levels,
        ] {
            levels.clear();
        }
        self.kinds.clear();
        self.tids.clear();
        self.names.clear();
        Ok(())
    }
}

/// Encodes the counts of a histogram as little-endian 32-bit numbers, without trailing zeros. The
/// counts of a one-second window fit into 32 bits.
fn histogram_bytes(histogram: &Histogram) -> ByteArray {
    let counts = histogram.counts();
    let used = counts
        .iter()
        .rposition(|&count| count != 0)
        .map_or(0, |last| last + 1);
    counts[..used]
        .iter()
        .flat_map(|&count| u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes())
        .collect::<Vec<u8>>()
        .into()
}
