//! Writes facts files.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::Type as Physical;
use parquet::basic::{
    Compression, ConvertedType, Encoding, LogicalType, Repetition, TimeUnit, ZstdLevel,
};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use ticktax_model::facts::{Cell, Column, ColumnKind, Row, Table};

use crate::disk::{Folder, Temporary, error_words};
use crate::parquet_file::{column_type, message, parquet_words, put_cells, put_column};

/// Version of the columns in all tables.
const SCHEMA: &str = "1";

/// Error for a facts file that could not be written. The message is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot write {}: {why}", path.display())]
pub struct FactsError {
    /// Path of the file.
    pub path: PathBuf,
    /// Reason for the failure, and how to fix it.
    pub why: String,
}

impl FactsError {
    /// Wraps a system error about `path`.
    pub fn io(path: &Path, error: &io::Error) -> Self {
        Self {
            path: path.to_owned(),
            why: error_words(error),
        }
    }

    fn parquet(path: &Path, error: &ParquetError) -> Self {
        Self {
            path: path.to_owned(),
            why: parquet_words(error),
        }
    }
}

/// A writer for the facts files that describe one host.
#[derive(Clone, Debug)]
pub struct PartWriter {
    host: Arc<str>,
}

impl PartWriter {
    /// Creates a writer for rows that describe `host`.
    pub fn new(host: &str) -> Self {
        Self { host: host.into() }
    }

    /// Sorts the rows of one table and writes them to a file. All rows must have the same columns.
    /// Once the file is complete and synced to disk, it appears in `folder` as `name`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written. No part of the file then remains.
    pub fn write(
        &self,
        folder: Folder,
        name: &OsStr,
        table: Table,
        rows: &mut [Row],
    ) -> Result<(), FactsError> {
        let path = folder.path().join(name);
        let io = |error: io::Error| FactsError::io(&path, &error);
        let parquet = |error: ParquetError| FactsError::parquet(&path, &error);
        let temporary = Temporary::in_folder(folder, name, 0o666).map_err(io)?;
        let handle = temporary.handle().map_err(io)?;
        let key = table.sorted() - 1;
        rows.sort_by(|a, b| {
            let (a, b) = (&a.cells()[..key], &b.cells()[..key]);
            a.partial_cmp(b).unwrap_or(Ordering::Equal)
        });
        self.fill(handle, table, rows).map_err(parquet)?;
        temporary.appear().map_err(io)
    }

    fn fill(&self, file: File, table: Table, rows: &[Row]) -> Result<(), ParquetError> {
        let present = rows.first().map_or(0, |row| row.cells().len() + 1);
        let columns = table.columns();
        let columns = &columns[..present.min(columns.len())];
        let properties = Arc::new(properties(table, columns)?);
        let mut file = SerializedFileWriter::new(file, schema(columns)?, properties)?;
        let mut group = file.next_row_group()?;
        let host = Cell::Text(Arc::clone(&self.host));
        for (number, column) in columns.iter().enumerate() {
            let cells = rows.iter().map(|row| match number.checked_sub(1) {
                None => &host,
                Some(number) => row.cells().get(number).unwrap_or(&Cell::None),
            });
            put(&mut group, *column, cells)?;
        }
        group.close()?;
        file.close().map(drop)
    }
}

fn properties(table: Table, columns: &[Column]) -> Result<WriterProperties, ParquetError> {
    let words = |key: &str, value: String| KeyValue::new(key.to_owned(), Some(value));
    let mut metadata = vec![words("ticktax.schema", SCHEMA.to_owned())];
    metadata.extend(
        table
            .window()
            .map(|kind| words("ticktax.window", kind.to_string())),
    );
    let sorted = (0..).take(table.sorted()).map(|column| SortingColumn {
        column_idx: column,
        descending: false,
        nulls_first: false,
    });
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_created_by(concat!("ticktax ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_sorting_columns(Some(sorted.collect()))
        .set_key_value_metadata(Some(metadata));
    for (number, column) in columns.iter().enumerate() {
        let path = ColumnPath::from(column.name);
        // Statistics help only queries that filter on the columns that the rows are sorted by.
        if number >= table.sorted() {
            properties =
                properties.set_column_statistics_enabled(path.clone(), EnabledStatistics::None);
        }
        let encoding = match column.kind {
            ColumnKind::Long => Encoding::DELTA_BINARY_PACKED,
            ColumnKind::Bytes => Encoding::DELTA_LENGTH_BYTE_ARRAY,
            // All other columns use dictionary encoding, which is the default.
            _ => continue,
        };
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, encoding);
    }
    Ok(properties.build())
}

fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let field = |column: &Column| {
        let (physical, logical) = match column.kind {
            ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            ColumnKind::Short => (Physical::INT32, Some(LogicalType::integer(16, true))),
            ColumnKind::Int => (Physical::INT32, None),
            ColumnKind::Few | ColumnKind::Long => (Physical::INT64, None),
            ColumnKind::Time => {
                let time = LogicalType::timestamp(true, TimeUnit::MILLIS);
                (Physical::INT64, Some(time))
            }
            ColumnKind::Real => (Physical::DOUBLE, None),
            ColumnKind::Bytes => (Physical::BYTE_ARRAY, None),
            ColumnKind::List => return list_of_numbers(column.name),
        };
        column_type(column.name, physical, logical, column.optional)
    };
    message(columns.iter().map(field).collect::<Result<_, _>>()?)
}

/// Returns the type of a column that contains lists, in the three-level structure that the Parquet
/// format requires.
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

fn put<'c>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    column: Column,
    cells: impl Iterator<Item = &'c Cell>,
) -> Result<(), ParquetError> {
    let optional = column.optional;
    match column.kind {
        ColumnKind::Text => {
            let texts = cells.map(|cell| match cell {
                Cell::Text(text) => Some(ByteArray::from(&**text)),
                _ => None,
            });
            put_cells::<ByteArrayType, _>(group, optional, texts)
        }
        ColumnKind::Bytes => {
            let bytes = cells.map(|cell| match cell {
                Cell::Bytes(bytes) => Some(ByteArray::from(bytes.clone())),
                _ => None,
            });
            put_cells::<ByteArrayType, _>(group, optional, bytes)
        }
        ColumnKind::Short | ColumnKind::Int => {
            let numbers = cells.map(|cell| match cell {
                Cell::Number(number) => Some(i32::try_from(*number).unwrap_or(i32::MAX)),
                _ => None,
            });
            put_cells::<Int32Type, _>(group, optional, numbers)
        }
        ColumnKind::Few | ColumnKind::Long | ColumnKind::Time => {
            let numbers = cells.map(|cell| match cell {
                Cell::Number(number) => Some(*number),
                _ => None,
            });
            put_cells::<Int64Type, _>(group, optional, numbers)
        }
        ColumnKind::Real => {
            let reals = cells.map(|cell| match cell {
                Cell::Real(real) => Some(*real),
                _ => None,
            });
            put_cells::<DoubleType, _>(group, optional, reals)
        }
        ColumnKind::List => put_lists(group, cells),
    }
}

fn put_lists<'c>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    cells: impl Iterator<Item = &'c Cell>,
) -> Result<(), ParquetError> {
    let (mut values, mut present, mut continues) = (Vec::new(), Vec::new(), Vec::new());
    for cell in cells {
        let list: &[i64] = match cell {
            Cell::List(list) => list,
            _ => &[],
        };
        if list.is_empty() {
            continues.push(0);
            present.push(0);
        }
        for (place, number) in list.iter().enumerate() {
            continues.push(i16::from(place > 0));
            present.push(1);
            values.push(*number);
        }
    }
    put_column::<Int64Type, _>(group, &values, &present, Some(&continues))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::path::Path;

    use parquet::basic::{Compression, Encoding};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, Row};
    use ticktax_model::facts::{HostFact, Row as Fact, Table, Window, WindowLength};
    use ticktax_model::machine::Machine;
    use ticktax_model::statement::Class;
    use ticktax_model::totals::{AccountKey, AccountSums, IntervalSum};
    use ticktax_model::{Cpu, Histogram, Nanos};

    use super::PartWriter;
    use crate::disk::Folder;

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
            ticks: BTreeMap::new(),
        }
    }

    const ACCOUNTS: Table = Table::Accounts(WindowLength::Minute);

    fn put(path: &Path, table: Table, rows: &mut [Fact]) {
        let folder = Folder::open(path.parent().unwrap()).unwrap();
        let name = path.file_name().unwrap();
        PartWriter::new("vm")
            .write(folder, name, table, rows)
            .unwrap();
    }

    /// Writes the rows of `windows` to a file, and returns how many rows were written.
    fn write(path: &Path, windows: &[Window], lists: bool) -> usize {
        let rows = windows.iter().flat_map(|window| window.rows(lists));
        let mut rows: Vec<Fact> = rows.collect();
        put(path, ACCOUNTS, &mut rows);
        rows.len()
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
        assert_eq!(write(&path, &windows, false), 6);
        let written: Vec<(String, i16, i64)> = rows(&path)
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
        assert_eq!(written, expected);
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
        write(&path, &[window(0, &["a"])], false);
        let reader = open(&path);
        let group = reader.metadata().row_group(0);
        for column in group.columns() {
            let name = column.column_path().string();
            let compressed = matches!(column.compression(), Compression::ZSTD(_));
            assert!(compressed, "{name}");
            let encoding = match name.as_str() {
                "time_ns" | "count" => Encoding::DELTA_BINARY_PACKED,
                "histogram" => Encoding::DELTA_LENGTH_BYTE_ARRAY,
                _ => Encoding::RLE_DICTIONARY,
            };
            let found: Vec<Encoding> = column.encodings().collect();
            assert!(found.contains(&encoding), "{name}: {found:?}");
        }
        assert_eq!(group.sorting_columns().map(Vec::len), Some(5));
    }

    #[test]
    fn lists_and_bytes_hold_the_same_histogram() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part-1.parquet");
        let mut window = window(0, &["a"]);
        let nothing = AccountKey {
            class: Class::Idle,
            name: "idle".into(),
            cpu: Cpu(0),
        };
        window.accounts.insert(nothing, IntervalSum::default());
        assert_eq!(write(&path, &[window], true), 3);
        let rows = rows(&path);
        let list = |row: &Row, name| field(row, name).to_string();
        assert_eq!(list(&rows[0], "histogram_from_ns"), "[5, 896]");
        assert_eq!(list(&rows[0], "histogram_counts"), "[1, 1]");
        assert_eq!(list(&rows[2], "histogram_counts"), "[]");
    }

    #[test]
    fn unknown_values_are_null() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part-1.parquet");
        let fact = |clocksource: Option<&str>| {
            let fact = HostFact {
                time_unix_ms: 5,
                began_unix_ms: 4,
                tool_version: "1".to_owned(),
                mitigations: vec!["meltdown: Not affected".to_owned()],
                machine_type: None,
                machine_id: None,
                machine: Machine {
                    clocksource: clocksource.map(str::to_owned),
                    ..Machine::default()
                },
            };
            fact.row()
        };
        let mut facts = [fact(None), fact(Some("tsc"))];
        put(&path, Table::Host, &mut facts);
        let rows = rows(&path);
        assert_eq!(field(&rows[0], "clocksource"), &Field::Null);
        let tsc = Field::Str("tsc".to_owned());
        assert_eq!(field(&rows[1], "clocksource"), &tsc);
        assert_eq!(field(&rows[1], "time"), &Field::TimestampMillis(5));
        assert_eq!(field(&rows[0], "host"), &Field::Str("vm".to_owned()));
    }
}
