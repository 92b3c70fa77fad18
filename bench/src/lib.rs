//! What the benchmarks share with their tests: tables, and other people's tools in a guest.

pub mod peers;
pub mod table;
