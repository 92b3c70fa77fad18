//! Tests of the model: properties of random setups, and situations calculated by hand.

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
