//! `stop`: moves a running thread to another CPU and back, which requires the stop class.
//!
//! To move a running thread, the kernel wakes `migration/N`, the highest-priority thread on CPU N.
//! On its way back, the thread is usually not running, but waiting for the CPU that the moving
//! thread occupies. It can then be moved without `migration/N`.

use nix::sched::sched_setaffinity;

use crate::clock;
use crate::control::{Arm, Control};
use crate::counters;
use crate::error::InjectError;
use crate::place;
use crate::plan::Plan;
use crate::spinner::{self, Spinner};
use crate::truth::{Count, Event, Measured, Truth};

use super::{thread, truth_of};

pub(super) fn run(plan: &Plan, control: &Control) -> Result<Truth, InjectError> {
    let other = place::other_than(plan.cpu, plan.disturbance.name())?;
    place::pin(place::SELF, other)?;
    // This thread spins only so that it is running when it is moved. Its gaps are not used, because
    // it also loses time on the other CPU.
    let target = Spinner::start(plan.cpu, 0)?;
    let (away, back) = (place::only(other)?, place::only(plan.cpu)?);
    let failed =
        |e| InjectError::system("move a thread to another CPU", e, "keep both CPUs online");

    let stopper = format!("migration/{}", plan.cpu);
    let stopper_pid = counters::kernel_thread(&stopper);
    let before = stopper_pid.and_then(counters::run_time);
    let walk = control.walk(plan, Arm::WhenEarly, |due, _| {
        let start = clock::now();
        sched_setaffinity(target.tid(), &away).map_err(failed)?;
        sched_setaffinity(target.tid(), &back).map_err(failed)?;
        Ok(Event {
            due,
            start,
            length: clock::now() - start,
            cpu_time: None,
        })
    })?;
    let after = stopper_pid.and_then(counters::run_time);
    target.finish()?;

    let moving = walk.log.length;
    let also = [format!("migration/{other}"), thread(spinner::COMM)];
    let mut truth = truth_of(
        plan,
        walk,
        thread(&stopper),
        &[also[0].as_str(), also[1].as_str()],
    );
    if let Some((before, after)) = before.zip(after) {
        truth.injected = Some(Measured::new(
            after.0 - before.0,
            format!("schedstat of {stopper}"),
        ));
        truth.counts.push(Count {
            name: format!("{stopper} ran"),
            value: after.1 - before.1,
        });
    }
    let method = "CLOCK_MONOTONIC around each move and its return, on the mover's CPU";
    truth.measured.push(Measured::new(moving, method));
    Ok(truth)
}
