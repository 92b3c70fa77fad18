//! Tests of the model: invariants of every machine, and single situations checked by hand.

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
