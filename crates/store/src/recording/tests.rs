//! Tests for the recording format. A file is read back as it was written, errors have messages for
//! users, and incomplete files never appear.

mod columns;
mod damage;
mod flips;
mod helpers;
mod limits;
mod roundtrip;
mod schema2;
mod unfinished;
