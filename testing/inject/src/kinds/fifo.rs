//! `fifo`: a pinned real-time thread that spins.
//!
//! The thread preempts every ordinary thread as soon as its timer wakes it. ticktax reports it
//! under its own name. Its timer and its wake-ups are visible as well.

use ticktax_model::Nanos;

use crate::clock;
use crate::control::{Arm, Control};
use crate::error::InjectError;
use crate::place;
use crate::plan::Plan;
use crate::sys;
use crate::truth::{Event, Measured, Truth};

use super::{thread, truth_of};

pub(super) fn run(plan: &Plan, priority: i32, control: &Control) -> Result<Truth, InjectError> {
    place::pin(place::SELF, plan.cpu)?;
    sys::set_fifo(priority).map_err(|e| {
        let tried = format!("give a thread the real-time priority {priority}");
        InjectError::system(
            tried,
            e,
            "run as root, in a cgroup that may run real-time threads",
        )
    })?;
    let walk = control.walk(plan, Arm::WhenEarly, |due, length| {
        let start = clock::now();
        let before = clock::thread_cpu();
        let end = clock::spin(start, length);
        let cpu_time = Some(clock::thread_cpu() - before);
        Ok(Event {
            due,
            start,
            length: end - start,
            cpu_time,
        })
    })?;
    let (cpu, passed): (Nanos, Nanos) = (walk.log.cpu_time, walk.log.length);
    let account = thread(plan.disturbance.comm());
    let mut truth = truth_of(plan, walk, account, &["local_timer"]);
    truth.injected = Some(Measured::new(
        cpu,
        "CLOCK_THREAD_CPUTIME_ID around each spin",
    ));
    truth
        .measured
        .push(Measured::new(passed, "CLOCK_MONOTONIC around each spin"));
    Ok(truth)
}
