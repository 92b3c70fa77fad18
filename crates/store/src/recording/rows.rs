//! Finds the columns in a file, and decodes the rows of a row group.

use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::reader::RowGroupReader;
use parquet::schema::types::SchemaDescriptor;
use ticktax_model::recording::{Edge, PacedFrame, Row, Sum};
use ticktax_model::{
    Cpu, Histogram, Kind, Nanos, Owner, Source, SourceId, SourceTable, Span, Thread,
};

use super::column::{Batch, Column, ColumnPosition, Fault};
use super::edges::{EdgeColumns, EdgePlaces};
use super::limits::{Numbers, RowLimits, short};
use super::schema;
use crate::parquet_file::Bounds;

/// Number of rows decoded at a time, small enough for the batch to fit into the CPU's cache.
const BATCH_ROWS: usize = 4096;

/// Positions of the columns in the file.
pub(super) struct Places {
    cpu: ColumnPosition,
    start: ColumnPosition,
    dur: ColumnPosition,
    self_time: ColumnPosition,
    kind: ColumnPosition,
    source: ColumnPosition,
    detail: ColumnPosition,
    owner: ColumnPosition,
    program: ColumnPosition,
    pid: ColumnPosition,
    tid: ColumnPosition,
    count: ColumnPosition,
    max: ColumnPosition,
    histogram: ColumnPosition,
    source_id: ColumnPosition,
    due: ColumnPosition,
    /// Positions of the edge columns; `None` if the file was written before edges were introduced.
    edges: Option<EdgePlaces>,
}

impl Places {
    pub(super) fn find(columns: &SchemaDescriptor) -> Result<Self, Fault> {
        Ok(Self {
            cpu: ColumnPosition::find::<Int32Type>(columns, schema::CPU)?,
            start: ColumnPosition::find::<Int64Type>(columns, schema::START)?,
            dur: ColumnPosition::find::<Int64Type>(columns, schema::DUR)?,
            self_time: ColumnPosition::find::<Int64Type>(columns, schema::SELF)?,
            kind: ColumnPosition::find::<ByteArrayType>(columns, schema::KIND)?,
            source: ColumnPosition::find::<ByteArrayType>(columns, schema::SOURCE)?,
            detail: ColumnPosition::find::<ByteArrayType>(columns, schema::DETAIL)?,
            owner: ColumnPosition::find::<ByteArrayType>(columns, schema::OWNER)?,
            program: ColumnPosition::find::<ByteArrayType>(columns, schema::PROGRAM)?,
            pid: ColumnPosition::find::<Int32Type>(columns, schema::PID)?,
            tid: ColumnPosition::find::<Int32Type>(columns, schema::TID)?,
            count: ColumnPosition::find::<Int64Type>(columns, schema::COUNT)?,
            max: ColumnPosition::find::<Int64Type>(columns, schema::MAX)?,
            histogram: ColumnPosition::find::<ByteArrayType>(columns, schema::HISTOGRAM)?,
            source_id: ColumnPosition::find::<Int32Type>(columns, schema::SOURCE_ID)?,
            due: ColumnPosition::find::<Int64Type>(columns, schema::DUE)?,
            edges: EdgePlaces::find(columns)?,
        })
    }
}

impl Places {
    pub(super) fn indexes(&self) -> impl Iterator<Item = usize> {
        let always = [
            &self.cpu,
            &self.start,
            &self.dur,
            &self.self_time,
            &self.kind,
            &self.source,
            &self.detail,
            &self.owner,
            &self.program,
            &self.pid,
            &self.tid,
            &self.count,
            &self.max,
            &self.histogram,
            &self.source_id,
            &self.due,
        ];
        let edges = self.edges.as_ref().map(EdgePlaces::indexes);
        let always = always.map(ColumnPosition::index).into_iter();
        always.chain(edges.into_iter().flatten())
    }
}

/// Columns that describe sources. They are decoded only for rows where a source appears for the
/// first time.
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

    fn at(&mut self, row: usize, limits: &mut RowLimits) -> Result<Source, Fault> {
        let kind = word(&mut self.kind, row)?;
        let kind = Kind::from_name(&kind).ok_or(Fault::UnknownWord {
            column: schema::KIND,
            word: kind,
        })?;
        let owner = word(&mut self.owner, row)?;
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
                    program: text(&mut self.program, row, limits)?.into(),
                })
            }
        };
        let name = text(&mut self.source, row, limits)?.into();
        Ok(Source {
            kind,
            owner,
            name,
            detail: text(&mut self.detail, row, limits)?.into(),
            thread,
        })
    }
}

fn text(
    column: &mut Column<ByteArrayType>,
    row: usize,
    limits: &mut RowLimits,
) -> Result<String, Fault> {
    let name = column.name();
    let text = match column.at(row)? {
        Some(bytes) => {
            limits.take_name(name, bytes.data())?;
            Some(std::str::from_utf8(bytes.data()).map(str::to_owned))
        }
        None => None,
    };
    match text {
        Some(Ok(text)) => Ok(text),
        Some(Err(_)) => Err(column.fault("a row is not UTF-8")),
        None => Err(column.fault("a row has no value")),
    }
}

/// Returns a text like [`text`]. The column must have few distinct words. Longer words are cut off.
fn word(column: &mut Column<ByteArrayType>, row: usize) -> Result<String, Fault> {
    let bytes = column.at(row)?.map(|bytes| short(bytes.data()));
    let word = bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    word.ok_or_else(|| column.fault("a row has no value"))
}

/// Sources seen so far, and what is left of the file's limits.
pub(super) struct Known {
    /// Table of all sources. Rows use its ids.
    pub(super) table: SourceTable,
    /// Ids in `table`, indexed by the number of the source in the file.
    ids: Vec<Option<SourceId>>,
    limits: RowLimits,
}

impl Known {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            table: SourceTable::default(),
            ids: Vec::new(),
            limits: RowLimits::new(bounds),
        }
    }

    /// Returns the id of the source with this `number` in the file; `None` if the source has not
    /// appeared yet.
    fn get(&self, number: i32) -> Option<SourceId> {
        *self.ids.get(usize::try_from(number).ok()?)?
    }

    fn add(&mut self, number: i32, source: Source) -> Result<SourceId, Fault> {
        let place = usize::try_from(number).map_err(|_| {
            Fault::damaged(
                schema::SOURCE_ID,
                format!("{number} is not a valid source number"),
            )
        })?;
        self.limits.check_source(place)?;
        if self.ids.len() <= place {
            self.ids.resize(place + 1, None);
        }
        let id = self.table.intern(source);
        self.ids[place] = Some(id);
        Ok(id)
    }
}

/// Columns that are decoded for every row.
struct Columns {
    cpus: Column<Int32Type>,
    starts: Column<Int64Type>,
    durs: Column<Int64Type>,
    selfs: Column<Int64Type>,
    counts: Column<Int64Type>,
    maxima: Column<Int64Type>,
    histograms: Column<ByteArrayType>,
    numbers: Column<Int32Type>,
    due_times: Option<Column<Int64Type>>,
    edges: Option<EdgeColumns>,
}

impl Columns {
    fn open(group: &dyn RowGroupReader, places: &Places) -> Result<Self, Fault> {
        Ok(Self {
            cpus: Column::open(group, &places.cpu)?,
            starts: Column::open(group, &places.start)?,
            durs: Column::open(group, &places.dur)?,
            selfs: Column::open(group, &places.self_time)?,
            counts: Column::open(group, &places.count)?,
            maxima: Column::open(group, &places.max)?,
            histograms: Column::open(group, &places.histogram)?,
            numbers: Column::open(group, &places.source_id)?,
            due_times: if places.due.has_values(group) {
                Some(Column::open(group, &places.due)?)
            } else {
                None
            },
            edges: match &places.edges {
                Some(places) => EdgeColumns::open(group, places)?,
                None => None,
            },
        })
    }
}

pub(super) fn replay_group(
    group: &dyn RowGroupReader,
    places: &Places,
    known: &mut Known,
    each: &mut dyn FnMut(&SourceTable, Row),
) -> Result<(), Fault> {
    let mut columns = Columns::open(group, places)?;
    let mut words = None;

    let all = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
    for first in (0..all).step_by(BATCH_ROWS) {
        let rows = BATCH_ROWS.min(all - first);
        let cpus = columns.cpus.read_all(rows)?;
        let starts = columns.starts.read_all(rows)?;
        let durs = columns.durs.read_all(rows)?;
        let selfs = columns.selfs.read_all(rows)?;
        let counts = columns.counts.read_all(rows)?;
        let maxima = columns.maxima.read_all(rows)?;
        known.limits.check(&Numbers {
            cpus,
            starts,
            durs,
            selfs,
            counts,
            maxima,
        })?;
        let numbers = columns.numbers.read_all(rows)?;
        let due_times = columns.due_times.as_mut();
        let due_times = due_times.map(|times| times.read(rows)).transpose()?;
        let mut due_times = due_times.as_ref().map(Batch::iter);
        let effects = columns.edges.as_mut();
        let effects = effects
            .map(|edges| edges.read(rows, &mut known.limits))
            .transpose()?;
        let mut effects = effects.into_iter().flatten();
        for (row, histogram) in columns.histograms.read(rows)?.iter().enumerate() {
            let source = if let Some(id) = known.get(numbers[row]) {
                id
            } else {
                let words = match &mut words {
                    Some(words) => words,
                    None => words.insert(Words::open(group, places)?),
                };
                let source = words.at(first + row, &mut known.limits)?;
                known.add(numbers[row], source)?
            };
            let cpu = u32::try_from(cpus[row])
                .map_err(|_| Fault::damaged(schema::CPU, "a CPU number is negative"))?;
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
                (None, Some(&due), _) => {
                    RowLimits::check_due(due)?;
                    let due = Nanos(due);
                    Row::Frame(PacedFrame { span, due })
                }
                (Some(bytes), ..) => Row::Sum(sum(span, counts[row], maxima[row], bytes)?),
            };
            each(&known.table, row);
        }
    }
    Ok(())
}

/// Decodes the sum in a row that has a histogram.
fn sum(span: Span, count: i64, max: i64, bytes: &ByteArray) -> Result<Sum, Fault> {
    let damaged = |why: &str| Fault::damaged(schema::HISTOGRAM, why);
    let (buckets, rest) = bytes.data().as_chunks::<4>();
    if !rest.is_empty() || buckets.len() > Histogram::BUCKETS {
        return Err(damaged("a histogram has an invalid number of buckets"));
    }
    let mut counts = [0; Histogram::BUCKETS];
    for (count, bucket) in counts.iter_mut().zip(buckets) {
        *count = u32::from_le_bytes(*bucket).into();
    }
    Ok(Sum {
        span,
        count: u64::try_from(count)
            .map_err(|_| Fault::damaged(schema::COUNT, "a count is negative"))?,
        max: Nanos(max),
        histogram: Histogram::from_counts(&counts)
            .ok_or_else(|| damaged("a histogram has too many buckets"))?,
    })
}
