//! A recording reads back as written, a damaged one gets a clear message, and an unfinished one
//! does not appear.

mod columns;
mod damage;
mod flips;
mod helpers;
mod limits;
mod roundtrip;
mod schema2;
mod unfinished;
