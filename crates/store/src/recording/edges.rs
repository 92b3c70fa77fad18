//! Reads the three columns that have values only for edges.

use std::collections::HashMap;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::file::reader::RowGroupReader;
use parquet::schema::types::SchemaDescriptor;
use ticktax_model::recording::{EdgeKind, Effect};

use super::column::{Column, ColumnPosition, Fault};
use super::limits::{RowLimits, short};
use super::schema;

pub(super) struct EdgePlaces {
    kind: ColumnPosition,
    tid: ColumnPosition,
    to: ColumnPosition,
}

impl EdgePlaces {
    /// Finds the edge columns; `None` if the file does not have them.
    pub(super) fn find(columns: &SchemaDescriptor) -> Result<Option<Self>, Fault> {
        let has_edges = columns
            .columns()
            .iter()
            .any(|column| matches!(column.path().parts(), [only] if only == schema::EDGE));
        if !has_edges {
            return Ok(None);
        }
        Ok(Some(Self {
            kind: ColumnPosition::find::<ByteArrayType>(columns, schema::EDGE)?,
            tid: ColumnPosition::find::<Int32Type>(columns, schema::EDGE_TID)?,
            to: ColumnPosition::find::<ByteArrayType>(columns, schema::EDGE_TO)?,
        }))
    }
}

impl EdgePlaces {
    pub(super) fn indexes(&self) -> [usize; 3] {
        [&self.kind, &self.tid, &self.to].map(ColumnPosition::index)
    }
}

pub(super) struct EdgeColumns {
    kind: Column<ByteArrayType>,
    tid: Column<Int32Type>,
    to: Column<ByteArrayType>,
    /// Names seen so far. Most names recur, so equal names share memory.
    names: HashMap<Vec<u8>, Arc<str>>,
}

impl EdgeColumns {
    /// Opens the edge columns; `None` if the row group has no edges.
    pub(super) fn open(
        group: &dyn RowGroupReader,
        places: &EdgePlaces,
    ) -> Result<Option<Self>, Fault> {
        if !places.kind.has_values(group) {
            return Ok(None);
        }
        Ok(Some(Self {
            kind: Column::open(group, &places.kind)?,
            tid: Column::open(group, &places.tid)?,
            to: Column::open(group, &places.to)?,
            names: HashMap::new(),
        }))
    }

    /// Reads the effects of the next `rows` rows, with `None` for rows that are not edges.
    pub(super) fn read(
        &mut self,
        rows: usize,
        limits: &mut RowLimits,
    ) -> Result<Vec<Option<Effect>>, Fault> {
        let Self {
            kind,
            tid,
            to,
            names,
        } = self;
        let (kinds, tids, names_to) = (kind.read(rows)?, tid.read(rows)?, to.read(rows)?);
        let columns = kinds.iter().zip(tids.iter()).zip(names_to.iter());
        let effect =
            |((kind, tid), to): ((Option<&ByteArray>, Option<&i32>), Option<&ByteArray>)| {
                let Some(kind) = kind else {
                    return Ok(None);
                };
                let kind = short(kind.data());
                let word = String::from_utf8_lossy(kind);
                let kind = EdgeKind::from_name(&word).ok_or_else(|| Fault::UnknownWord {
                    column: schema::EDGE,
                    word: word.into_owned(),
                })?;
                let mut name = || text(names, to, limits);
                let thread = || tid.copied().ok_or_else(|| missing(schema::EDGE_TID));
                Ok(Some(match kind {
                    EdgeKind::Woke => Effect::Woke(thread()?),
                    EdgeKind::Started => Effect::Started(thread()?),
                    EdgeKind::Queued => Effect::Queued(name()?),
                    EdgeKind::Raised => Effect::Raised(name()?),
                    EdgeKind::Sampled => Effect::Sampled(name()?),
                    EdgeKind::Profiled => Effect::Profiled(name()?),
                    EdgeKind::Waited => Effect::Waited(name()?),
                }))
            };
        columns.map(effect).collect()
    }
}

fn missing(column: &'static str) -> Fault {
    Fault::damaged(column, "an edge has no value")
}

fn text(
    names: &mut HashMap<Vec<u8>, Arc<str>>,
    to: Option<&ByteArray>,
    limits: &mut RowLimits,
) -> Result<Arc<str>, Fault> {
    let bytes = to.ok_or_else(|| missing(schema::EDGE_TO))?.data();
    if let Some(name) = names.get(bytes) {
        return Ok(Arc::clone(name));
    }
    limits.take_name(schema::EDGE_TO, bytes)?;
    let name = std::str::from_utf8(bytes)
        .map_err(|_| Fault::damaged(schema::EDGE_TO, "a row is not UTF-8"))?;
    let name: Arc<str> = name.into();
    names.insert(bytes.to_vec(), Arc::clone(&name));
    Ok(name)
}
