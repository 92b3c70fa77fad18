//! Reads and writes tables as Parquet files. A table's columns are determined at run time, and the
//! key-value metadata in the file describes the table.
//!
//! Every column except the first is optional. Equal rows always produce equal bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Field;
use parquet::schema::types::TypePtr;
use ticktax_model::table::{Cell, Column, Values};

use crate::disk::{Temporary, error_words, open_promptly};
use crate::parquet_file::{
    OpenFault, ParquetFile, Unopened, column_type, decode, message, parquet_words, put_cells,
};

/// Error for a table that could not be written or read. The message is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {verb} {}: {why}", path.display())]
pub struct TableError {
    /// The operation that failed: `write` or `read`.
    pub verb: &'static str,
    /// Path of the file.
    pub path: PathBuf,
    /// Reason for the failure, and how to fix it.
    pub why: String,
}

impl TableError {
    fn new(verb: &'static str, path: &Path, why: String) -> Self {
        let path = path.to_owned();
        Self { verb, path, why }
    }

    fn io(verb: &'static str, path: &Path, error: &io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::InvalidInput => "it is a device or pipe, not a regular file".to_owned(),
            _ => error_words(error),
        };
        Self::new(verb, path, why)
    }
}

/// A writer for a table, whose file appears under its final name once it is complete.
pub struct TableWriter {
    path: PathBuf,
    columns: Vec<Column>,
    // Declared before `temporary`, so that everything is flushed before the file is removed.
    file: SerializedFileWriter<File>,
    temporary: Temporary,
}

impl TableWriter {
    /// Starts a table that will replace any file at `path`. The first column must have a value in
    /// every row.
    ///
    /// # Errors
    /// Returns an error if the temporary file cannot be created in the directory of `path`.
    pub fn create(
        path: &Path,
        columns: &[Column],
        metadata: &[(&str, String)],
    ) -> Result<Self, TableError> {
        let io = |error: io::Error| TableError::io("write", path, &error);
        let temporary = Temporary::beside(path).map_err(io)?;
        let handle = temporary.handle().map_err(io)?;
        let pairs = metadata
            .iter()
            .map(|(key, value)| KeyValue::new((*key).to_owned(), Some(value.clone())));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_created_by(concat!("ticktax ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(pairs.collect()))
            .build();
        let file = schema(columns)
            .and_then(|schema| SerializedFileWriter::new(handle, schema, Arc::new(properties)))
            .map_err(|error| TableError::new("write", path, parquet_words(&error)))?;
        Ok(Self {
            path: path.to_owned(),
            columns: columns.to_vec(),
            file,
            temporary,
        })
    }

    /// Writes rows as one row group. A cell that is missing or does not fit its column is written
    /// as an empty value.
    ///
    /// # Errors
    /// Returns an error if the rows cannot be written, usually because the disk is full.
    pub fn group(&mut self, rows: &[Vec<Cell>]) -> Result<(), TableError> {
        let error =
            |error: &ParquetError| TableError::new("write", &self.path, parquet_words(error));
        let mut group = self
            .file
            .next_row_group()
            .map_err(|source| error(&source))?;
        for (place, column) in self.columns.iter().enumerate() {
            let cells = rows.iter().map(|row| row.get(place));
            let optional = place > 0;
            let written = match column.values {
                Values::Integers => {
                    let numbers = cells.map(|cell| match cell {
                        Some(Cell::Integer(number)) => Some(*number),
                        _ => None,
                    });
                    put_cells::<Int64Type, _>(&mut group, optional, numbers)
                }
                Values::Reals => {
                    let reals = cells.map(|cell| match cell {
                        Some(Cell::Real(real)) => Some(*real),
                        _ => None,
                    });
                    put_cells::<DoubleType, _>(&mut group, optional, reals)
                }
                Values::Texts => {
                    let texts = cells.map(|cell| match cell {
                        Some(Cell::Text(text)) => Some(ByteArray::from(text.as_str())),
                        _ => None,
                    });
                    put_cells::<ByteArrayType, _>(&mut group, optional, texts)
                }
            };
            written.map_err(|source| error(&source))?;
        }
        group.close().map(drop).map_err(|source| error(&source))
    }

    /// Completes the file, syncs it to disk and gives it its final name.
    ///
    /// # Errors
    /// Returns an error if the end of the file cannot be written or the file cannot be renamed.
    pub fn finish(mut self) -> Result<(), TableError> {
        self.file
            .finish()
            .map_err(|error| TableError::new("write", &self.path, parquet_words(&error)))?;
        drop(self.file);
        let appeared = self.temporary.appear();
        appeared.map_err(|error| TableError::io("write", &self.path, &error))
    }
}

fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let fields = columns.iter().enumerate().map(|(place, column)| {
        let (physical, logical) = match column.values {
            Values::Integers => (Physical::INT64, None),
            Values::Reals => (Physical::DOUBLE, None),
            Values::Texts => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        column_type(&column.name, physical, logical, place > 0)
    });
    message(fields.collect::<Result<_, _>>()?)
}

/// An open table.
pub struct TableReader {
    path: PathBuf,
    file: ParquetFile,
}

impl TableReader {
    /// Opens a table; `None` if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not a Parquet file.
    pub fn open(path: &Path) -> Result<Option<Self>, TableError> {
        let file = match open_promptly(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(TableError::io("read", path, &error)),
        };
        if !file.metadata().is_ok_and(|facts| facts.is_file()) {
            let why = "it is a directory or device, not a regular file".to_owned();
            return Err(TableError::new("read", path, why));
        }
        let not_parquet = || TableError::new("read", path, "it is not a Parquet file".to_owned());
        let bytes = file
            .try_clone()
            .map_err(|error| TableError::io("read", path, &error))?;
        let file = Unopened::new(bytes)
            .map_err(|_| not_parquet())?
            .open(file)
            .map_err(|fault| match fault {
                OpenFault::Footer(_) => not_parquet(),
                OpenFault::Excess(why) => TableError::new("read", path, why.to_string()),
            })?;
        let schema = file.metadata().file_metadata().schema_descr();
        if schema
            .columns()
            .iter()
            .any(|column| column.max_rep_level() > 0)
        {
            return Err(TableError::new(
                "read",
                path,
                "it contains lists".to_owned(),
            ));
        }
        Ok(Some(Self {
            path: path.to_owned(),
            file,
        }))
    }

    /// Returns the key-value metadata of the table.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let pairs = self.file.metadata().file_metadata().key_value_metadata();
        pairs
            .into_iter()
            .flatten()
            .filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?)))
            .collect()
    }

    /// Passes all rows to `take`, in file order.
    ///
    /// # Errors
    /// Returns an error if the file is damaged or ends in the middle of a row.
    pub fn rows(&self, mut take: impl FnMut(Vec<Cell>)) -> Result<(), TableError> {
        for (index, group) in self.file.metadata().row_groups().iter().enumerate() {
            self.file
                .check_pages(index, 0..group.num_columns())
                .map_err(|why| TableError::new("read", &self.path, why.to_string()))?;
        }
        let all = || {
            for row in self.file.rows()? {
                let fields = row?.into_columns().into_iter();
                take(fields.map(|(_, field)| cell(field)).collect());
            }
            Ok(())
        };
        decode(all).map_err(|why| TableError::new("read", &self.path, why.to_string()))
    }
}

fn cell(field: Field) -> Cell {
    match field {
        Field::Long(number) => Cell::Integer(number),
        Field::Double(number) => Cell::Real(number),
        Field::Str(text) => Cell::Text(text),
        _ => Cell::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::table::{Cell, Column, Values};

    use super::{TableReader, TableWriter};

    fn columns() -> Vec<Column> {
        [
            ("n", Values::Integers),
            ("x", Values::Reals),
            ("t.x", Values::Texts),
        ]
        .map(|(name, values)| Column {
            name: name.to_owned(),
            values,
        })
        .to_vec()
    }

    fn rows(n: i64) -> Vec<Vec<Cell>> {
        let row = |n: i64| {
            let real = if n % 3 == 0 {
                Cell::Nothing
            } else {
                Cell::Real(n as f64 / 7.0)
            };
            let text = if n % 2 == 0 {
                Cell::Nothing
            } else {
                Cell::Text(format!("µ {n}"))
            };
            vec![Cell::Integer(n - 2), real, text]
        };
        (0..n).map(row).collect()
    }

    #[test]
    fn tables_round_trip_and_equal_rows_give_equal_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        for path in &paths {
            let words = [("k", "v\n\"".to_owned())];
            let mut writer = TableWriter::create(path, &columns(), &words).unwrap();
            let rows = rows(10);
            writer.group(&rows[..4]).unwrap();
            writer.group(&rows[4..]).unwrap();
            assert!(!path.exists(), "the file appears before it is complete");
            writer.finish().unwrap();
        }
        let [a, b] = paths.map(|path| (std::fs::read(&path).unwrap(), path));
        assert_eq!(a.0, b.0);
        let reader = TableReader::open(&a.1).unwrap().unwrap();
        assert_eq!(reader.metadata()["k"], "v\n\"");
        let mut read = Vec::new();
        reader.rows(|row| read.push(row)).unwrap();
        assert_eq!(read, rows(10));
    }

    #[test]
    fn invalid_files_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        assert!(TableReader::open(&path).unwrap().is_none());
        std::fs::write(&path, "PAR1 nonsense PAR1").unwrap();
        let error = TableReader::open(&path).err().unwrap().to_string();
        assert!(error.ends_with("x: it is not a Parquet file"), "{error}");
        let error = TableReader::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains("directory"), "{error}");
        let missing = folder.path().join("none/x");
        let error = TableWriter::create(&missing, &columns(), &[])
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("no such file or directory"),
            "{error}"
        );
    }

    #[test]
    fn cells_round_trip_through_json() {
        let cells = [
            Cell::Nothing,
            Cell::Integer(-3),
            Cell::Real(2.0),
            Cell::Real(0.1),
            Cell::Text("3".to_owned()),
        ];
        let json = serde_json::to_string(&cells).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Cell>>(&json).unwrap(), cells);
    }
}
