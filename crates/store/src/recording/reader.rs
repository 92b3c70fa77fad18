//! Reads a recording in batches of rows.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::ChunkReader;
use ticktax_model::SourceTable;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{Header, OLDEST_SCHEMA_VERSION, Row, RowSource, SCHEMA_VERSION};

use super::ahead::decode_ahead;
use super::checksum::{Checksums, Failure, FoundChecksums};
use super::column::Fault;
use super::error::RecordingError;
use super::rows::{Known, Places, replay_group};
use super::{limits, schema};
use crate::disk::open_promptly;
use crate::parquet_file::{Excess, OpenFault, ParquetFile, Unopened};

/// First and last four bytes of every Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// A reader for a recording's file. It ignores unknown columns.
pub struct RecordingReader {
    path: PathBuf,
    file: ParquetFile,
    header: Header,
    places: Places,
    /// Checksums of the row groups; `None` if another program wrote the file.
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
    /// Returns an error if the file cannot be opened, is not a Parquet file, is truncated, is not a
    /// recording, has an unsupported schema, or fails another check. The error can be any
    /// [`RecordingError`] that does not concern writing.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, RecordingError> {
        let path = path.as_ref();
        let cannot_read = |error: io::Error| RecordingError::read(path, &error);
        let facts = fs::metadata(path).map_err(cannot_read)?;
        if !facts.is_dir() && !facts.is_file() {
            let why = "it is a device or pipe; give the path of a regular file".to_owned();
            return Err(RecordingError::Read {
                path: path.to_owned(),
                why,
            });
        }
        Self::from_file(path, open_promptly(path).map_err(cannot_read)?)
    }

    /// Opens a recording like [`RecordingReader::open`], but from a regular file that is already
    /// open. Messages use `name` as the path of the file.
    ///
    /// # Errors
    /// Returns the errors of [`RecordingReader::open`].
    pub fn from_file(name: impl AsRef<Path>, mut file: File) -> Result<Self, RecordingError> {
        let path = name.as_ref();
        let cannot_read = |error: io::Error| RecordingError::read(path, &error);
        let length = file.metadata().map_err(cannot_read)?.len();
        let mut ends = Vec::new();
        (&file)
            .take(4)
            .read_to_end(&mut ends)
            .map_err(cannot_read)?;
        if length >= 8 {
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

    /// Opens a recording like [`RecordingReader::open`], but from a file in memory. Messages use
    /// `name` as the path of the file.
    ///
    /// # Errors
    /// Returns the errors of [`RecordingReader::open`].
    pub fn from_bytes(name: impl AsRef<Path>, bytes: Bytes) -> Result<Self, RecordingError> {
        let mut ends = bytes[..bytes.len().min(4)].to_vec();
        if bytes.len() >= 8 {
            ends.extend_from_slice(&bytes[bytes.len() - 4..]);
        }
        check_magic(name.as_ref(), &ends)?;
        Self::new(name.as_ref(), bytes.clone(), bytes)
    }

    /// Creates a reader. `chunks` and `bytes` must both give access to the same file.
    fn new<R>(path: &Path, chunks: R, bytes: R) -> Result<Self, RecordingError>
    where
        R: ChunkReader + 'static,
    {
        let refused = |why: Excess| RecordingError::refused(path, why);
        let unopened =
            Unopened::new(bytes).map_err(|why| RecordingError::undecodable(path, &why))?;
        let found = checksums(path, &unopened)?;
        let file = unopened.open(chunks).map_err(|fault| match fault {
            OpenFault::Footer(why) => RecordingError::Header {
                path: path.to_owned(),
                why: why.to_string(),
            },
            OpenFault::Excess(why) => refused(why),
        })?;
        let facts = file.metadata().file_metadata();
        let json = facts
            .key_value_metadata()
            .and_then(|entries| entries.iter().find(|entry| entry.key == schema::HEADER_KEY))
            .and_then(|entry| entry.value.as_deref())
            .ok_or_else(|| RecordingError::Foreign {
                path: path.to_owned(),
            })?;
        let mut header = header(path, json)?;
        limits::check_header(&header).map_err(refused)?;
        let places = Places::find(facts.schema_descr()).map_err(|fault| name(path, fault))?;
        let checksums = match found {
            FoundChecksums::Present(checksums) => Some(checksums),
            FoundChecksums::Missing => return Err(damaged(path, FOOTER)),
            FoundChecksums::None => None,
        };
        if checksums.is_none() {
            let limitations = &mut header.coverage.limitations;
            limitations.retain(|limitation| *limitation != Limitation::NotVerified);
            limitations.push(Limitation::NotVerified);
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            header,
            places,
            checksums,
        })
    }

    /// Returns the header. If the file has no checksums, the header includes the limitation
    /// [`NotVerified`](Limitation::NotVerified).
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        u64::try_from(self.file.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Passes every row to `each`, in the order they were written, along with a table that contains
    /// the row's source. Returns the table of all sources. Every call starts at the first row.
    ///
    /// # Errors
    /// Returns [`RecordingError::Damaged`], [`RecordingError::Column`] or
    /// [`RecordingError::UnknownWord`] if rows are damaged, and [`RecordingError::Refused`] if they
    /// exceed a limit. Rows passed before the error are correct.
    pub fn replay(
        &mut self,
        each: &mut dyn FnMut(&SourceTable, &Row),
    ) -> Result<SourceTable, RecordingError> {
        decode_ahead(&|each| self.decode(each), each)
    }

    fn decode(
        &self,
        each: &mut dyn FnMut(&SourceTable, Row),
    ) -> Result<SourceTable, RecordingError> {
        let mut known = Known::new(self.file.bounds());
        for index in 0..self.file.metadata().num_row_groups() {
            self.check(index)?;
            self.file
                .check_pages(index, self.places.indexes())
                .map_err(|why| RecordingError::refused(&self.path, why))?;
            let group = self
                .file
                .row_group(index)
                .map_err(|why| RecordingError::undecodable(&self.path, &why))?;
            replay_group(&*group, &self.places, &mut known, each)
                .map_err(|fault| name(&self.path, fault))?;
        }
        Ok(known.table)
    }

    /// Checks that row group `index` matches its checksum, if the file has checksums.
    fn check(&self, index: usize) -> Result<(), RecordingError> {
        let Some(checksums) = &self.checksums else {
            return Ok(());
        };
        let intact = checksums.check(index, self.file.fetch());
        if intact.map_err(|why| RecordingError::undecodable(&self.path, &why))? {
            return Ok(());
        }
        let groups = self.file.metadata().row_groups();
        let rows = |groups: &[RowGroupMetaData]| -> i64 {
            groups.iter().map(RowGroupMetaData::num_rows).sum()
        };
        let (before, with) = (rows(&groups[..index]), rows(&groups[..=index]));
        let what = format!("checksum mismatch in rows {} to {with}", before + 1);
        Err(damaged(&self.path, &what))
    }
}

impl RowSource for RecordingReader {
    type Error = RecordingError;

    fn header(&self) -> &Header {
        self.header()
    }

    fn replay(
        &mut self,
        each: &mut dyn FnMut(&SourceTable, &Row),
    ) -> Result<SourceTable, RecordingError> {
        self.replay(each)
    }
}

/// Description of the damage if the footer does not match its checksum.
const FOOTER: &str = "checksum mismatch in the header and footer";

fn damaged(path: &Path, what: &str) -> RecordingError {
    RecordingError::Damaged {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}

/// Checks that a file is a Parquet file. `ends` contains the first and the last bytes of the file.
fn check_magic(path: &Path, ends: &[u8]) -> Result<(), RecordingError> {
    let path = || path.to_owned();
    let (first, last) = ends.split_at(ends.len().min(MAGIC.len()));
    if !MAGIC.starts_with(first) {
        if last == MAGIC {
            return Err(damaged(&path(), "the first bytes are invalid"));
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
        Fault::Excess(why) => RecordingError::refused(&path, why),
    }
}

fn checksums(path: &Path, file: &Unopened) -> Result<FoundChecksums, RecordingError> {
    // If the footer is missing, the Parquet library reports an error later.
    let Some(footer) = file.footer() else {
        return Ok(FoundChecksums::None);
    };
    Checksums::read(footer, file.fetch()).map_err(|failure| match failure {
        Failure::Unreadable(why) => RecordingError::undecodable(path, &why),
        Failure::Footer => damaged(path, FOOTER),
    })
}

/// Parses the header of a file. Fails if this program cannot read its schema version.
fn header(path: &Path, json: &str) -> Result<Header, RecordingError> {
    /// The only field that all schema versions of the header have in common.
    #[derive(serde::Deserialize)]
    struct Version {
        schema: u64,
    }
    let damaged = |error: serde_json::Error| RecordingError::Header {
        path: path.to_owned(),
        why: limits::shortened(error.to_string()),
    };
    let found = serde_json::from_str::<Version>(json)
        .map_err(damaged)?
        .schema;
    if found > u64::from(SCHEMA_VERSION) {
        return Err(RecordingError::Newer {
            path: path.to_owned(),
            found,
        });
    }
    if found < u64::from(OLDEST_SCHEMA_VERSION) {
        return Err(RecordingError::UnknownSchema {
            path: path.to_owned(),
            found,
        });
    }
    limits::check_json(json).map_err(damaged)?;
    serde_json::from_str(json).map_err(damaged)
}
