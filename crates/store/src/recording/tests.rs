//! What the file promises: it reads back as written, says what is wrong with it in words, and is
//! never there by halves.

mod columns;
mod damage;
mod flips;
mod helpers;
mod limits;
mod roundtrip;
mod schema1;
mod unfinished;
