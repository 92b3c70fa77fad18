//! The victim's statement against worlds whose truth is known.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod ended;
mod fixture;
mod migration;
mod properties;
mod steal;
mod throttling;
