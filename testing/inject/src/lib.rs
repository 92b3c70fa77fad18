//! Disturbances of known size and time, to test what ticktax reports about them.
//!
//! Describe a disturbance with a [`Plan`]: the [`Disturbance`], its CPU, its [`Schedule`], and its
//! duration. [`run`] it, or [`spawn`] it to observe the machine at the same time. The result is a
//! [`Truth`]: the events, their times, and their cost in CPU time, as far as the injector can know
//! it, with the method of measurement.
//!
//! All changes that a disturbance makes to the machine are undone at its end, even after a failure:
//! a cgroup, a network namespace, or the scheduling of its threads. This library prints nothing.

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

/// Runs one disturbance to its end.
pub fn run(plan: &Plan) -> Result<Truth, InjectError> {
    spawn(plan)?.finish()
}

/// Starts a disturbance. Returns after its preparation, including the control time that some kinds
/// measure first.
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
    // A disturbance that fails before it starts drops the sender.
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

/// CPUs that this process can disturb.
pub fn allowed_cpus() -> Result<ticktax_model::CpuList, InjectError> {
    place::allowed_cpus()
}

/// Removes cgroups of killed injectors. Returns their number.
pub fn remove_stale_groups() -> usize {
    cgroup::remove_stale()
}

/// A running disturbance. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    start: Nanos,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<Truth, InjectError>>>,
}

impl Running {
    /// Start time, on `CLOCK_MONOTONIC`.
    pub fn start(&self) -> Nanos {
        self.start
    }

    /// A handle to stop it early, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Stops the disturbance now and returns its truth.
    pub fn stop(mut self) -> Result<Truth, InjectError> {
        self.stopper.stop();
        self.join()
    }

    /// Waits for the end and returns the truth.
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
            // Nobody needs its result, but wait for its end.
            let _ = thread.join();
        }
    }
}

/// The default CPU: the last permitted one, because the first one is usually the busiest.
pub fn default_cpu() -> Result<Cpu, InjectError> {
    place::allowed_cpus().map(|cpus| cpus.iter().last().unwrap_or(Cpu(0)))
}
