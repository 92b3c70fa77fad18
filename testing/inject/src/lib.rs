//! Disturbances of known size and time, so that tests can check what ticktax says about them.
//!
//! Describe one with a [`Plan`] (which [`Disturbance`], on which CPU, by which [`Schedule`], for
//! how long), then [`run`] it, or [`spawn`] it to observe the machine meanwhile. Both end in a
//! [`Truth`]: what was done, when, and how much of the CPU's time it took, as far as the injector
//! itself can know it, with the method that measured it.
//!
//! Whatever a disturbance changes on the machine (a cgroup, a network namespace, its own threads'
//! scheduling) is undone when it ends, also when it fails. Nothing here prints.

pub mod error;
pub mod plan;
pub mod schedule;
pub mod truth;

mod cgroup;
mod clock;
mod control;
mod counters;
mod kinds;
mod place;
mod spinner;
mod sys;

use std::sync::mpsc;
use std::thread::JoinHandle;

use ticktax_model::{Cpu, Nanos};

pub use control::Stopper;
pub use counters::{kernel_thread, run_time};
pub use error::InjectError;
pub use plan::{Disturbance, Plan, Window};
pub use schedule::Schedule;
pub use truth::{Count, Event, Measured, Truth};

use control::Control;

/// Runs one disturbance to its end, and says what it did.
pub fn run(plan: &Plan) -> Result<Truth, InjectError> {
    spawn(plan)?.finish()
}

/// Begins a disturbance, and returns when it has begun: what it had to prepare, and the control
/// period that some kinds measure before, lie behind it then.
pub fn spawn(plan: &Plan) -> Result<Running, InjectError> {
    plan.check()?;
    let stopper = Stopper::new()?;
    let (tell, started) = mpsc::channel();
    let control = Control::new(stopper.clone(), tell)?;
    let plan = plan.clone();
    let thread = std::thread::Builder::new()
        .name(plan.disturbance.comm().to_owned())
        .spawn(move || kinds::run(&plan, &control))
        .map_err(|e| InjectError::io("start a thread", &e, "raise the limit of threads"))?;
    // A disturbance that fails before it begins hangs up.
    let began = started.recv();
    let mut running = Running {
        start: Nanos::ZERO,
        stopper,
        thread: Some(thread),
    };
    if let Ok(start) = began {
        running.start = start;
        return Ok(running);
    }
    Err(running.join().err().unwrap_or(InjectError::Panicked))
}

/// The CPUs that this process may disturb.
pub fn allowed_cpus() -> Result<ticktax_model::CpuList, InjectError> {
    place::allowed_cpus()
}

/// Removes the cgroups of injectors that were killed before they could; says how many.
pub fn remove_stale_groups() -> usize {
    cgroup::remove_stale()
}

/// A disturbance that goes on. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    start: Nanos,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<Truth, InjectError>>>,
}

impl Running {
    /// When it began, on `CLOCK_MONOTONIC`.
    pub fn start(&self) -> Nanos {
        self.start
    }

    /// What ends it early, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Ends it now, and says what it did.
    pub fn stop(mut self) -> Result<Truth, InjectError> {
        self.stopper.stop();
        self.join()
    }

    /// Waits for its end, and says what it did.
    pub fn finish(mut self) -> Result<Truth, InjectError> {
        self.join()
    }

    fn join(&mut self) -> Result<Truth, InjectError> {
        let ended = self.thread.take().map(JoinHandle::join);
        ended
            .unwrap_or(Ok(Err(InjectError::Panicked)))
            .unwrap_or(Err(InjectError::Panicked))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            // Its result has no receiver any more; that it has ended is what matters.
            let _ = thread.join();
        }
    }
}

/// The CPU to disturb by default: the last one allowed, as the first is the busiest.
pub fn default_cpu() -> Result<Cpu, InjectError> {
    place::allowed_cpus().map(|cpus| cpus.iter().last().unwrap_or(Cpu(0)))
}
