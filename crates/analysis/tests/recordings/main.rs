//! Tests the analysis with hand-made recordings.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod causes;
mod ledger;
mod pace;
mod packet_path;
mod profile;
mod saved;
mod stops;
mod tick;
mod victim;
