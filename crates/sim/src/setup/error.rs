//! Errors that explain why a setup cannot be simulated.

use std::fmt;

use super::{MAX_LOCKS, MAX_SOURCES, MAX_TASKS};

/// Why a setup cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part}: {fault}")]
pub struct SetupError {
    /// The invalid part of the setup.
    pub part: SetupPart,
    /// The problem.
    pub fault: SetupFault,
}

/// A part of a setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupPart {
    /// The machine and the length of the simulation.
    Machine,
    /// The list of tasks.
    Tasks,
    /// The task with this name.
    Task(String),
    /// The list of interrupt sources.
    Interrupts,
    /// The interrupt source with this name.
    Interrupt(String),
    /// A group.
    Group,
}

impl fmt::Display for SetupPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("machine"),
            Self::Tasks => f.write_str("tasks"),
            Self::Task(name) => write!(f, "task {name}"),
            Self::Interrupts => f.write_str("interrupts"),
            Self::Interrupt(name) => write!(f, "interrupt {name}"),
            Self::Group => f.write_str("group"),
        }
    }
}

/// Why a part of a setup is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupFault {
    /// The machine has no CPU, or more than 8192.
    #[error("the number of CPUs must be 1 to 8192")]
    Cpus,
    /// The timer device cannot produce this tick rate.
    #[error("its timer device cannot tick at {hz} Hz")]
    TickRate {
        /// Ticks per second.
        hz: u64,
    },
    /// The machine has more tick phases than CPUs.
    #[error("there are more phases than CPUs")]
    TooManyPhases,
    /// A tick phase is negative or longer than a tick.
    #[error("a phase must be between 0 and one tick")]
    Phase,
    /// One of the kernel's costs is negative.
    #[error("costs must not be negative")]
    NegativeCost,
    /// Ticks would take at least half of the CPU time.
    #[error("a tick must cost less than half of its period")]
    TickCost,
    /// The list of CPUs that may stop their ticks contains a CPU that does not exist.
    #[error("nohz-full includes a CPU that does not exist")]
    NohzFull,
    /// The timer slack is negative.
    #[error("timer slack must not be negative")]
    Slack,
    /// The CPUs' speed is 0 or above full speed.
    #[error("the speed must be above 0 and at most full speed")]
    Speed,
    /// The simulation's length is negative.
    #[error("the length must not be negative")]
    Length,
    /// There are too many tasks.
    #[error("too many; give at most {max}", max = MAX_TASKS)]
    TooManyTasks,
    /// There are too many interrupt sources.
    #[error("too many; give at most {max}", max = MAX_SOURCES)]
    TooManyInterrupts,
    /// A group's quota or period is not positive.
    #[error("quota and period must be above 0")]
    Quota,
    /// The task to follow does not exist.
    #[error("cannot follow it: no such task")]
    NotFollowed,
    /// A task is pinned to a CPU that does not exist.
    #[error("it is pinned to a CPU that does not exist")]
    Pinned,
    /// A nice value is out of range.
    #[error("nice must be -20 to 19")]
    Nice,
    /// A real-time priority is out of range.
    #[error("a real-time priority must be 1 to 99")]
    Priority,
    /// A task's slice is not positive.
    #[error("the slice must be above 0")]
    Slice,
    /// A task's group does not exist.
    #[error("its group does not exist")]
    NoGroup,
    /// The refill cost of a cache footprint is negative, or its time constant is not positive.
    #[error("a footprint needs a refill of at least 0 and a tau above 0")]
    Footprint,
    /// A task's program would run forever without advancing the clock.
    #[error("its program never lets time pass; add a step that takes time")]
    TakesNoTime,
    /// The duration of a step is negative, or its range of durations is empty.
    #[error("a time is negative, or a range is empty")]
    Time,
    /// A paced loop's spin time is negative.
    #[error("the spin time must not be negative")]
    Spin,
    /// A step's period or unit is not positive.
    #[error("periods and units must be above 0")]
    Period,
    /// A step or an interrupt signals a task that does not exist.
    #[error("it signals a task that does not exist")]
    NoSignalledTask,
    /// A step uses a lock whose number is too large.
    #[error("lock numbers must be 0 to {max}", max = MAX_LOCKS - 1)]
    Lock,
    /// A step receives from a link that does not exist.
    #[error("it receives from a link that does not exist")]
    NoReceiveLink,
    /// An interrupt's CPU does not exist.
    #[error("its CPU does not exist")]
    NoCpu,
    /// An interrupt's interval is not positive.
    #[error("its interval must be above 0")]
    Interval,
    /// An interrupt's cost or start is negative.
    #[error("its cost and start must not be negative")]
    InterruptTimes,
    /// An interrupt delivers packets to a link that does not exist.
    #[error("its link does not exist")]
    NoLink,
    /// The cost of an interrupt's softirq is negative.
    #[error("the cost of its softirq must not be negative")]
    SoftirqCost,
}
