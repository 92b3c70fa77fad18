//! A file of accounts in windows.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::Type as Physical;
use parquet::basic::{
    Compression, ConvertedType, Encoding, LogicalType, Repetition, TimeUnit, ZstdLevel,
};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use super::{Window, WindowLength};
use crate::Histogram;
use crate::disk::{Temporary, parquet_words, words};
use crate::totals::{AccountKey, IntervalSum};

/// The version of the columns.
const SCHEMA: &str = "1";

// The columns in their order; rows are sorted by the first five.
const HOST: &str = "host";
const NAME: &str = "name";
const CLASS: &str = "class";
const CPU: &str = "cpu";
const TIME: &str = "time";
const WINDOW: &str = "window_ns";
const OWN_TIME: &str = "time_ns";
const COUNT: &str = "count";
const HISTOGRAM: &str = "histogram";
const LENGTHS: &str = "histogram_from_ns";
const COUNTS: &str = "histogram_counts";

/// Why a file of facts could not be written, in a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot write {}: {why}", path.display())]
pub struct FactsError {
    /// The file.
    pub path: PathBuf,
    /// Why it failed, and what to do.
    pub why: String,
}

impl FactsError {
    /// The failure of `path` by an error of the system.
    pub fn io(path: &Path, error: &io::Error) -> Self {
        Self {
            path: path.to_owned(),
            why: words(error.kind()),
        }
    }

    fn parquet(path: &Path, error: &ParquetError) -> Self {
        Self {
            path: path.to_owned(),
            why: parquet_words(error),
        }
    }
}

/// Writes files of accounts.
#[derive(Clone, Debug)]
pub struct PartWriter {
    /// The host that the rows are of.
    host: String,
    /// Whether each histogram also stands as two lists.
    lists: bool,
}

/// A row before it is written.
struct Row<'a> {
    key: &'a AccountKey,
    sum: &'a IntervalSum,
    window: &'a Window,
}

impl PartWriter {
    /// For files of this host's rows. With `lists`, each histogram also stands as two lists, for programs
    /// that cannot read its bytes.
    pub fn new(host: &str, lists: bool) -> Self {
        Self {
            host: host.to_owned(),
            lists,
        }
    }

    /// Writes the accounts of these windows to a file that appears as `path` once it is complete and on the
    /// disk. Returns how many rows it has.
    ///
    /// # Errors
    /// The file cannot be written; nothing of it is left.
    pub fn write(&self, path: &Path, windows: &[&Window]) -> Result<u64, FactsError> {
        let io = |error: io::Error| FactsError::io(path, &error);
        let parquet = |error: ParquetError| FactsError::parquet(path, &error);
        let temporary = Temporary::beside(path).map_err(io)?;
        let handle = temporary.handle().map_err(io)?;
        let mut rows: Vec<Row<'_>> = windows
            .iter()
            .flat_map(|window| {
                let accounts = window.accounts.iter();
                accounts.map(move |(key, sum)| Row { key, sum, window })
            })
            .collect();
        rows.sort_by(|a, b| {
            let begin = |row: &Row<'_>| row.window.begin_unix_ms;
            let names = a.key.name.cmp(&b.key.name);
            let words = names.then_with(|| a.key.class.name().cmp(b.key.class.name()));
            let cpus = words.then_with(|| a.key.cpu.cmp(&b.key.cpu));
            cpus.then_with(|| begin(a).cmp(&begin(b)))
        });
        let kind = windows.first().map(|window| window.kind);
        self.put(handle, &rows, kind).map_err(parquet)?;
        temporary.appear().map_err(io)?;
        Ok(rows.len() as u64)
    }

    fn put(
        &self,
        file: File,
        rows: &[Row<'_>],
        kind: Option<WindowLength>,
    ) -> Result<(), ParquetError> {
        let properties = Arc::new(properties(kind)?);
        let mut file = SerializedFileWriter::new(file, schema(self.lists)?, properties)?;
        let mut group = file.next_row_group()?;
        let host = ByteArray::from(self.host.as_str());
        texts(&mut group, rows.iter().map(|_| host.clone()))?;
        texts(&mut group, rows.iter().map(|row| (&*row.key.name).into()))?;
        texts(
            &mut group,
            rows.iter().map(|row| row.key.class.name().into()),
        )?;
        let cpu = |row: &Row<'_>| i32::try_from(row.key.cpu.0).unwrap_or(i32::MAX);
        plain::<Int32Type>(&mut group, rows.iter().map(cpu))?;
        plain::<Int64Type>(&mut group, rows.iter().map(|row| row.window.begin_unix_ms))?;
        plain::<Int64Type>(&mut group, rows.iter().map(|row| row.window.length.0))?;
        plain::<Int64Type>(&mut group, rows.iter().map(|row| row.sum.time.0))?;
        plain::<Int64Type>(&mut group, rows.iter().map(|row| whole(row.sum.count)))?;
        let blobs = rows.iter().map(|row| row.sum.histogram.to_blob().into());
        texts(&mut group, blobs)?;
        if self.lists {
            let histograms = || rows.iter().map(|row| &row.sum.histogram);
            let from = |index, _| Histogram::lower(index).0;
            list(&mut group, histograms(), from)?;
            list(&mut group, histograms(), |_, count| whole(count))?;
        }
        group.close()?;
        file.close().map(drop)
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn properties(kind: Option<WindowLength>) -> Result<WriterProperties, ParquetError> {
    let words = |key: &str, value: String| KeyValue::new(key.to_owned(), Some(value));
    let mut metadata = vec![words("ticktax.schema", SCHEMA.to_owned())];
    metadata.extend(kind.map(|kind| words("ticktax.window", kind.to_string())));
    let sorted = (0..5).map(|column| SortingColumn {
        column_idx: column,
        descending: false,
        nulls_first: false,
    });
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_created_by(concat!("ticktax ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_sorting_columns(Some(sorted.collect()))
        .set_key_value_metadata(Some(metadata));
    for name in [TIME, WINDOW, OWN_TIME, COUNT] {
        let column = ColumnPath::from(name);
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    let histogram = ColumnPath::from(HISTOGRAM);
    Ok(properties
        .set_column_dictionary_enabled(histogram.clone(), false)
        .set_column_encoding(histogram, Encoding::DELTA_LENGTH_BYTE_ARRAY)
        .build())
}

fn schema(lists: bool) -> Result<TypePtr, ParquetError> {
    let text = Some(LogicalType::String);
    let time = Some(LogicalType::timestamp(true, TimeUnit::MILLIS));
    let short = Some(LogicalType::integer(16, true));
    let columns = [
        (HOST, Physical::BYTE_ARRAY, text.clone()),
        (NAME, Physical::BYTE_ARRAY, text.clone()),
        (CLASS, Physical::BYTE_ARRAY, text),
        (CPU, Physical::INT32, short),
        (TIME, Physical::INT64, time),
        (WINDOW, Physical::INT64, None),
        (OWN_TIME, Physical::INT64, None),
        (COUNT, Physical::INT64, None),
        (HISTOGRAM, Physical::BYTE_ARRAY, None),
    ];
    let column = |(name, physical, logical)| {
        Type::primitive_type_builder(name, physical)
            .with_logical_type(logical)
            .with_repetition(Repetition::REQUIRED)
            .build()
            .map(Arc::new)
    };
    let fields: Result<Vec<TypePtr>, _> = columns.into_iter().map(column).collect();
    let mut fields = fields?;
    if lists {
        fields.push(list_of_numbers(LENGTHS)?);
        fields.push(list_of_numbers(COUNTS)?);
    }
    let message = Type::group_type_builder("ticktax").with_fields(fields);
    message.build().map(Arc::new)
}

/// A column of lists, with the three levels that the format asks for.
fn list_of_numbers(name: &str) -> Result<TypePtr, ParquetError> {
    let element = Type::primitive_type_builder("element", Physical::INT64)
        .with_repetition(Repetition::REQUIRED)
        .build()?;
    let repeated = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![Arc::new(element)])
        .build()?;
    let list = Type::group_type_builder(name)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(LogicalType::List))
        .with_converted_type(ConvertedType::LIST)
        .with_fields(vec![Arc::new(repeated)])
        .build()?;
    Ok(Arc::new(list))
}

fn texts(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: impl Iterator<Item = ByteArray>,
) -> Result<(), ParquetError> {
    plain::<ByteArrayType>(group, values)
}

/// Writes the next column, which has a value in every row.
fn plain<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: impl Iterator<Item = T::T>,
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = values.collect();
    column::<T>(group, &values, None)
}

/// Writes the next column, of lists: a number for each bucket that counted anything.
fn list<'h>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    histograms: impl Iterator<Item = &'h Histogram>,
    number: impl Fn(usize, u64) -> i64,
) -> Result<(), ParquetError> {
    let (mut values, mut present, mut goes_on) = (Vec::new(), Vec::new(), Vec::new());
    for histogram in histograms {
        let first = values.len();
        let counts = histogram.counts().iter().enumerate();
        for (index, &count) in counts.filter(|(_, count)| **count > 0) {
            goes_on.push(i16::from(values.len() > first));
            present.push(1);
            values.push(number(index, count));
        }
        if values.len() == first {
            goes_on.push(0);
            present.push(0);
        }
    }
    column::<Int64Type>(group, &values, Some((&present, &goes_on)))
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    levels: Option<(&[i16], &[i16])>,
) -> Result<(), ParquetError> {
    let mut column = group
        .next_column()?
        .ok_or_else(|| ParquetError::General("the schema lacks a column".to_owned()))?;
    let (present, goes_on) = levels.unzip();
    let writer = column.typed::<T>();
    writer.write_batch(values, present, goes_on)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use parquet::basic::{Compression, Encoding};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, Row};

    use super::PartWriter;
    use crate::facts::{Window, WindowLength};
    use crate::statement::Class;
    use crate::totals::{AccountKey, AccountSums, IntervalSum};
    use crate::{Cpu, Histogram, Nanos};

    fn window(begin_unix_ms: i64, names: &[&str]) -> Window {
        let mut accounts = AccountSums::new();
        for name in names {
            for cpu in [1, 0] {
                let mut sum = IntervalSum::default();
                sum.record(Nanos(900), Nanos(1_000));
                sum.record(Nanos(5), Nanos(5));
                let key = AccountKey {
                    class: Class::Irq,
                    name: (*name).into(),
                    cpu: Cpu(cpu),
                };
                accounts.insert(key, sum);
            }
        }
        Window {
            kind: WindowLength::Minute,
            begin_unix_ms,
            length: Nanos::from_secs(60),
            accounts,
        }
    }

    fn open(path: &Path) -> SerializedFileReader<File> {
        SerializedFileReader::new(File::open(path).unwrap()).unwrap()
    }

    fn rows(path: &Path) -> Vec<Row> {
        let reader = open(path);
        let rows = reader.get_row_iter(None).unwrap();
        rows.map(Result::unwrap).collect()
    }

    fn field<'r>(row: &'r Row, name: &str) -> &'r Field {
        let mut columns = row.get_column_iter();
        columns.find(|column| column.0 == name).unwrap().1
    }

    #[test]
    fn rows_are_sorted_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part-1.parquet");
        let windows = [window(120_000, &["b", "a"]), window(60_000, &["b"])];
        let writer = PartWriter::new("vm", false);
        let written = writer.write(&path, &windows.each_ref()).unwrap();
        assert_eq!(written, 6);
        let told: Vec<(String, i16, i64)> = rows(&path)
            .iter()
            .map(|row| match (field(row, "cpu"), field(row, "time")) {
                (Field::Short(cpu), Field::TimestampMillis(time)) => {
                    (field(row, "name").to_string(), *cpu, *time)
                }
                _ => panic!("{row}"),
            })
            .collect();
        let expected = [
            ("\"a\"", 0, 120_000),
            ("\"a\"", 1, 120_000),
            ("\"b\"", 0, 60_000),
            ("\"b\"", 0, 120_000),
            ("\"b\"", 1, 60_000),
            ("\"b\"", 1, 120_000),
        ];
        let expected = expected.map(|(name, cpu, time)| (name.to_owned(), cpu, time));
        assert_eq!(told, expected);
        let first = &rows(&path)[0];
        assert_eq!(field(first, "host"), &Field::Str("vm".to_owned()));
        assert_eq!(field(first, "class"), &Field::Str("irq".to_owned()));
        assert_eq!(field(first, "window_ns"), &Field::Long(60_000_000_000));
        assert_eq!(field(first, "time_ns"), &Field::Long(905));
        assert_eq!(field(first, "count"), &Field::Long(2));
        let Field::Bytes(bytes) = field(first, "histogram") else {
            panic!("{first}");
        };
        let histogram = Histogram::from_blob(bytes.data()).unwrap();
        assert_eq!(histogram.total(), 2);
        assert_eq!(histogram.counts()[Histogram::bucket(Nanos(5))], 1);
    }

    #[test]
    fn columns_are_encoded_as_documented() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part-1.parquet");
        let writer = PartWriter::new("vm", false);
        writer.write(&path, &[&window(0, &["a"])]).unwrap();
        let reader = open(&path);
        let group = reader.metadata().row_group(0);
        for column in group.columns() {
            let name = column.column_path().string();
            let compressed = matches!(column.compression(), Compression::ZSTD(_));
            assert!(compressed, "{name}");
            let encoding = match name.as_str() {
                "time" | "window_ns" | "time_ns" | "count" => Encoding::DELTA_BINARY_PACKED,
                "histogram" => Encoding::DELTA_LENGTH_BYTE_ARRAY,
                _ => Encoding::RLE_DICTIONARY,
            };
            let found: Vec<Encoding> = column.encodings().collect();
            assert!(found.contains(&encoding), "{name}: {found:?}");
        }
        assert_eq!(group.sorting_columns().map(Vec::len), Some(5));
    }

    #[test]
    fn lists_hold_what_the_bytes_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part-1.parquet");
        let mut window = window(0, &["a"]);
        let nothing = AccountKey {
            class: Class::Idle,
            name: "idle".into(),
            cpu: Cpu(0),
        };
        window.accounts.insert(nothing, IntervalSum::default());
        let writer = PartWriter::new("vm", true);
        assert_eq!(writer.write(&path, &[&window]), Ok(3));
        let rows = rows(&path);
        let list = |row: &Row, name| field(row, name).to_string();
        assert_eq!(list(&rows[0], "histogram_from_ns"), "[5, 896]");
        assert_eq!(list(&rows[0], "histogram_counts"), "[1, 1]");
        assert_eq!(list(&rows[2], "histogram_counts"), "[]");
    }
}
