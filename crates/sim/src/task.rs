//! Tasks: programs of steps, and what happened to them.

use ticktax_model::Nanos;
use ticktax_model::autogroup::Autogroup;
use ticktax_model::pace::PaceRule;

use crate::random::Law;
use crate::timer::Call;

/// A task by its place in the setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// The place as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The scheduling class of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// `SCHED_OTHER`: what the policy is for.
    #[default]
    Normal,
    /// `SCHED_FIFO` with a priority from 1 to 99.
    Fifo(u8),
    /// `SCHED_RR` with a priority from 1 to 99.
    RoundRobin(u8),
}

/// What a scheduler may know of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Its class.
    pub class: Class,
    /// From -20, the most important, to 19.
    pub nice: i8,
    /// The only CPU it may run on, where it is pinned.
    pub cpu: Option<usize>,
    /// The process: tasks of one process share their memory.
    pub process: u32,
    /// The slice that it asks for, of a scheduler that lets it ask.
    pub slice: Option<Nanos>,
    /// The autogroup that it is in, of a scheduler that shares between groups first.
    pub autogroup: Option<Autogroup>,
}

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Computes for this long, at the CPU's full speed; 1 ns at least.
    Work(Law),
    /// Works in the kernel, where no other task may take the CPU; 1 ns at least.
    Kernel(Law),
    /// Works with interrupts masked; 1 ns at least.
    Masked(Law),
    /// Sleeps for this long.
    Sleep(Call, Law),
    /// Sleeps for what is left of a time since the last [`Step::Frame`], counted in whole units:
    /// `time - int(passed / unit) · unit`. Does not sleep where nothing is left.
    SleepRest {
        /// The system call.
        call: Call,
        /// The time from frame to frame that is aimed at.
        time: Nanos,
        /// What the program counts in.
        unit: Nanos,
    },
    /// Sleeps until the next multiple of this time.
    SleepUntil(Call, Nanos),
    /// Computes until the next multiple of this time: reads the clock again and again, as a program
    /// does that is not to be late. It ends at that time, whatever interrupts it, however fast the
    /// CPU is; where another task has the CPU then, as soon as it runs again.
    SpinUntil(Nanos),
    /// Waits until the next frame is due by a rule, as [`PaceRule`] defines it; where that is past
    /// already, it goes on at once. A [`Step::Frame`] comes next.
    Pace {
        /// From which moment the next frame's time counts.
        rule: PaceRule,
        /// The time from one frame to the next.
        period: Nanos,
        /// What the call counts in: a request is rounded up to whole ones.
        unit: Nanos,
        /// How long before it is due the task sleeps no more, and computes as in
        /// [`Step::SpinUntil`]: 0 where it only sleeps, a period or more where it never does.
        spin: Nanos,
    },
    /// The next sleep ends this much later than its timer goes off: what is late about a wakeup and
    /// none of the kernel's doing that is modelled, such as a hypervisor's.
    Late(Law),
    /// Waits for this long, for something from outside that no timer of this kernel has to do with.
    Arrive(Law),
    /// Works when a period has begun since it last did: a simulation of fixed steps in a loop that
    /// is to be faster than they. Steps that came too late to be done are counted, and left out.
    Every {
        /// The period.
        period: Nanos,
        /// The work of a step.
        work: Law,
    },
    /// A frame begins: counts, and takes the time.
    Frame,
    /// Gives way to others.
    Yield,
    /// Takes this lock, waiting for it in line.
    Lock(usize),
    /// Gives it back to the first in line.
    Unlock(usize),
    /// Lets a task go on that waits, now or the next time.
    Signal(TaskId),
    /// Waits for a signal.
    Wait,
    /// Takes a packet from this link's socket buffer, waiting for one, and works on it.
    Receive(usize, Law),
    /// Ends.
    Exit,
}

impl Step {
    /// Whether the step takes time in every case, so that a program that repeats it lets time
    /// pass.
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

    /// The law that the step draws from.
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

/// How a task's cached memory comes back after another has used the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// What loading all of it costs.
    pub refill: Nanos,
    /// The run time in which a task touches 1 - 1/e of it.
    pub tau: Nanos,
}

/// A task, as it is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// Its name.
    pub name: String,
    /// Whether it is a thread of the kernel.
    pub kernel: bool,
    /// What a scheduler may know of it.
    pub attributes: Attributes,
    /// When it is made.
    pub start: Nanos,
    /// Its steps; after the last comes the first.
    pub program: Vec<Step>,
    /// The quota group that it is in, by place.
    pub group: Option<usize>,
    /// Its memory, where the cache is modelled.
    pub footprint: Option<Footprint>,
}

impl TaskSpec {
    /// A program that is not pinned, at nice 0, from the start on.
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

    /// The same task, pinned to a CPU.
    #[must_use]
    pub fn on(mut self, cpu: usize) -> Self {
        self.attributes.cpu = Some(cpu);
        self
    }

    /// The same task in another class.
    #[must_use]
    pub fn class(mut self, class: Class) -> Self {
        self.attributes.class = class;
        self
    }

    /// The same task with memory in the cache.
    #[must_use]
    pub fn footprint(mut self, footprint: Footprint) -> Self {
        self.footprint = Some(footprint);
        self
    }
}

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not made yet.
    Unborn,
    /// In a queue.
    Runnable,
    /// On this CPU.
    Running(usize),
    /// Until a timer goes off.
    Sleeping,
    /// Until a packet, a lock or what comes from outside lets it go on.
    Blocked,
    /// Until a signal lets it go on.
    Waiting,
    /// Its group's quota is used up.
    Throttled,
    /// Over.
    Ended,
}

/// What happened to a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskReport {
    /// CPU time, exactly, interrupts left out.
    pub ran: Nanos,
    /// Ticks that found it running.
    pub sampled: u64,
    /// Work that was asked of it and done; less than it ran where caches or switches cost.
    pub work: Nanos,
    /// Steps that worked.
    pub bursts: u64,
    /// Times that it came on a CPU after another task or idling.
    pub switches: u64,
    /// Times that its memory had to come back into the cache.
    pub refills: u64,
    /// What that cost.
    pub refill_time: Nanos,
    /// [`Step::Frame`]s.
    pub frames: u64,
    /// Steps of [`Step::Every`] that were missed.
    pub overshot: u64,
    /// Sleeps that ended.
    pub sleeps: u64,
    /// The least that a sleep took more than asked for; negative where one was short.
    pub min_late: Option<Nanos>,
    /// From being woken to running, summed.
    pub latency: Nanos,
    /// The longest of those.
    pub worst_latency: Nanos,
    /// The longest from when a sleep was to end, or a wait ended, to running.
    pub worst_lateness: Nanos,
    /// Packets received.
    pub packets: u64,
    /// Time for which its group's quota held it back.
    pub throttled: Nanos,
}
