//! Everything that ticktax keeps on disk: recordings, tables, facts, and incidents.
//!
//! Recordings, tables and facts are Parquet files. [`recording`] holds the rows and the header of
//! one observation, [`table`] has columns that are chosen at run time, and [`facts`] is a folder of
//! files that many machines can merge. [`incidents`] is the folder of a flight recorder. All of
//! them write through [`disk`], whose files appear complete or not at all, and read through
//! [`parquet_file`], which checks a file of unknown origin before the Parquet library sees it.
//!
//! The types of rows, headers and facts are in `ticktax_model`, which does no I/O.
#![forbid(unsafe_code)]

pub mod disk;
pub mod facts;
pub mod incidents;
pub mod parquet_file;
pub mod recording;
pub mod table;
