//! Causes disturbances of known size and time, in order to test what ticktax reports about them.
//!
//! A [`Plan`] describes a disturbance: the [`Disturbance`] itself, the CPU, the [`Schedule`] and
//! the duration. [`run`] performs it. [`spawn`] performs it in the background, so that the machine
//! can be observed during that time. The result is a [`Truth`]: when the events happened, how much
//! CPU time they took (if the injector can know that), and how that was measured.
//!
//! A disturbance may change the machine, such as its cgroups, network namespaces or thread
//! priorities. All changes are undone when it ends, even if it fails. This library prints nothing.

pub mod error;
pub mod plan;
pub mod schedule;
pub mod shares;
pub mod stolen;
pub mod truth;
#[cfg(target_arch = "x86_64")]
pub mod vm;

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
pub use sys::{absent, system_clock, victims};
pub use truth::{Count, Event, Measured, Truth};

use control::Control;

/// Runs a disturbance and waits until it ends.
pub fn run(plan: &Plan) -> Result<Truth, InjectError> {
    spawn(plan)?.finish()
}

/// Starts a disturbance. Returns once it is prepared, which for some kinds includes measuring a
/// control interval.
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
    // A disturbance that fails before it starts drops the sender, which makes this call fail.
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

/// Returns the CPUs that this process can disturb.
pub fn allowed_cpus() -> Result<ticktax_model::CpuList, InjectError> {
    place::allowed_cpus()
}

/// Removes the cgroups of injectors that were killed, and returns how many it removed.
pub fn remove_stale_groups() -> usize {
    cgroup::remove_stale()
}

/// A disturbance in progress. Dropping this stops the disturbance.
#[derive(Debug)]
pub struct Running {
    start: Nanos,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<Truth, InjectError>>>,
}

impl Running {
    /// Returns the time at which the disturbance started, on `CLOCK_MONOTONIC`.
    pub fn start(&self) -> Nanos {
        self.start
    }

    /// Returns a handle with which any thread can stop the disturbance early.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Stops the disturbance now and returns the truth about it.
    pub fn stop(mut self) -> Result<Truth, InjectError> {
        self.stopper.stop();
        self.join()
    }

    /// Waits until the disturbance ends and returns the truth about it.
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
            // Wait for the thread to finish, but ignore its result.
            let _ = thread.join();
        }
    }
}

/// Returns the CPU to disturb by default. It is the last one allowed, because the first is usually
/// the busiest.
pub fn default_cpu() -> Result<Cpu, InjectError> {
    place::allowed_cpus().map(|cpus| cpus.iter().last().unwrap_or(Cpu(0)))
}
