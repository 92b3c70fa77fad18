//! Tests the victim's statement against worlds with known truth.
mod ended;
mod fixture;
mod follow;
mod migration;
mod properties;
mod steal;
mod throttling;
