//! `ticktax-bench peers`: compares third-party tools with an audit, all in the same guest.
//!
//! In the guest, [`guest`] runs the tools and writes their output: a list of [`Ran`], and one file
//! per tool. On the host, [`report`] parses that output into entries of the [`statement`], which
//! [`page`] prints. The parsers know the formats of rtla 6.1 to 6.12 and cyclictest 2, and reject
//! everything else.

mod audit;
mod events;
pub mod guest;
pub mod host;
pub mod packages;
pub mod page;
mod printed;
pub mod statement;

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use ticktax_model::Nanos;

pub use audit::Counter;
use statement::{Noise, Peer, PeerOutcome, PeerReport};

/// Name of the file that contains the audit's recording.
pub const RECORDING: &str = "recording.parquet";

/// Name of the file that lists the tools that the guest ran, as a JSON list of [`Ran`].
pub const RUNS: &str = "runs.json";
/// Name of the file that contains the output of `rtla osnoise top`.
pub const OSNOISE: &str = "osnoise.txt";
/// Name of the file that contains the osnoise tracer's events, in tracefs format.
pub const EVENTS: &str = "osnoise.events";
/// Name of the file that contains the output of `rtla timerlat top`.
pub const TIMERLAT: &str = "timerlat.txt";
/// Name of the file that contains the output of `cyclictest`.
pub const CYCLICTEST: &str = "cyclictest.txt";
/// Minimum length of the gaps that osnoise records, in µs. This is also osnoise's default.
pub const OSNOISE_THRESHOLD: i64 = 5;

/// Why a comparison failed.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// The lab failed.
    #[error(transparent)]
    Lab(#[from] ticktax_lab::LabError),
    /// The audit's recording could not be read.
    #[error(transparent)]
    Recording(#[from] ticktax_store::recording::RecordingError),
    /// Something the comparison needs is missing, or it was started in the wrong place.
    #[error("{0}")]
    Place(String),
}

impl PeersError {
    /// Creates an error for a failed attempt to do `what` with the file at `path`.
    fn file<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |error| ticktax_lab::LabError::of_file(what, path, &error).into()
    }
}

/// A tool that ran in the guest, or that could not run there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// The tool.
    pub peer: Peer,
    /// The tool's command line.
    pub command: String,
    /// Error message if the tool failed, otherwise `None`.
    pub failed: Option<String>,
    /// Why this kernel cannot run the tool, or `None` if it can.
    pub absent: Option<String>,
}

/// Why a tool's output cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The tool wrote no output, or its output file is missing.
    #[error("it printed no {0}")]
    Nothing(&'static str),
    /// A line is not in the expected format.
    #[error("expected {what}, found: {}", line.trim())]
    Line {
        /// Description of the expected line.
        what: &'static str,
        /// The line.
        line: String,
    },
}

impl Unreadable {
    fn line(what: &'static str, line: &str) -> Self {
        Self::Line {
            what,
            line: line.chars().take(80).collect(),
        }
    }
}

/// Parses the files that a tool wrote, and returns the tool's entry in the statement. For the
/// audit, returns `audit` instead.
pub fn report(ran: &Ran, audit: Noise, file: &dyn Fn(&str) -> Option<String>) -> PeerReport {
    let text = |name: &str| file(name).unwrap_or_default();
    let outcome = match (&ran.absent, &ran.failed, ran.peer) {
        (Some(why), ..) => Ok(PeerOutcome::Absent(why.clone())),
        (_, Some(why), _) => Ok(PeerOutcome::Failed(why.clone())),
        (.., Peer::Audit) => Ok(PeerOutcome::Noise(audit)),
        (.., Peer::Osnoise) => osnoise(&text(OSNOISE), &text(EVENTS)).map(PeerOutcome::Noise),
        (.., Peer::Timerlat) => printed::timerlat(&text(TIMERLAT)).map(PeerOutcome::Latency),
        (.., Peer::Cyclictest) => printed::cyclictest(&text(CYCLICTEST)).map(PeerOutcome::Latency),
    };
    PeerReport {
        peer: ran.peer,
        command: ran.command.clone(),
        outcome: outcome.unwrap_or_else(|why| PeerOutcome::Failed(why.to_string())),
    }
}

/// Combines the sums that osnoise printed with a breakdown of the time in gaps, which is computed
/// from osnoise's events.
fn osnoise(table: &str, trace: &str) -> Result<Noise, Unreadable> {
    let sums = printed::osnoise(table)?;
    Ok(Noise {
        watched: sums.runtime,
        floor: Nanos::from_micros(OSNOISE_THRESHOLD),
        total: sums.noise,
        longest: sums.longest,
        yielded: None,
        counts: Some(sums.counts),
        attribution: events::attribution(trace)?,
    })
}

#[cfg(test)]
mod tests;
