//! Reads one column of a row group in batches. Any column may be required or optional, because
//! tools that rewrite Parquet files make all columns optional.

use std::sync::Arc;

use parquet::basic::Repetition;
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::DataType;
use parquet::file::reader::RowGroupReader;
use parquet::file::statistics::Statistics;
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};

use crate::parquet_file::{DecodeError, Excess, decode};

/// Why a column is unusable. The reader adds the name of the file.
#[derive(Debug)]
pub(super) enum Fault {
    /// The column is missing or cannot be decoded.
    Damaged { column: &'static str, why: String },
    /// The column contains a word that this version does not know.
    UnknownWord { column: &'static str, word: String },
    /// A value is out of range, or there are too many values.
    Excess(Excess),
}

impl From<Excess> for Fault {
    fn from(excess: Excess) -> Self {
        Self::Excess(excess)
    }
}

impl Fault {
    pub(super) fn damaged(column: &'static str, why: impl Into<String>) -> Self {
        Self::Damaged {
            column,
            why: why.into(),
        }
    }

    fn undecodable(column: &'static str, why: &DecodeError) -> Self {
        Self::damaged(column, why.to_string())
    }
}

/// Position of a column in the file.
#[derive(Clone, Debug)]
pub(super) struct ColumnPosition {
    name: &'static str,
    index: usize,
    descriptor: ColumnDescPtr,
}

impl ColumnPosition {
    /// Finds the top-level column called `name`, whose values must have the type `T`.
    pub(super) fn find<T: DataType>(
        schema: &SchemaDescriptor,
        name: &'static str,
    ) -> Result<Self, Fault> {
        let index = (0..schema.num_columns())
            .find(|&index| {
                let column = schema.column(index);
                matches!(column.path().parts(), [only] if only == name)
            })
            .ok_or_else(|| Fault::damaged(name, "it is missing"))?;
        let descriptor = schema.column(index);
        if descriptor.physical_type() != T::get_physical_type() {
            let found = descriptor.physical_type();
            return Err(Fault::damaged(
                name,
                format!("it contains values of type {found}"),
            ));
        }
        if descriptor.self_type().get_basic_info().repetition() == Repetition::REPEATED {
            return Err(Fault::damaged(name, "it contains lists"));
        }
        Ok(Self {
            name,
            index,
            descriptor,
        })
    }
}

impl ColumnPosition {
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Returns whether any row in `group` has a value in this column, according to the statistics
    /// in the file.
    pub(super) fn has_values(&self, group: &dyn RowGroupReader) -> bool {
        let column = group.metadata().column(self.index);
        let without = column.statistics().and_then(Statistics::null_count_opt);
        let rows = u64::try_from(group.metadata().num_rows()).ok();
        without.is_none() || without != rows
    }
}

/// A column in one row group.
pub(super) struct Column<T: DataType> {
    name: &'static str,
    reader: ColumnReaderImpl<T>,
    optional: bool,
    /// Number of rows that have been read or skipped so far.
    position: usize,
    /// Values in the current batch. A row without a value has no entry.
    values: Vec<T::T>,
    /// One level for each row if the column is optional, where 0 means that the row has no value.
    levels: Vec<i16>,
}

impl<T: DataType> Column<T> {
    /// Opens a column of `group`. Its `position` must have been found with the same type `T`.
    pub(super) fn open(
        group: &dyn RowGroupReader,
        position: &ColumnPosition,
    ) -> Result<Self, Fault> {
        let pages = decode(|| group.get_column_page_reader(position.index))
            .map_err(|why| Fault::undecodable(position.name, &why))?;
        let reader = get_column_reader(Arc::clone(&position.descriptor), pages);
        Ok(Self {
            name: position.name,
            reader: get_typed_column_reader::<T>(reader),
            optional: position.descriptor.max_def_level() > 0,
            position: 0,
            values: Vec::new(),
            levels: Vec::new(),
        })
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn fault(&self, why: impl Into<String>) -> Fault {
        Fault::damaged(self.name, why)
    }

    /// Reads the next `rows` rows, which need not have a value.
    pub(super) fn read(&mut self, rows: usize) -> Result<Batch<'_, T::T>, Fault> {
        self.values.clear();
        self.levels.clear();
        let levels = self.optional.then_some(&mut self.levels);
        let (reader, values) = (&mut self.reader, &mut self.values);
        let (read, _, _) = decode(|| reader.read_records(rows, levels, None, values))
            .map_err(|why| Fault::undecodable(self.name, &why))?;
        self.position += read;
        let present = if self.optional {
            self.levels.iter().filter(|&&level| level > 0).count()
        } else {
            read
        };
        if read != rows || self.values.len() != present {
            return Err(self.fault("it is shorter than the other columns"));
        }
        Ok(Batch {
            values: &self.values,
            levels: self.optional.then_some(&self.levels),
        })
    }

    /// Reads the next `rows` rows. Fails if a row has no value.
    pub(super) fn read_all(&mut self, rows: usize) -> Result<&[T::T], Fault> {
        self.read(rows)?;
        if self.values.len() != rows {
            return Err(self.fault("a row has no value"));
        }
        Ok(&self.values)
    }

    /// Skips to row `row` of the group, counted from 0, and reads its value; `None` if the row has
    /// no value.
    pub(super) fn at(&mut self, row: usize) -> Result<Option<&T::T>, Fault> {
        let ahead = row.saturating_sub(self.position);
        let skipped = decode(|| self.reader.skip_records(ahead))
            .map_err(|why| Fault::undecodable(self.name, &why))?;
        self.position += skipped;
        if skipped != ahead {
            return Err(self.fault("it is shorter than the other columns"));
        }
        self.read(1)?;
        Ok(self.values.first())
    }
}

/// Values of consecutive rows in a column.
pub(super) struct Batch<'a, V> {
    values: &'a [V],
    levels: Option<&'a Vec<i16>>,
}

impl<'a, V> Batch<'a, V> {
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<&'a V>> + use<'a, V> {
        let mut values = self.values.iter();
        let (levels, rows) = (self.levels, self.levels.map_or(self.values.len(), Vec::len));
        (0..rows).map(move |row| match levels {
            Some(levels) if levels[row] == 0 => None,
            _ => values.next(),
        })
    }
}
