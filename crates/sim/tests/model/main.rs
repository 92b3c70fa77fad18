//! Tests of the model: properties that random setups must have, and situations calculated by hand.

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
