//! Parquet files, as far as recordings, tables and facts have them in common.
//!
//! A file may come from anybody. [`Bounds`] checks its sizes before the Parquet library believes
//! them, and [`decode`] turns the library's panics on damaged bytes into errors.

mod bounds;

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;

use crate::disk::error_words;

pub use bounds::Excess;
pub(crate) use bounds::{Bounds, Fetch, Footer};

/// The reason behind a Parquet error, on one line and without the layers around it.
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
    /// Whether [`decode`] runs on this thread.
    static DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic on this thread now comes from damaged bytes, and will become an error. A panic
/// hook need not print it.
pub fn is_decoding() -> bool {
    DECODING.get()
}

/// Runs a piece of the Parquet library on bytes that may be damaged. It mostly returns an error
/// for them, and panics on a few; its half-done work is not used again.
pub(crate) fn decode<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    let outer = DECODING.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    DECODING.set(outer);
    match done {
        Ok(done) => done.map_err(|error| parquet_words(&error)),
        Err(_) => Err("its bytes make no sense".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_while_decoding_is_known_as_such() {
        let panicked: Result<(), String> = decode(|| {
            assert!(is_decoding());
            panic!("damaged bytes")
        });
        assert!(panicked.is_err());
        assert!(!is_decoding());
    }
}
