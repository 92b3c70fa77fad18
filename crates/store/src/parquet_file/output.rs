//! Creates the schemas and writes the columns of Parquet files.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::writer::{SerializedColumnWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

/// Returns the type of a column that has at most one value per row.
pub(crate) fn column_type(
    name: &str,
    physical: Physical,
    logical: Option<LogicalType>,
    optional: bool,
) -> Result<TypePtr, ParquetError> {
    let repetition = if optional {
        Repetition::OPTIONAL
    } else {
        Repetition::REQUIRED
    };
    Type::primitive_type_builder(name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition)
        .build()
        .map(Arc::new)
}

pub(crate) fn message(columns: Vec<TypePtr>) -> Result<TypePtr, ParquetError> {
    Type::group_type_builder("ticktax")
        .with_fields(columns)
        .build()
        .map(Arc::new)
}

/// Number of rows that are encoded at a time.
const STEP: usize = 1024;

/// Writes the next column of a row group from the value of each row. Rows may lack a value only if
/// the column is optional.
pub(crate) fn put_cells<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    optional: bool,
    mut cells: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let mut column = next_column(group)?;
    let (mut values, mut present) = (Vec::new(), Vec::new());
    loop {
        values.clear();
        present.clear();
        for cell in cells.by_ref().take(STEP) {
            present.push(i16::from(cell.is_some()));
            values.extend(cell);
        }
        if present.is_empty() {
            return column.close();
        }
        let levels = optional.then_some(&*present);
        column.typed::<T>().write_batch(&values, levels, None)?;
    }
}

/// Writes the next column of a row group from its values and its levels. `present` contains the
/// definition levels, which show whether a row has a value, and `continues` the repetition levels,
/// which mark the elements that continue a list.
pub(crate) fn put_column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    present: &[i16],
    continues: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = next_column(group)?;
    column
        .typed::<T>()
        .write_batch(values, Some(present), continues)?;
    column.close()
}

fn next_column<'a, W: Write + Send>(
    group: &'a mut SerializedRowGroupWriter<'_, W>,
) -> Result<SerializedColumnWriter<'a>, ParquetError> {
    let column = group.next_column()?;
    column.ok_or_else(|| ParquetError::General("the schema lacks a column".to_owned()))
}
