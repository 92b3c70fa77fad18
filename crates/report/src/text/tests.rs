//! Pages as they come out, and what holds for all of them.

pub(crate) mod accounting;
mod advice;
pub(crate) mod beats;
pub(crate) mod changes;
mod golden;
pub(crate) mod grids;
pub(crate) mod incidents;
pub(crate) mod kernels;
mod knobs;
pub(crate) mod net;
pub(crate) mod net_experiment;
pub(crate) mod pace;
mod packets;
pub(crate) mod properties;
pub(crate) mod samples;
pub(crate) mod screens;
mod sure;
pub(crate) mod ticks;
pub(crate) mod trials;
pub(crate) mod victims;
