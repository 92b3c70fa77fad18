//! `timer`: a high-resolution timer that expires at each event.
//!
//! A thread pinned to the CPU arms the timer, so it expires on that CPU unless the CPU is isolated
//! from timers (`nohz_full`, `isolcpus`). The thread does nothing else, but its wake-ups also take
//! CPU time, which appears under its name.

use ticktax_model::Nanos;

use crate::clock;
use crate::control::{Arm, Control};
use crate::counters::CounterWatch;
use crate::error::InjectError;
use crate::place;
use crate::plan::Plan;
use crate::truth::{Event, Truth};

use super::{thread, truth_of};

pub(super) fn run(plan: &Plan, control: &Control) -> Result<Truth, InjectError> {
    place::pin(place::SELF, plan.cpu)?;
    let counter = CounterWatch::interrupts("LOC", plan.cpu);
    let walk = control.walk(plan, Arm::Always, |due, _| {
        Ok(Event {
            due,
            start: clock::now(),
            length: Nanos::ZERO,
            cpu_time: None,
        })
    })?;
    let account = "local_timer";
    let mut truth = truth_of(plan, walk, account, &[&thread(plan.disturbance.comm())]);
    truth.counts.extend(counter.end());
    Ok(truth)
}
