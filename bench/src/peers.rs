//! `ticktax-bench peers`: other people's tools beside an audit, in one guest.
//!
//! [`guest`] runs them there and sends what they wrote ([`Ran`], and a file each); [`report`] makes
//! of it what a [`statement`] says, and [`page`] prints that. The readers know the forms of rtla 6.1
//! to 6.12 and of cyclictest 2, and take nothing else for them.

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

/// The recording of the audit.
pub const RECORDING: &str = "recording.parquet";

/// The file in which the guest says what it ran: a [`Ran`] for each tool, in JSON.
pub const RUNS: &str = "runs.json";
/// What `rtla osnoise top` printed.
pub const OSNOISE: &str = "osnoise.txt";
/// The events of osnoise's tracer, as tracefs prints them.
pub const EVENTS: &str = "osnoise.events";
/// What `rtla timerlat top` printed.
pub const TIMERLAT: &str = "timerlat.txt";
/// What cyclictest printed.
pub const CYCLICTEST: &str = "cyclictest.txt";
/// From which length on osnoise counts a gap, in µs, which it is told: its own default.
pub const OSNOISE_THRESHOLD: i64 = 5;

/// Why there is nothing to compare.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// The lab failed.
    #[error(transparent)]
    Lab(#[from] ticktax_lab::LabError),
    /// The audit's recording cannot be read.
    #[error(transparent)]
    Recording(#[from] ticktax_store::recording::RecordingError),
    /// Something is not where it should be.
    #[error("{0}")]
    Place(String),
}

impl PeersError {
    /// The failure to do `what` with the file at `path`.
    fn file<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |error| ticktax_lab::LabError::of_file(what, path, &error).into()
    }
}

/// A tool that the guest ran, or why it did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Which.
    pub peer: Peer,
    /// Its command line.
    pub command: String,
    /// What it failed with.
    pub failed: Option<String>,
    /// Why this kernel cannot run it.
    pub absent: Option<String>,
}

/// Why something that a tool printed cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It printed nothing, or its file did not come.
    #[error("it printed no {0}")]
    Nothing(&'static str),
    /// A line is not as this tool writes it.
    #[error("expected {what}, found: {}", line.trim())]
    Line {
        /// What was expected.
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

/// What a tool told, from the files that it left; `audit` is the audit's.
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

/// What osnoise summed up itself, with what its events say of the gaps.
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
