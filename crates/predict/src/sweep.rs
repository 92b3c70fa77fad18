//! Sweeps. A sweep runs a scenario at every arm of a grid, on all CPUs, and writes a single table.
//!
//! As soon as an arm has finished, it is written to a journal next to the results, so a sweep that
//! was killed can be resumed. When all arms have finished, the table is written in the order of the
//! arms. Neither the number of threads nor an interruption changes a single byte of it.

mod journal;
pub mod outcome;
mod plan;
mod results;
mod run;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use ticktax_store::table::TableError;

pub use self::plan::{Plan, PlanError};
pub use self::results::{Ran, summarize};
pub use self::run::{Begun, Ended, Progress, Sweep, begin};

/// Why a sweep cannot start or continue. The message is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// Another process is writing to the same results.
    #[error(
        "another sweep is writing {}: wait for it to finish, or choose another file",
        results.display()
    )]
    Busy {
        /// The results file.
        results: PathBuf,
    },
    /// The results file or its journal belongs to a different sweep.
    #[error("{} {what}: choose another results file, or remove this one", path.display())]
    Other {
        /// The results file or the journal.
        path: PathBuf,
        /// How the other sweep differs from this one.
        what: String,
    },
    /// The journal cannot be written or read. The arms that it contains are kept.
    #[error(
        "cannot {verb} the journal {}: {why}; {kept} finished arms are saved; run the same \
         command again to resume",
        path.display()
    )]
    Journal {
        /// `write` or `read`.
        verb: &'static str,
        /// The journal.
        path: PathBuf,
        /// Reason.
        why: String,
        /// Number of arms that the journal contains.
        kept: usize,
    },
    /// A thread cannot be started.
    #[error(
        "cannot start a thread: {0}; raise the process limit (`ulimit -u`) or memory limit \
        (`ulimit -v`)"
    )]
    Thread(std::io::ErrorKind),
    /// The journal cannot be created next to the results.
    #[error("cannot write the results {}: {why}", results.display())]
    Create {
        /// The results file.
        results: PathBuf,
        /// Reason.
        why: String,
    },
    /// The table cannot be written or read.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Returns the path of the journal: that of the results with `.journal` appended.
fn journal_of(results: &Path) -> PathBuf {
    let mut name = results.as_os_str().to_owned();
    name.push(".journal");
    PathBuf::from(name)
}
