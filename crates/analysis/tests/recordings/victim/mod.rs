//! Tests the victim's statement in scenarios whose outcome is known.
mod ended;
pub(crate) mod fixture;
mod follow;
mod lives;
mod migration;
mod properties;
mod steal;
mod throttling;
