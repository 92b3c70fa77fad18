//! Finds the functions that contain given places in an executable, a library or generated code.
//!
//! The files belong to the programs that are watched, so any byte of them can be wrong, and they
//! can change at any time. They are therefore read, never mapped, and everything that they say is
//! checked. A place has no name if it is uncertain: a missing name is better than a wrong one.
//!
//! Only the functions at the given places are kept. A symbol table of 100 MB is read in chunks and
//! needs no more memory than a small one.

#![forbid(unsafe_code)]

mod compressed;
mod demangle;
mod elf;
mod error;
mod find;
mod layout;
mod perf_map;
mod places;
mod unwind;

pub use demangle::readable;
pub use elf::{ElfFile, TableKind};
pub use error::SymbolError;
pub use find::{Named, functions_at};
pub use layout::BuildId;
pub use perf_map::functions_in_map;
pub use places::NamedPlaces;
pub use unwind::{Caller, Registers, UnwindFile};

/// Called after each chunk, so that long work can pause.
pub type Pause<'a> = &'a mut dyn FnMut();
