//! What the benchmarks share with their tests: tables, words typed, and other people's tools in a guest.

pub mod peers;
pub mod table;
pub mod typed;
