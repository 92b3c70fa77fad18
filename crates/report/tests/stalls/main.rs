//! First screens about programs that stall. Each test writes a recording of one situation, analyses
//! it, and compares the screen with a snapshot.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod maker;
mod mixed;
mod situations;
