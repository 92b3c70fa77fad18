//! Tests for the recording format: recordings round-trip, errors have messages for users, and
//! incomplete files never appear.

mod columns;
mod damage;
mod flips;
mod helpers;
mod limits;
mod roundtrip;
mod schema2;
mod unfinished;
