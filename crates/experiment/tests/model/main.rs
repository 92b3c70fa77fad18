//! Tests the model, both with properties that hold for random setups and with cases worked out by
//! hand.

mod accounting;
mod fixture;
mod followed;
mod groups;
mod invariants;
mod lateness;
mod recording;
mod situations;
mod spinning;
mod wakers;
