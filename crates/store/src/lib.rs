//! The data that ticktax keeps on disk: recordings, tables, facts and incidents.
//!
//! Recordings, tables and facts are Parquet files. A [`recording`] contains the rows and the header
//! of one observation. A [`table`] has columns that are determined at run time. A [`facts`]
//! directory contains files that can be merged across many machines. [`incidents`] is a flight
//! recorder's directory. All of these write through [`disk`], so that their files appear either
//! complete or not at all. They read through [`parquet_file`], which checks a file of unknown
//! origin before the Parquet library reads it. [`text`] reads cases, scenarios and JSON documents.
//!
//! The types of rows, headers and facts are in `ticktax_model`, which does no I/O.
#![forbid(unsafe_code)]

pub mod disk;
pub mod facts;
pub mod incidents;
pub mod parquet_file;
pub mod recording;
pub mod table;
pub mod text;
