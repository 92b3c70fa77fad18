//! Reads and writes Parquet files, the common format of recordings, tables and facts.
//!
//! A file may come from anybody. `Unopened` checks the sizes in a file before the Parquet library
//! relies on them. The library panics on some damaged bytes, and `decode` turns these panics into
//! errors.

mod bounds;
mod output;

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, FileReader, RowGroupReader, SerializedFileReader};
use parquet::record::reader::RowIter;

use crate::disk::error_words;

pub use bounds::Excess;
pub(crate) use bounds::{Bounds, Fetch, Footer};
pub(crate) use output::{column_type, message, put_cells, put_column};

/// A file whose footer has been read but not parsed.
pub(crate) struct Unopened {
    bounds: Bounds,
    fetch: Box<Fetch>,
    footer: Option<Footer>,
}

impl Unopened {
    pub(crate) fn new<R: ChunkReader + 'static>(bytes: R) -> Result<Self, DecodeError> {
        let bounds = Bounds::new(bytes.len());
        let fetch: Box<Fetch> =
            Box::new(move |start, length| decode(|| bytes.get_bytes(start, length)));
        let footer = Footer::read(bounds.size(), &*fetch)?;
        Ok(Self {
            bounds,
            fetch,
            footer,
        })
    }

    /// Returns the contents of the footer; `None` if the file is too short to have one.
    pub(crate) fn footer(&self) -> Option<&Footer> {
        self.footer.as_ref()
    }

    pub(crate) fn fetch(&self) -> &Fetch {
        &*self.fetch
    }

    /// Checks the footer, opens the file with the Parquet library, and checks the decoded footer.
    pub(crate) fn open<R: ChunkReader + 'static>(self, file: R) -> Result<ParquetFile, OpenFault> {
        if let Some(footer) = &self.footer {
            self.bounds.check_footer(&footer.bytes)?;
        }
        let file = decode(|| SerializedFileReader::new(file)).map_err(OpenFault::Footer)?;
        self.bounds.check_metadata(file.metadata())?;
        Ok(ParquetFile {
            file: Box::new(file),
            bounds: self.bounds,
            fetch: self.fetch,
        })
    }
}

pub(crate) enum OpenFault {
    Footer(DecodeError),
    Excess(Excess),
}

impl From<Excess> for OpenFault {
    fn from(excess: Excess) -> Self {
        match excess {
            Excess::Nonsense { .. } => Self::Footer(DecodeError::Invalid),
            excess => Self::Excess(excess),
        }
    }
}

/// An open file whose sizes have been checked.
pub(crate) struct ParquetFile {
    file: Box<dyn FileReader>,
    bounds: Bounds,
    fetch: Box<Fetch>,
}

impl ParquetFile {
    pub(crate) fn metadata(&self) -> &ParquetMetaData {
        self.file.metadata()
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(crate) fn fetch(&self) -> &Fetch {
        &*self.fetch
    }

    /// Opens a row group. The caller must check its pages before reading them.
    pub(crate) fn row_group(
        &self,
        index: usize,
    ) -> Result<Box<dyn RowGroupReader + '_>, DecodeError> {
        decode(|| self.file.get_row_group(index))
    }

    pub(crate) fn check_pages(
        &self,
        group: usize,
        columns: impl Iterator<Item = usize>,
    ) -> Result<(), Excess> {
        let group = self.metadata().row_group(group);
        self.bounds.check_pages(group, columns, self.fetch())
    }

    /// Returns all rows, value by value. The caller must check their pages first, and must read the
    /// rows inside [`decode`].
    pub(crate) fn rows(&self) -> Result<RowIter<'_>, ParquetError> {
        self.file.get_row_iter(None)
    }
}

/// Error for bytes in a file that cannot be decoded. The message is one line and does not name the
/// file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    /// The Parquet library returned an error, perhaps because the file cannot be read.
    #[error("{}", parquet_words(.0))]
    Parquet(ParquetError),
    /// The bytes make no sense: either the Parquet library panicked, or an earlier check failed.
    #[error("its contents are invalid")]
    Invalid,
}

/// Returns the cause of a Parquet error on one line, without the names of the layers that it passed
/// through.
pub(crate) fn parquet_words(error: &ParquetError) -> String {
    let text = match error {
        ParquetError::General(text) | ParquetError::NYI(text) | ParquetError::EOF(text) => {
            text.clone()
        }
        ParquetError::External(inner) => match inner.downcast_ref::<io::Error>() {
            Some(error) => error_words(error),
            None => inner.to_string(),
        },
        other => other.to_string(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

thread_local! {
    /// Whether this thread is currently inside [`decode`].
    static DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a panic on this thread would come from damaged bytes. Such a panic is turned
/// into an error, so panic hooks should not print it.
pub fn is_decoding() -> bool {
    DECODING.get()
}

/// Calls the Parquet library on bytes that may be damaged. The library returns an error for most
/// kinds of damage and panics for others, and this function turns such a panic into an error. The
/// objects that the library was working on are not used again.
pub(crate) fn decode<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, DecodeError> {
    let outer = DECODING.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    DECODING.set(outer);
    match done {
        Ok(done) => done.map_err(DecodeError::Parquet),
        Err(_) => Err(DecodeError::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_while_decoding_is_known_as_such() {
        let panicked: Result<(), DecodeError> = decode(|| {
            assert!(is_decoding());
            panic!("damaged bytes")
        });
        assert!(matches!(panicked, Err(DecodeError::Invalid)));
        assert!(!is_decoding());
    }
}
