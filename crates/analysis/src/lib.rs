//! Analyses recordings.
//!
//! All code in this crate is a pure function of a recording's rows and header. It reads no clock,
//! file or environment variable, and does not print. Recordings from a live machine, a lab guest
//! and the simulator all go through the same code.
//!
//! # The path of a row
//!
//! ```text
//! rows ─► timeline ─► typed events, and each CPU's recent past
//!                ├─► ledger ─────► accounts, gaps and their causes ─┐
//!                ├─► tick ───────► the cost of the tick             │
//!                ├─► accounting ─► the error of the counters        ├─► statement ─► figures
//!                ├─► beats ──────► periodic activity                │   (findings)
//!                ├─► packet_path ► delays of packets                │
//!                ├─► waits ──────► run-queue waits of all threads   │
//!                ├─► victim ─────► one program's time ──────────────┘
//!                ├─► pace ───────► a process's frames
//!                └─► workload ───► the work done, to run it again
//! ```
//! 1. `timeline` resolves the meaning of each source once and emits one event per row. It keeps
//!    each CPU's recent history, for questions such as what ran during an interval.
//! 2. The consumers read events. [`Auditor`] holds all of them and one timeline. Consumers that
//!    contribute to a statement keep sums, not rows. The consumers that find frames and workloads
//!    keep rows, and exist only on request. [`BeatFinder`] combines one consumer with a separate
//!    timeline, for the verb that needs nothing else. [`RecordingAnalysis`] chooses the consumers
//!    that a recording was made for.
//! 3. `statement` combines their results and judges the findings. Nothing else makes a
//!    [`Statement`](ticktax_model::statement::Statement), and nothing is filled in later.
//! 4. [`figures()`] extracts the few numbers in a statement that predictions are compared with.
//!
//! Three modules do not use the auditor. [`incident`] reads the few rows around a flight recorder's
//! trigger. [`net`] computes the CPU cost of traffic between its first and last byte, and keeps few
//! rows. [`totals`] is the only consumer that an agent uses, because its recording never ends.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod advice;
mod auditor;
pub mod beats;
mod fast_map;
mod figures;
pub mod findings;
mod follow;
mod groups;
mod guests;
pub mod incident;
pub mod judge;
mod late;
mod ledger;
mod names;
pub mod net;
pub mod pace;
mod packet_path;
pub mod packets;
mod part;
mod profile;
mod ran;
mod real_time;
mod recording;
mod sampled;
mod segments;
mod served;
mod started;
mod statement;
mod stops;
pub mod tick;
mod timeline;
pub mod totals;
mod victim;
mod waited;
mod waits;
pub mod workload;

pub use auditor::Auditor;
pub use beats::BeatFinder;
pub use figures::{figures, of_frames};
pub use follow::{Follow, FollowError, Followed, Subject};
pub use part::{Cut, CutError};
pub use recording::RecordingAnalysis;
