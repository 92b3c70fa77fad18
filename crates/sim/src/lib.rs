//! A deterministic model of how a kernel spends CPU time.
//!
//! The model covers tick clocks that may be out of phase between CPUs, timers rounded to ticks,
//! schedulers, interrupts with mask levels, CPU quotas, packet queues and caches. It accounts for
//! CPU time twice: exactly, in ns, and by sampling at the tick. Time is in whole ns and randomness
//! comes from a seed, so the same setup produces the same trace on every machine. Events are
//! emitted as rows of a recording, so every analysis of a live machine also works on a simulated
//! one, for which the correct results are known.
//!
//! ```
//! use ticktax_model::Nanos;
//! use ticktax_sim::{Machine, Policy, Setup, Step, TaskSpec};
//! use ticktax_sim::{Call, Law};
//!
//! let mut setup = Setup::new(Machine::new(1, 100, Policy::O1), Nanos::from_secs(10));
//! let work = Step::Work(Law::Fixed(Nanos::from_millis(4)));
//! let sleep = Step::Sleep(Call::Nanosleep, Law::Fixed(Nanos::from_millis(10)));
//! setup.tasks.push(TaskSpec::new("sampled", vec![sleep, work]));
//! let report = ticktax_sim::run(&setup)?;
//! // The task works for 4 ms of every 20 ms. It starts right after a tick and finishes before the
//! // next one, so the kernel's tick-based accounting never sees it.
//! assert_eq!(report.tasks[0].ran, Nanos::from_millis(4 * 500));
//! assert_eq!(report.tasks[0].sampled, 0);
//! # Ok::<(), ticktax_sim::SetupError>(())
//! ```
#![forbid(unsafe_code)]

mod agenda;
pub mod cache;
pub mod clock;
mod engine;
mod fixed;
mod hash;
mod paced;
mod random;
mod record;
mod report;
pub mod rtc;
pub mod scenario;
pub mod scheduler;
pub mod settings;
mod setup;
mod speed;
mod task;
mod timer;

pub use clock::{Device, Grid};
pub use engine::{Followed, Frames, follow, frames, record, run, run_within};
pub use random::{Law, Stream};
pub use record::facts;
pub use report::{CpuReport, LinkReport, Mode, Report};
pub use scheduler::{Policy, base_slice};
pub use setup::{
    Costs, Group, Link, Machine, Setup, SetupError, SetupFault, SetupPart, Source, Then,
};
pub use speed::Speed;
pub use task::{Attributes, Class, Footprint, Step, TaskId, TaskReport, TaskSpec};
pub use ticktax_model::machine::TickMode;
pub use timer::{Call, Due, Grids, TimerRule};
