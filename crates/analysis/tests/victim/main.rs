//! The victim's statement against worlds whose truth is known.

mod properties;
mod world;
