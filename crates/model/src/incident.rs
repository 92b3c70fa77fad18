//! Incidents: rare delays that a flight recorder caught.

mod trigger;

pub use trigger::{Trigger, TriggerKind, TriggerSpec, TriggerSpecError, TriggerTarget};
