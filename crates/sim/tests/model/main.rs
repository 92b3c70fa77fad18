//! The model against what must hold of every machine, and against single situations by hand.

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
