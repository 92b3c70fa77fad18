//! Tasks: their programs of steps, and reports about them.

use ticktax_model::Nanos;
use ticktax_model::autogroup::Autogroup;
use ticktax_model::pace::PaceRule;

use crate::random::Law;
use crate::timer::Call;

/// A task, identified by its index in the setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// The index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Scheduling class of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// `SCHED_OTHER`, scheduled by the machine's policy.
    #[default]
    Normal,
    /// `SCHED_FIFO` with a priority from 1 to 99.
    Fifo(u8),
    /// `SCHED_RR` with a priority from 1 to 99.
    RoundRobin(u8),
}

/// Attributes of a task that schedulers use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Scheduling class.
    pub class: Class,
    /// Nice value, from -20 (most important) to 19.
    pub nice: i8,
    /// The only allowed CPU, if the task is pinned.
    pub cpu: Option<usize>,
    /// Process number; tasks of one process share their memory.
    pub process: u32,
    /// Requested slice, for schedulers that support it.
    pub slice: Option<Nanos>,
    /// Autogroup of the task, for schedulers that first share between groups.
    pub autogroup: Option<Autogroup>,
}

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Computes for this long at the CPU's full speed; at least 1 ns.
    Work(Law),
    /// Works in the kernel without being preemptible; at least 1 ns.
    Kernel(Law),
    /// Works with interrupts masked; at least 1 ns.
    Masked(Law),
    /// Sleeps for this long.
    Sleep(Call, Law),
    /// Sleeps for the rest of a time since the last [`Step::Frame`]. Elapsed time counts in whole
    /// units: `time - int(passed / unit) · unit`. Does not sleep if nothing is left.
    SleepRest {
        /// The system call.
        call: Call,
        /// The intended time between two frames.
        time: Nanos,
        /// The program's unit of time.
        unit: Nanos,
    },
    /// Sleeps until the next multiple of this time.
    SleepUntil(Call, Nanos),
    /// Computes until the next multiple of this time, polling the clock as a program does to avoid
    /// delays. It ends at that time, regardless of interrupts and the CPU's speed. If another task
    /// is running then, it ends when this task runs again.
    SpinUntil(Nanos),
    /// Waits until the next frame is due, according to a [`PaceRule`]. If that time has passed, it
    /// continues immediately. The next step must be [`Step::Frame`].
    Pace {
        /// Rule for the due times of frames.
        rule: PaceRule,
        /// Time between two frames.
        period: Nanos,
        /// Unit of the sleep call: sleeps are rounded up to whole units.
        unit: Nanos,
        /// Time before the due time at which the task stops sleeping and computes as in
        /// [`Step::SpinUntil`]: 0 for sleeping only, a period or more for spinning only.
        spin: Nanos,
    },
    /// Delays the next wakeup after its timer. It stands for delays outside the modelled kernel,
    /// such as those of a hypervisor.
    Late(Law),
    /// Waits for this long for an external event, without a timer of this kernel.
    Arrive(Law),
    /// Works once per period, if a period has started since the last time: a simulation with fixed
    /// steps inside a faster loop. Steps that come too late are counted and skipped.
    Every {
        /// The period.
        period: Nanos,
        /// Work of a step.
        work: Law,
    },
    /// Starts a frame: counts it and records the time.
    Frame,
    /// Yields the CPU.
    Yield,
    /// Acquires this lock, waiting in first-come order.
    Lock(usize),
    /// Releases the lock to the first waiter.
    Unlock(usize),
    /// Signals a task, which ends its current or next [`Step::Wait`].
    Signal(TaskId),
    /// Waits for a signal.
    Wait,
    /// Takes a packet from this link's socket buffer, waiting for one if necessary, and works on
    /// it.
    Receive(usize, Law),
    /// Ends the task.
    Exit,
}

impl Step {
    /// Whether the step always takes time. Time then passes in a program that repeats it.
    pub fn takes_time(&self) -> bool {
        matches!(
            self,
            Self::Work(_)
                | Self::Kernel(_)
                | Self::Masked(_)
                | Self::Sleep(..)
                | Self::SleepUntil(..)
                | Self::SpinUntil(_)
                | Self::Arrive(_)
                | Self::Receive(..)
                | Self::Exit
        )
    }

    /// The law that the step draws a time from.
    pub(crate) fn law(&self) -> Option<&Law> {
        match self {
            Self::Work(law)
            | Self::Kernel(law)
            | Self::Masked(law)
            | Self::Sleep(_, law)
            | Self::Late(law)
            | Self::Arrive(law)
            | Self::Every { work: law, .. }
            | Self::Receive(_, law) => Some(law),
            _ => None,
        }
    }
}

/// Model of how a task's memory returns to the cache after another task has used it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Cost of loading all of it.
    pub refill: Nanos,
    /// CPU time in which a task touches 1 - 1/e of it.
    pub tau: Nanos,
}

/// Specification of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// Name of the task.
    pub name: String,
    /// Whether it is a kernel thread.
    pub kernel: bool,
    /// Attributes that schedulers use.
    pub attributes: Attributes,
    /// When the task is created.
    pub start: Nanos,
    /// Its steps, repeated in a loop.
    pub program: Vec<Step>,
    /// Index of its quota group.
    pub group: Option<usize>,
    /// Its memory, if the cache is modelled.
    pub footprint: Option<Footprint>,
}

impl TaskSpec {
    /// A program that is not pinned, at nice 0, created at the start.
    pub fn new(name: &str, program: Vec<Step>) -> Self {
        Self {
            name: name.to_owned(),
            kernel: false,
            attributes: Attributes::default(),
            start: Nanos::ZERO,
            program,
            group: None,
            footprint: None,
        }
    }

    /// Pins the task to a CPU.
    #[must_use]
    pub fn on(mut self, cpu: usize) -> Self {
        self.attributes.cpu = Some(cpu);
        self
    }

    /// Sets the scheduling class.
    #[must_use]
    pub fn class(mut self, class: Class) -> Self {
        self.attributes.class = class;
        self
    }

    /// Sets the cache footprint.
    #[must_use]
    pub fn footprint(mut self, footprint: Footprint) -> Self {
        self.footprint = Some(footprint);
        self
    }
}

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not created yet.
    Unborn,
    /// Queued for a CPU.
    Runnable,
    /// Running on this CPU.
    Running(usize),
    /// Waiting for a timer.
    Sleeping,
    /// Waiting for a packet, a lock or an external event.
    Blocked,
    /// Waiting for a signal.
    Waiting,
    /// Held back because its group's quota is used up.
    Throttled,
    /// Ended.
    Ended,
}

/// Report about a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskReport {
    /// Exact CPU time, without interrupts.
    pub ran: Nanos,
    /// Number of ticks that found it running.
    pub sampled: u64,
    /// Completed work that its program asked for. It is less than `ran` if caches or context
    /// switches cost time.
    pub work: Nanos,
    /// Number of steps that worked.
    pub bursts: u64,
    /// Number of times that it started to run after another task or idle time.
    pub switches: u64,
    /// Number of times that its memory had to be reloaded into the cache.
    pub refills: u64,
    /// Total cost of the reloads.
    pub refill_time: Nanos,
    /// Number of [`Step::Frame`]s.
    pub frames: u64,
    /// Number of missed steps of [`Step::Every`].
    pub overshot: u64,
    /// Number of completed sleeps.
    pub sleeps: u64,
    /// Smallest excess of a sleep over the requested time; negative if one was too short.
    pub min_late: Option<Nanos>,
    /// Total wake-up latency.
    pub latency: Nanos,
    /// Largest wake-up latency.
    pub worst_latency: Nanos,
    /// Longest time from the end of a wait, or the intended end of a sleep, until it ran.
    pub worst_lateness: Nanos,
    /// Number of received packets.
    pub packets: u64,
    /// Time during which its group's quota held it back.
    pub throttled: Nanos,
}
