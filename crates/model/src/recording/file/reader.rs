//! Reads a recording, a batch of rows at a time.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;

use super::checksum::{Checksums, Failure, Fetch, Told};
use super::column::{Batch, Column, Fault, Place};
use super::edges::{EdgeColumns, EdgePlaces};
use super::error::RecordingError;
use super::{schema, schema_1};
use crate::disk::decode;
use crate::recording::{Edge, Header, PacedFrame, Row, SCHEMA_VERSION, Sum};
use crate::{Cpu, Histogram, Kind, Nanos, Owner, Source, SourceId, SourceTable, Span, Thread};

/// The first and the last four bytes of a Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// Rows decoded at once: few enough to stay in the processor's cache.
const BATCH_ROWS: usize = 4096;

/// Reads a recording's file. Columns that it does not know are left alone.
pub struct RecordingReader {
    path: PathBuf,
    file: Box<dyn FileReader>,
    header: Header,
    places: Places,
    fetch: Box<Fetch>,
    /// Of the row groups; `None` for a file of schema 1, or of another program.
    checksums: Option<Checksums>,
}

impl fmt::Debug for RecordingReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingReader")
            .field("path", &self.path)
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

impl RecordingReader {
    /// Opens the recording at `path` and reads its header.
    ///
    /// # Errors
    /// Any [`RecordingError`] but those of writing: the file cannot be opened, is no Parquet file,
    /// is cut short, is not a recording, or is of a schema that this program does not read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, RecordingError> {
        let path = path.as_ref();
        let cannot_read = |error: io::Error| RecordingError::read(path, &error);
        let facts = fs::metadata(path).map_err(cannot_read)?;
        if !facts.is_dir() && !facts.is_file() {
            let why = "it is a device or a pipe, not a file; name a file".to_owned();
            return Err(RecordingError::Read {
                path: path.to_owned(),
                why,
            });
        }
        let mut file = File::open(path).map_err(cannot_read)?;
        let mut ends = Vec::new();
        (&file)
            .take(4)
            .read_to_end(&mut ends)
            .map_err(cannot_read)?;
        if facts.len() >= 8 {
            file.seek(SeekFrom::End(-4)).map_err(cannot_read)?;
            (&file)
                .take(4)
                .read_to_end(&mut ends)
                .map_err(cannot_read)?;
        }
        check_magic(path, &ends)?;
        let bytes = file.try_clone().map_err(cannot_read)?;
        Self::new(path, file, bytes)
    }

    /// As [`RecordingReader::open`], of a file that is in memory; `name` stands for its path in
    /// messages.
    ///
    /// # Errors
    /// Those of [`RecordingReader::open`].
    pub fn from_bytes(name: impl AsRef<Path>, bytes: Bytes) -> Result<Self, RecordingError> {
        let mut ends = bytes[..bytes.len().min(4)].to_vec();
        if bytes.len() >= 8 {
            ends.extend_from_slice(&bytes[bytes.len() - 4..]);
        }
        check_magic(name.as_ref(), &ends)?;
        Self::new(name.as_ref(), bytes.clone(), bytes)
    }

    /// Of a file that can be read by `chunks` and by `bytes`.
    fn new<R>(path: &Path, chunks: R, bytes: R) -> Result<Self, RecordingError>
    where
        R: ChunkReader + 'static,
    {
        let path = path.to_owned();
        let length = bytes.len();
        let fetch: Box<Fetch> =
            Box::new(move |start, length| decode(|| bytes.get_bytes(start, length)));
        let told = Checksums::read(length, &*fetch).map_err(|failure| match failure {
            Failure::Unreadable(why) => RecordingError::Read {
                path: path.clone(),
                why,
            },
            Failure::Footer => damaged(&path, FOOTER),
        })?;
        let file =
            decode(|| SerializedFileReader::new(chunks)).map_err(|why| RecordingError::Header {
                path: path.clone(),
                why,
            })?;
        let facts = file.metadata().file_metadata();
        let json = facts
            .key_value_metadata()
            .and_then(|entries| entries.iter().find(|entry| entry.key == schema::HEADER_KEY))
            .and_then(|entry| entry.value.as_deref())
            .ok_or_else(|| RecordingError::Foreign { path: path.clone() })?;
        let (header, names) = header(&path, json)?;
        let places =
            Places::find(facts.schema_descr(), names).map_err(|fault| name(&path, fault))?;
        let checksums = match told {
            Told::Parts(checksums) => Some(checksums),
            Told::Nothing => None,
            Told::Missing if names == Names::Schema1 => None,
            Told::Missing => return Err(damaged(&path, FOOTER)),
        };
        Ok(Self {
            path,
            file: Box::new(file),
            header,
            places,
            fetch,
            checksums,
        })
    }

    /// Everything about the recording but its rows.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        u64::try_from(self.file.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Gives every row to `each`, in the order in which they were written, with a table that holds
    /// the row's source; returns the table of all. It begins at the first row each time.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`], [`RecordingError::Column`] or [`RecordingError::UnknownWord`]
    /// when rows are damaged; the rows given before then are right.
    pub fn replay(
        &mut self,
        each: &mut dyn FnMut(&SourceTable, &Row),
    ) -> Result<SourceTable, RecordingError> {
        let mut known = Known::default();
        for index in 0..self.file.num_row_groups() {
            self.check(index)?;
            let group =
                decode(|| self.file.get_row_group(index)).map_err(|why| RecordingError::Read {
                    path: self.path.clone(),
                    why,
                })?;
            replay_group(&*group, &self.places, &mut known, each)
                .map_err(|fault| name(&self.path, fault))?;
        }
        Ok(known.table)
    }

    /// Compares the row group `index` with its checksum, where it has one.
    fn check(&self, index: usize) -> Result<(), RecordingError> {
        let Some(checksums) = &self.checksums else {
            return Ok(());
        };
        let right = checksums.check(index, &*self.fetch);
        let right = right.map_err(|why| RecordingError::Read {
            path: self.path.clone(),
            why,
        })?;
        if right {
            return Ok(());
        }
        let groups = self.file.metadata().row_groups();
        let rows = |groups: &[RowGroupMetaData]| -> i64 {
            groups.iter().map(RowGroupMetaData::num_rows).sum()
        };
        let (before, with) = (rows(&groups[..index]), rows(&groups[..=index]));
        let what = format!("rows {} to {with} are not what was written", before + 1);
        Err(damaged(&self.path, &what))
    }
}

/// What is said of a damaged footer.
const FOOTER: &str = "the header and the places of the columns are not what was written";

fn damaged(path: &Path, what: &str) -> RecordingError {
    RecordingError::Damaged {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}

/// Whether a file that begins and ends with these bytes is a Parquet file.
fn check_magic(path: &Path, ends: &[u8]) -> Result<(), RecordingError> {
    let path = || path.to_owned();
    let (first, last) = ends.split_at(ends.len().min(MAGIC.len()));
    if !MAGIC.starts_with(first) {
        if last == MAGIC {
            return Err(damaged(&path(), "its first bytes are not what was written"));
        }
        return Err(RecordingError::NotParquet { path: path() });
    }
    if last != MAGIC {
        return Err(RecordingError::Truncated { path: path() });
    }
    Ok(())
}

fn name(path: &Path, fault: Fault) -> RecordingError {
    let path = path.to_owned();
    match fault {
        Fault::Damaged { column, why } => RecordingError::Column { path, column, why },
        Fault::UnknownWord { column, word } => RecordingError::UnknownWord { path, column, word },
    }
}

/// How a file names its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Today,
    Schema1,
}

impl Names {
    /// The file's name of the column that today has the name `today`.
    fn of(self, today: &'static str) -> &'static str {
        match self {
            Self::Today => today,
            Self::Schema1 => schema_1::column(today),
        }
    }
}

/// Reads the header, whichever schema it is of, and finds out how that schema names the columns.
fn header(path: &Path, json: &str) -> Result<(Header, Names), RecordingError> {
    /// What every schema's header has.
    #[derive(serde::Deserialize)]
    struct Version {
        schema: u64,
    }
    let damaged = |error: serde_json::Error| RecordingError::Header {
        path: path.to_owned(),
        why: error.to_string(),
    };
    let found = serde_json::from_str::<Version>(json)
        .map_err(damaged)?
        .schema;
    match found {
        _ if found == u64::from(SCHEMA_VERSION) => {
            let header = serde_json::from_str(json).map_err(damaged)?;
            Ok((header, Names::Today))
        }
        1 => {
            let mut header = serde_json::from_str(json).map_err(damaged)?;
            schema_1::upgrade(&mut header);
            let header = serde_json::from_value(header).map_err(damaged)?;
            Ok((header, Names::Schema1))
        }
        _ if found > u64::from(SCHEMA_VERSION) => Err(RecordingError::Newer {
            path: path.to_owned(),
            found,
        }),
        _ => Err(RecordingError::UnknownSchema {
            path: path.to_owned(),
            found,
        }),
    }
}

/// Where the columns are.
struct Places {
    cpu: Place,
    start: Place,
    dur: Place,
    self_time: Place,
    kind: Place,
    source: Place,
    detail: Place,
    owner: Place,
    program: Place,
    pid: Place,
    tid: Place,
    count: Place,
    max: Place,
    histogram: Place,
    source_id: Place,
    /// Not in files of schema 1.
    due: Option<Place>,
    /// Not in files that were written before there were edges.
    edges: Option<EdgePlaces>,
}

impl Places {
    fn find(columns: &SchemaDescriptor, names: Names) -> Result<Self, Fault> {
        Ok(Self {
            cpu: Place::of::<Int32Type>(columns, names.of(schema::CPU))?,
            start: Place::of::<Int64Type>(columns, names.of(schema::START))?,
            dur: Place::of::<Int64Type>(columns, names.of(schema::DUR))?,
            self_time: Place::of::<Int64Type>(columns, names.of(schema::SELF))?,
            kind: Place::of::<ByteArrayType>(columns, names.of(schema::KIND))?,
            source: Place::of::<ByteArrayType>(columns, names.of(schema::SOURCE))?,
            detail: Place::of::<ByteArrayType>(columns, names.of(schema::DETAIL))?,
            owner: Place::of::<ByteArrayType>(columns, names.of(schema::OWNER))?,
            program: Place::of::<ByteArrayType>(columns, names.of(schema::PROGRAM))?,
            pid: Place::of::<Int32Type>(columns, names.of(schema::PID))?,
            tid: Place::of::<Int32Type>(columns, names.of(schema::TID))?,
            count: Place::of::<Int64Type>(columns, names.of(schema::COUNT))?,
            max: Place::of::<Int64Type>(columns, names.of(schema::MAX))?,
            histogram: Place::of::<ByteArrayType>(columns, names.of(schema::HISTOGRAM))?,
            source_id: Place::of::<Int32Type>(columns, names.of(schema::SOURCE_ID))?,
            due: match names {
                Names::Today => Some(Place::of::<Int64Type>(columns, schema::DUE)?),
                Names::Schema1 => None,
            },
            edges: EdgePlaces::find(columns)?,
        })
    }
}

/// The columns of a row group that say what a source is. They are decoded only at the rows where
/// a source appears for the first time.
struct Words {
    kind: Column<ByteArrayType>,
    source: Column<ByteArrayType>,
    detail: Column<ByteArrayType>,
    owner: Column<ByteArrayType>,
    program: Column<ByteArrayType>,
    pid: Column<Int32Type>,
    tid: Column<Int32Type>,
}

impl Words {
    fn open(group: &dyn RowGroupReader, places: &Places) -> Result<Self, Fault> {
        Ok(Self {
            kind: Column::open(group, &places.kind)?,
            source: Column::open(group, &places.source)?,
            detail: Column::open(group, &places.detail)?,
            owner: Column::open(group, &places.owner)?,
            program: Column::open(group, &places.program)?,
            pid: Column::open(group, &places.pid)?,
            tid: Column::open(group, &places.tid)?,
        })
    }

    /// The source of the row `row`, counted from the start of the group.
    fn at(&mut self, row: usize) -> Result<Source, Fault> {
        let kind = text(&mut self.kind, row)?;
        let kind = Kind::from_name(&kind).ok_or(Fault::UnknownWord {
            column: schema::KIND,
            word: kind,
        })?;
        let owner = text(&mut self.owner, row)?;
        let owner = Owner::from_name(&owner).ok_or(Fault::UnknownWord {
            column: schema::OWNER,
            word: owner,
        })?;
        let thread = match self.tid.at(row)?.copied() {
            None => None,
            Some(tid) => {
                let pid = self.pid.at(row)?.copied();
                let pid = pid.ok_or_else(|| self.pid.fault("a row has a tid but no pid"))?;
                Some(Thread {
                    pid,
                    tid,
                    program: text(&mut self.program, row)?.into(),
                })
            }
        };
        let name = text(&mut self.source, row)?.into();
        Ok(Source {
            kind,
            owner,
            name,
            detail: text(&mut self.detail, row)?.into(),
            thread,
        })
    }
}

/// The text in the row `row` of the column, counted from the start of the group.
fn text(column: &mut Column<ByteArrayType>, row: usize) -> Result<String, Fault> {
    let text = column
        .at(row)?
        .map(|bytes| std::str::from_utf8(bytes.data()).map(str::to_owned));
    match text {
        Some(Ok(text)) => Ok(text),
        Some(Err(_)) => Err(column.fault("a row is not UTF-8")),
        None => Err(column.fault("a row has no value")),
    }
}

/// The sources that appeared so far.
#[derive(Default)]
struct Known {
    table: SourceTable,
    /// By the file's number.
    ids: Vec<Option<SourceId>>,
}

impl Known {
    /// The id of the source with the file's number `number`, if it appeared before.
    fn get(&self, number: i32) -> Option<SourceId> {
        *self.ids.get(usize::try_from(number).ok()?)?
    }

    fn add(&mut self, number: i32, source: Source) -> Result<SourceId, Fault> {
        let place = u32::try_from(number)
            .ok()
            .filter(|&number| number < schema::SOURCES_MAX);
        let place = place.ok_or_else(|| {
            Fault::damaged(
                schema::SOURCE_ID,
                format!("{number} is not the number of a source"),
            )
        })? as usize;
        if self.ids.len() <= place {
            self.ids.resize(place + 1, None);
        }
        let id = self.table.intern(source);
        self.ids[place] = Some(id);
        Ok(id)
    }
}

/// Gives the rows of one group to `each`.
fn replay_group(
    group: &dyn RowGroupReader,
    places: &Places,
    known: &mut Known,
    each: &mut dyn FnMut(&SourceTable, &Row),
) -> Result<(), Fault> {
    let mut cpus = Column::<Int32Type>::open(group, &places.cpu)?;
    let mut starts = Column::<Int64Type>::open(group, &places.start)?;
    let mut durs = Column::<Int64Type>::open(group, &places.dur)?;
    let mut selfs = Column::<Int64Type>::open(group, &places.self_time)?;
    let mut counts = Column::<Int64Type>::open(group, &places.count)?;
    let mut maxima = Column::<Int64Type>::open(group, &places.max)?;
    let mut histograms = Column::<ByteArrayType>::open(group, &places.histogram)?;
    let mut numbers = Column::<Int32Type>::open(group, &places.source_id)?;
    let mut due_times = match &places.due {
        Some(place) if place.has_values(group) => Some(Column::<Int64Type>::open(group, place)?),
        _ => None,
    };
    let mut edges = match &places.edges {
        Some(places) => EdgeColumns::open(group, places)?,
        None => None,
    };
    let mut words = None;

    let all = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
    for first in (0..all).step_by(BATCH_ROWS) {
        let rows = BATCH_ROWS.min(all - first);
        let cpus = cpus.read_all(rows)?;
        let starts = starts.read_all(rows)?;
        let durs = durs.read_all(rows)?;
        let selfs = selfs.read_all(rows)?;
        let counts = counts.read_all(rows)?;
        let maxima = maxima.read_all(rows)?;
        let numbers = numbers.read_all(rows)?;
        let due_times = due_times.as_mut();
        let due_times = due_times.map(|times| times.read(rows)).transpose()?;
        let mut due_times = due_times.as_ref().map(Batch::iter);
        let effects = edges.as_mut().map(|edges| edges.read(rows)).transpose()?;
        let mut effects = effects.into_iter().flatten();
        for (row, histogram) in histograms.read(rows)?.iter().enumerate() {
            let source = if let Some(id) = known.get(numbers[row]) {
                id
            } else {
                let words = match &mut words {
                    Some(words) => words,
                    None => words.insert(Words::open(group, places)?),
                };
                known.add(numbers[row], words.at(first + row)?)?
            };
            let cpu = u32::try_from(cpus[row])
                .map_err(|_| Fault::damaged(schema::CPU, "a CPU's number is negative"))?;
            let span = Span {
                cpu: Cpu(cpu),
                start: Nanos(starts[row]),
                dur: Nanos(durs[row]),
                self_time: Nanos(selfs[row]),
                source,
            };
            let due = due_times.as_mut().and_then(Iterator::next).flatten();
            let effect = effects.next().flatten();
            let row = match (histogram, due, effect) {
                (None, None, None) => Row::Span(span),
                (None, None, Some(effect)) => Row::Edge(Edge { span, effect }),
                (None, Some(&due), _) => Row::Frame(PacedFrame {
                    span,
                    due: Nanos(due),
                }),
                (Some(bytes), ..) => Row::Sum(sum(span, counts[row], maxima[row], bytes)?),
            };
            each(&known.table, &row);
        }
    }
    Ok(())
}

/// The sum that a row with a histogram is.
fn sum(span: Span, count: i64, max: i64, bytes: &ByteArray) -> Result<Sum, Fault> {
    let wrong = |why: &str| Fault::damaged(schema::HISTOGRAM, why);
    let (buckets, rest) = bytes.data().as_chunks::<4>();
    if !rest.is_empty() || buckets.len() > Histogram::BUCKETS {
        return Err(wrong(
            "a histogram has no whole number of buckets, or too many",
        ));
    }
    let mut counts = [0; Histogram::BUCKETS];
    for (count, bucket) in counts.iter_mut().zip(buckets) {
        *count = u32::from_le_bytes(*bucket);
    }
    Ok(Sum {
        span,
        count: u64::try_from(count)
            .map_err(|_| Fault::damaged(schema::COUNT, "a count is negative"))?,
        max: Nanos(max),
        histogram: Histogram::from_counts(&counts)
            .ok_or_else(|| wrong("a histogram has too many buckets"))?,
    })
}
