//! Tests of all verbs that need neither root nor a guest.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod casebook;
mod command;
#[path = "../common/mod.rs"]
mod common;
mod files;
mod hostile;
mod incidents;
mod knobs;
mod net;
mod pace;
mod packets;
mod part;
mod process_limits;
mod sim;
mod storage;
mod sweep;
