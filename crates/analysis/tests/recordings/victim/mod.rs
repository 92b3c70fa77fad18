//! The victim's statement against worlds whose truth is known.
mod ended;
mod fixture;
mod follow;
mod migration;
mod properties;
mod steal;
mod throttling;
