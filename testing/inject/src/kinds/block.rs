//! `block`: a pinned thread that waits uninterruptibly for a child process (`CLONE_VFORK`).
//!
//! The child sleeps for the length of the event and then exits, which wakes the thread.

use ticktax_model::Nanos;

use crate::clock;
use crate::control::{Arm, Control};
use crate::error::InjectError;
use crate::place;
use crate::plan::Plan;
use crate::sys;
use crate::truth::{Event, Measured, Truth};

use super::{thread, truth_of};

pub(super) fn run(plan: &Plan, control: &Control) -> Result<Truth, InjectError> {
    place::pin(place::SELF, plan.cpu)?;
    let failed = |e| InjectError::system("start a process", e, "raise the limit of processes");
    let walk = control.walk(plan, Arm::WhenEarly, |due, length| {
        let start = clock::now();
        sys::wait_for_child(length).map_err(failed)?;
        Ok(Event {
            due,
            start,
            length: clock::now() - start,
            cpu_time: None,
        })
    })?;
    let passed: Nanos = walk.log.length;
    let account = thread(plan.disturbance.comm());
    let mut truth = truth_of(plan, walk, account, &["local_timer"]);
    let method = "CLOCK_MONOTONIC around each call, which is longer than the wait";
    truth.measured.push(Measured::new(passed, method));
    Ok(truth)
}
