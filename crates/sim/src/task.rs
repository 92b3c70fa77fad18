//! Tasks, their programs and their results.

use ticktax_model::Nanos;
use ticktax_model::autogroup::Autogroup;
use ticktax_model::pace::PaceRule;

use crate::random::Law;
use crate::timer::Call;

/// A task, identified by its index in [`Setup::tasks`](crate::Setup::tasks).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// Returns the task's index in the setup.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Scheduling class of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// `SCHED_OTHER`, scheduled by the machine's [`Policy`](crate::Policy).
    #[default]
    Normal,
    /// `SCHED_FIFO` with a priority from 1 to 99.
    Fifo(u8),
    /// `SCHED_RR` with a priority from 1 to 99.
    RoundRobin(u8),
}

/// Attributes of a task that affect scheduling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Scheduling class.
    pub class: Class,
    /// Nice value, from -20 (most important) to 19.
    pub nice: i8,
    /// CPU that the task is pinned to, if any.
    pub cpu: Option<usize>,
    /// Process ID. Tasks of the same process share their memory.
    pub process: u32,
    /// Slice that the task requests. Policies other than EEVDF ignore it.
    pub slice: Option<Nanos>,
    /// Autogroup of the task, if any. EEVDF divides CPU time among autogroups first, and then among
    /// the tasks in each. Other policies ignore autogroups.
    pub autogroup: Option<Autogroup>,
}

/// A step of a task's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Computes for this long, in CPU time at full speed. Takes at least 1 ns.
    Work(Law),
    /// Works in the kernel for this long, during which no other task can preempt it. Takes at least
    /// 1 ns.
    Kernel(Law),
    /// Works for this long with interrupts masked. Takes at least 1 ns.
    Masked(Law),
    /// Sleeps for this long in this system call.
    Sleep(Call, Law),
    /// Sleeps until `time` has passed since the last [`Step::Frame`]. The program measures the
    /// elapsed time in whole units, so it sleeps for `time - int(elapsed / unit) · unit`, or not at
    /// all if this is 0 or negative.
    SleepRest {
        /// System call in which the task sleeps.
        call: Call,
        /// Intended interval between two frames.
        time: Nanos,
        /// Unit in which the program measures elapsed time.
        unit: Nanos,
    },
    /// Sleeps in this system call until the clock reaches the next multiple of this time.
    SleepUntil(Call, Nanos),
    /// Polls the clock until it reaches the next multiple of this time. Interrupts and the CPU's
    /// speed do not delay the end of the step. If the task has been preempted at that time, the
    /// step ends when the task runs again.
    SpinUntil(Nanos),
    /// Waits until the next frame is due according to `rule`, or continues immediately if the frame
    /// is already overdue. The next step must be [`Step::Frame`].
    Pace {
        /// Rule that determines when frames are due.
        rule: PaceRule,
        /// Interval between two frames.
        period: Nanos,
        /// Time unit of the sleep call. Sleeps are rounded up to whole units.
        unit: Nanos,
        /// Time before the due time at which the task stops sleeping and starts polling the clock,
        /// as in [`Step::SpinUntil`]. If it is 0, the task only sleeps. If it is at least `period`,
        /// the task only spins.
        spin: Nanos,
    },
    /// Delays the wake-up after the next timer expiry by this time. Models a hypervisor, or another
    /// cause outside the modelled kernel.
    Late(Law),
    /// Waits for an external event, which occurs this long after the step starts and does not
    /// depend on a timer of this kernel.
    Arrive(Law),
    /// Works if a new period has started since this step last worked, as in a fixed-step simulation
    /// within a faster loop. Periods that have passed without any work are counted and skipped.
    Every {
        /// Length of the period.
        period: Nanos,
        /// Work per period.
        work: Law,
    },
    /// Starts a frame: counts it and records its start.
    Frame,
    /// Yields the CPU.
    Yield,
    /// Acquires this lock. Waiting tasks get a lock in the order they requested it.
    Lock(usize),
    /// Releases this lock and passes it to the first waiter.
    Unlock(usize),
    /// Signals a task. If the task is in a [`Step::Wait`], that step ends. If not, its next
    /// [`Step::Wait`] ends immediately.
    Signal(TaskId),
    /// Waits for a signal.
    Wait,
    /// Takes a packet from this link's socket buffer, and then works for this long. Waits first if
    /// the buffer is empty.
    Receive(usize, Law),
    /// Exits.
    Exit,
}

impl Step {
    /// Returns whether this step always lets time pass. A program without any such step could loop
    /// forever without advancing the clock.
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

    /// Returns the distribution that the step draws a time from, if any.
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

/// Data that a task must reload into the cache after another task has evicted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Cost of reloading all of the data.
    pub refill: Nanos,
    /// CPU time after which the task has touched a fraction of 1 - 1/e of its data.
    pub tau: Nanos,
}

/// Description of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// Name of the task.
    pub name: String,
    /// Whether the task is a kernel thread.
    pub kernel: bool,
    /// Attributes that affect scheduling.
    pub attributes: Attributes,
    /// When the task is created.
    pub start: Nanos,
    /// Steps that the task executes in an endless loop.
    pub program: Vec<Step>,
    /// Index of the task's quota group in [`Setup::groups`](crate::Setup::groups), if it has one.
    pub group: Option<usize>,
    /// Cache footprint, or `None` if the task's use of the cache is not modelled.
    pub footprint: Option<Footprint>,
}

impl TaskSpec {
    /// Creates a task that starts at time 0 with nice 0 and is not pinned to a CPU.
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

    /// Pins the task to this CPU.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not created yet.
    Unborn,
    /// Waiting for a CPU.
    Runnable,
    /// Running on this CPU.
    Running(usize),
    /// Sleeping until a timer expires.
    Sleeping,
    /// Waiting for a packet, a lock or an external event.
    Blocked,
    /// Waiting for a signal.
    Waiting,
    /// Throttled because its group's quota is used up.
    Throttled,
    /// Exited.
    Ended,
}

/// Results for one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskReport {
    /// Exact CPU time, excluding interrupts.
    pub ran: Nanos,
    /// Number of ticks at which the task was running.
    pub sampled: u64,
    /// CPU time of the completed work that the program requested. Unlike `ran`, it excludes context
    /// switches and cache reloads.
    pub work: Nanos,
    /// Number of completed work steps.
    pub bursts: u64,
    /// Number of times this task started to run after another task or an idle period.
    pub switches: u64,
    /// Number of times this task started to run after another task had evicted its data from the
    /// cache.
    pub refills: u64,
    /// Total cost of reloading the cache.
    pub refill_time: Nanos,
    /// Number of frames.
    pub frames: u64,
    /// Number of periods that passed without [`Step::Every`] doing its work.
    pub overshot: u64,
    /// Number of completed sleeps.
    pub sleeps: u64,
    /// Smallest amount by which a sleep exceeded its requested length; negative if a sleep ended
    /// too early. `None` if no sleep was completed.
    pub min_late: Option<Nanos>,
    /// Total wake-up latency.
    pub latency: Nanos,
    /// Largest wake-up latency.
    pub worst_latency: Nanos,
    /// Longest time from the intended end of a sleep, or the end of another wait, until the task
    /// ran.
    pub worst_lateness: Nanos,
    /// Number of received packets.
    pub packets: u64,
    /// Total time that the task was throttled.
    pub throttled: Nanos,
}
