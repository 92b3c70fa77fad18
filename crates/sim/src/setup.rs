//! The description of a simulation: the machine, its tasks and its interrupt sources.

mod error;

use ticktax_model::Nanos;
use ticktax_model::machine::TickMode;

pub use self::error::{SetupError, SetupFault, SetupPart};
use crate::clock::Device;
use crate::random::Law;
use crate::scheduler::Policy;
use crate::speed::Speed;
use crate::task::{Class, Step, TaskSpec};
use crate::timer::TimerRule;

pub(crate) const MAX_TASKS: usize = 16_384;
/// Maximum number of locks. Programs refer to locks by number, starting from 0.
const MAX_LOCKS: usize = 4_096;
const MAX_SOURCES: usize = 64;

/// CPU time that the kernel spends on its own work. Any of these costs may be zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Cost of a tick, which must be less than the tick period.
    pub tick: Nanos,
    /// Cost of a high-resolution timer interrupt.
    pub timer: Nanos,
    /// Cost of a context switch, charged to the new task.
    pub switch: Nanos,
}

/// A machine with its kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Number of CPUs, from 1 to 8192.
    pub cpus: usize,
    /// Configured tick rate in Hz.
    pub hz: u64,
    /// The tick device.
    pub device: Device,
    /// Frequency error of the tick device's clock, in parts per billion. Positive if the clock is
    /// fast, negative if it is slow.
    pub drift_ppb: i64,
    /// Delay of each CPU's ticks relative to the machine's tick grid. CPUs beyond the end of the
    /// list have no delay.
    pub phases: Vec<Nanos>,
    /// Conditions under which CPUs stop their ticks.
    pub tick: TickMode,
    /// Mask level of the tick. Handlers at this level or above delay the tick.
    pub tick_level: u8,
    /// How the kernel determines the end of a sleep.
    pub timers: TimerRule,
    /// Timer slack of tasks, which applies to high-resolution timers. It is 50 µs in Linux.
    pub slack: Nanos,
    /// The scheduler.
    pub policy: Policy,
    /// Costs of the kernel's own work.
    pub costs: Costs,
    /// CPU speed.
    pub speed: Speed,
}

impl Machine {
    /// Creates a machine with ideal timers, no kernel costs, and periodic ticks that occur
    /// simultaneously on all CPUs.
    pub fn new(cpus: usize, hz: u64, policy: Policy) -> Self {
        Self {
            cpus,
            hz,
            device: Device::TscDeadline,
            drift_ppb: 0,
            phases: Vec::new(),
            tick: TickMode::Periodic,
            tick_level: 1,
            timers: TimerRule::FirstTick,
            slack: Nanos::ZERO,
            policy,
            costs: Costs::default(),
            speed: Speed::FULL,
        }
    }
}

/// Action that an interrupt handler takes when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    Nothing,
    /// Raises a softirq that takes this long.
    Softirq(Law),
    /// Signals a task, such as a threaded interrupt handler or a task that reads the data.
    Signal(crate::task::TaskId),
    /// Moves the packets in this link's ring to the protocol queue.
    Packets(usize),
}

/// A source of interrupts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name of the source.
    pub name: String,
    /// The CPU that this source interrupts.
    pub cpu: usize,
    /// Mask level of the handler. Handlers at this level or above delay this one. Linux has only
    /// one level, whereas BSD has several.
    pub level: u8,
    /// Time of the first interrupt.
    pub start: Nanos,
    /// Interval between one interrupt and the next.
    pub interval: Law,
    /// Run time of the handler.
    pub cost: Law,
    /// Action of the handler when it ends.
    pub then: Then,
}

/// Receive path of packets: a NIC ring, then a protocol queue, then a socket buffer. A packet that
/// arrives at a full queue is dropped there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Capacity of the NIC's ring, where packets wait for the interrupt handler.
    pub ring: u64,
    /// Capacity of the protocol queue, where packets wait for the softirq.
    pub protocol: u64,
    /// Capacity of the socket buffer, where packets wait for a task.
    pub socket: u64,
    /// Time the softirq takes per packet.
    pub cost: Nanos,
}

/// A group of tasks that share a CPU quota (`cpu.max`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// CPU time that the group may use per period.
    pub quota: Nanos,
    /// Length of the quota period.
    pub period: Nanos,
}

/// All input of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The machine to simulate.
    pub machine: Machine,
    /// Tasks, at most 16384.
    pub tasks: Vec<TaskSpec>,
    /// Interrupt sources, at most 64.
    pub sources: Vec<Source>,
    /// Receive paths of packets.
    pub links: Vec<Link>,
    /// Groups of tasks with a CPU quota.
    pub groups: Vec<Group>,
    /// Time to simulate.
    pub length: Nanos,
    /// Seed for all random numbers.
    pub seed: u64,
}

impl Setup {
    /// Creates a setup that simulates `machine` for `length`, without any tasks.
    pub fn new(machine: Machine, length: Nanos) -> Self {
        Self {
            machine,
            tasks: Vec::new(),
            sources: Vec::new(),
            links: Vec::new(),
            groups: Vec::new(),
            length,
            seed: 1,
        }
    }

    /// Checks that the setup can be simulated.
    ///
    /// # Errors
    /// Returns an error that contains the first invalid part and the reason.
    pub fn check(&self) -> Result<(), SetupError> {
        let error = |part, fault| SetupError { part, fault };
        self.check_machine()
            .map_err(|fault| error(SetupPart::Machine, fault))?;
        if self.tasks.len() > MAX_TASKS {
            return Err(error(SetupPart::Tasks, SetupFault::TooManyTasks));
        }
        for task in &self.tasks {
            self.check_task(task)
                .map_err(|fault| error(SetupPart::Task(task.name.clone()), fault))?;
        }
        for source in &self.sources {
            self.check_source(source)
                .map_err(|fault| error(SetupPart::Interrupt(source.name.clone()), fault))?;
        }
        if self.sources.len() > MAX_SOURCES {
            return Err(error(SetupPart::Interrupts, SetupFault::TooManyInterrupts));
        }
        let is_positive = |group: &Group| group.quota > Nanos::ZERO && group.period > Nanos::ZERO;
        if !self.groups.iter().all(is_positive) {
            return Err(error(SetupPart::Group, SetupFault::Quota));
        }
        Ok(())
    }

    fn check_machine(&self) -> Result<(), SetupFault> {
        let Machine {
            cpus,
            hz,
            device,
            drift_ppb,
            phases,
            tick,
            slack,
            costs,
            speed,
            ..
        } = &self.machine;
        if !(1..=8192).contains(cpus) {
            return Err(SetupFault::Cpus);
        }
        let Some(grid) = device.grid(*hz, Nanos::ZERO, *drift_ppb) else {
            return Err(SetupFault::TickRate { hz: *hz });
        };
        if phases.len() > *cpus {
            return Err(SetupFault::TooManyPhases);
        }
        if phases
            .iter()
            .any(|&phase| phase < Nanos::ZERO || phase > grid.step())
        {
            return Err(SetupFault::Phase);
        }
        if costs.tick < Nanos::ZERO || costs.timer < Nanos::ZERO || costs.switch < Nanos::ZERO {
            return Err(SetupFault::NegativeCost);
        }
        if costs.tick.0 >= grid.step().0 / 2 {
            return Err(SetupFault::TickCost);
        }
        if let TickMode::NohzFull { cpus: full } = tick
            && full.iter().any(|cpu| cpu.index() >= *cpus)
        {
            return Err(SetupFault::NohzFull);
        }
        if *slack < Nanos::ZERO {
            return Err(SetupFault::Slack);
        }
        if !speed.is_sound() {
            return Err(SetupFault::Speed);
        }
        if self.length < Nanos::ZERO {
            return Err(SetupFault::Length);
        }
        Ok(())
    }

    fn check_task(&self, task: &TaskSpec) -> Result<(), SetupFault> {
        let attributes = &task.attributes;
        if attributes.cpu.is_some_and(|cpu| cpu >= self.machine.cpus) {
            return Err(SetupFault::Pinned);
        }
        if !(-20..=19).contains(&attributes.nice) {
            return Err(SetupFault::Nice);
        }
        if let Class::Fifo(priority) | Class::RoundRobin(priority) = attributes.class
            && !(1..=99).contains(&priority)
        {
            return Err(SetupFault::Priority);
        }
        if attributes.slice.is_some_and(|slice| slice <= Nanos::ZERO) {
            return Err(SetupFault::Slice);
        }
        if task.group.is_some_and(|group| group >= self.groups.len()) {
            return Err(SetupFault::NoGroup);
        }
        if task
            .footprint
            .is_some_and(|footprint| footprint.refill < Nanos::ZERO || footprint.tau <= Nanos::ZERO)
        {
            return Err(SetupFault::Footprint);
        }
        if !task.program.iter().any(Step::takes_time) {
            return Err(SetupFault::TakesNoTime);
        }
        task.program
            .iter()
            .try_for_each(|step| self.check_step(step))
    }

    fn check_step(&self, step: &Step) -> Result<(), SetupFault> {
        if step.law().is_some_and(|law| !law.is_sound()) {
            return Err(SetupFault::Time);
        }
        if matches!(*step, Step::Pace { spin, .. } if spin < Nanos::ZERO) {
            return Err(SetupFault::Spin);
        }
        let positive = match *step {
            Step::SleepRest { time, unit, .. } => time > Nanos::ZERO && unit > Nanos::ZERO,
            Step::SleepUntil(_, period) | Step::SpinUntil(period) | Step::Every { period, .. } => {
                period > Nanos::ZERO
            }
            Step::Pace { period, unit, .. } => period > Nanos::ZERO && unit > Nanos::ZERO,
            _ => true,
        };
        if !positive {
            return Err(SetupFault::Period);
        }
        match *step {
            Step::Signal(task) if task.index() >= self.tasks.len() => {
                Err(SetupFault::NoSignalledTask)
            }
            Step::Lock(lock) | Step::Unlock(lock) if lock >= MAX_LOCKS => Err(SetupFault::Lock),
            Step::Receive(link, _) if link >= self.links.len() => Err(SetupFault::NoReceiveLink),
            _ => Ok(()),
        }
    }

    fn check_source(&self, source: &Source) -> Result<(), SetupFault> {
        if source.cpu >= self.machine.cpus {
            return Err(SetupFault::NoCpu);
        }
        if !source.interval.is_sound() || source.interval.mean() <= Nanos::ZERO {
            return Err(SetupFault::Interval);
        }
        if !source.cost.is_sound() || source.start < Nanos::ZERO {
            return Err(SetupFault::InterruptTimes);
        }
        match source.then {
            Then::Signal(task) if task.index() >= self.tasks.len() => {
                Err(SetupFault::NoSignalledTask)
            }
            Then::Packets(link) if link >= self.links.len() => Err(SetupFault::NoLink),
            Then::Softirq(law) if !law.is_sound() => Err(SetupFault::SoftirqCost),
            _ => Ok(()),
        }
    }
}
