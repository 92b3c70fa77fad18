//! Tests the victim's statement with worlds whose truth is known.
mod ended;
mod fixture;
mod follow;
mod migration;
mod properties;
mod steal;
mod throttling;
