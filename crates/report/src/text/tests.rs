//! Pages as they come out, and what holds for all of them.

mod accounting;
mod advice;
mod beats;
mod changes;
mod golden;
mod grids;
mod incidents;
mod kernels;
mod knobs;
mod pace;
mod properties;
pub(crate) mod samples;
mod screens;
mod sure;
mod ticks;
mod trials;
mod victims;
