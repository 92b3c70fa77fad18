//! What the file promises: it reads back as written, says what is wrong with it in words, and is
//! never there by halves.

mod damage;
mod helpers;
mod roundtrip;
mod unfinished;
