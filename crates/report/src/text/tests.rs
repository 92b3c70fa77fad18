//! Pages as they come out, and what holds for all of them.

mod beats;
mod golden;
mod pace;
mod properties;
mod samples;
mod victims;
