//! Sweeps: a scenario run at every point of a grid, on all cores, into one table.
//!
//! Finished points go into a journal beside the results at once, so that a sweep that is killed
//! goes on where it was. When all are there, the table is written in the order of the points: it is
//! the same, byte for byte, however many threads there were and however often it was interrupted.

mod journal;
pub(crate) mod outcome;
mod plan;
mod results;
mod run;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use ticktax_model::table::TableError;

pub use self::plan::{Plan, PlanError};
pub use self::results::{Ran, statement};
pub use self::run::{Begun, Ended, Progress, Sweep, begin};

/// Why a sweep cannot begin or go on, in a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// Another process is at it.
    #[error(
        "another sweep is writing {}: wait until it ends, or name another file",
        results.display()
    )]
    Busy {
        /// The results.
        results: PathBuf,
    },
    /// The file, or the journal beside it, is of another sweep.
    #[error("{} {what}: name another file for this sweep, or remove that one", path.display())]
    Other {
        /// The results or the journal.
        path: PathBuf,
        /// What about it is another's.
        what: String,
    },
    /// The journal cannot be written or read. What is in it is kept.
    #[error(
        "cannot {verb} the journal {}: {why}; {kept} finished points are safe, and the same \
         command continues from there",
        path.display()
    )]
    Journal {
        /// `write` or `read`.
        verb: &'static str,
        /// The journal.
        path: PathBuf,
        /// Why.
        why: String,
        /// Points in it.
        kept: usize,
    },
    /// No thread can be started.
    #[error(
        "cannot start a thread: {0}; raise the process limit (ulimit -u) or memory limit \
        (ulimit -v)"
    )]
    Thread(std::io::ErrorKind),
    /// No journal can be begun where the results are to be.
    #[error("cannot write the results {}: {why}", results.display())]
    Create {
        /// The results.
        results: PathBuf,
        /// Why not.
        why: String,
    },
    /// The table cannot be written or read.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// The journal of these results: `NAME.journal`, beside them.
fn journal_of(results: &Path) -> PathBuf {
    let mut name = results.as_os_str().to_owned();
    name.push(".journal");
    PathBuf::from(name)
}
