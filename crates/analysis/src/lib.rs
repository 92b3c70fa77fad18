//! What ticktax makes of a recording.
//!
//! Everything here is a pure function of a recording's rows and header: nothing reads a clock, a
//! file or the environment, and nothing prints. A recording of a live machine, of a lab guest and
//! of the simulator go through the same code.
//!
//! # The path of a row
//!
//! ```text
//! rows ─► timeline ─► typed events, and each CPU's recent past
//!                       ├─► ledger ─────► accounts, gaps and their causes ─┐
//!                       ├─► tick ───────► the tick's bill                  │
//!                       ├─► accounting ─► what the counters show           ├─► statement ─► figures
//!                       ├─► beats ──────► what repeats                     │   (findings)
//!                       ├─► packets ────► what delayed them               │
//!                       ├─► victim ─────► one program's time ──────────────┘
//!                       ├─► pace ───────► a process' frames
//!                       └─► workload ───► what had to be done, for running it again
//! ```
//!
//! 1. `timeline` resolves what each source means, once, and emits an event a row. It keeps each
//!    CPU's recent past, for questions such as what ran during an interval.
//! 2. The consumers read events. [`Auditor`] holds them all, beside one timeline: those that make a
//!    statement keep sums and no rows, those that make frames and workloads keep rows and are there
//!    when they are asked for. [`BeatFinder`] is one consumer with a timeline of its own, for the
//!    verb that wants nothing else. [`RecordingAnalysis`] takes whichever a recording is for.
//! 3. `statement` puts together what they made, findings included: nothing else makes a
//!    [`Statement`](ticktax_model::statement::Statement), and nothing is filled in later.
//! 4. [`incident`] reads the rows around a flight recorder's trigger, which are few, by itself.
//! 5. [`figures()`] reads from a statement the few numbers that predictions are compared by.
//!
//! [`net`] reads from rows what traffic cost between its first byte and its last, and keeps few of them.
//!
//! An agent's recording does not end: [`totals`] is the consumer that it has in place of these.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod advice;
mod auditor;
pub mod beats;
mod figures;
pub mod findings;
mod follow;
pub mod incident;
mod ledger;
pub mod net;
pub mod pace;
mod packet_path;
pub mod packets;
mod part;
mod ran;
mod real_time;
mod recording;
mod statement;
pub mod tick;
mod timeline;
pub mod totals;
mod victim;
mod waits;
pub mod workload;

pub use auditor::Auditor;
pub use beats::BeatFinder;
pub use figures::{figures, of_frames};
pub use follow::{Follow, FollowError, Followed, Subject};
pub use part::{Cut, CutError};
pub use recording::RecordingAnalysis;
