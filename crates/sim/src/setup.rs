//! Describes a simulation: the machine, its tasks and its interrupt sources.

use ticktax_model::Nanos;
use ticktax_model::machine::TickMode;

use crate::clock::Device;
use crate::random::Law;
use crate::scheduler::Policy;
use crate::speed::Speed;
use crate::task::{Class, Step, TaskSpec};
use crate::timer::TimerRule;

pub(crate) const MAX_TASKS: usize = 16_384;
/// Number of locks. Programs refer to locks by number, from 0.
const MAX_LOCKS: usize = 4_096;

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
    /// Excess speed of the tick device's clock, in parts per billion.
    pub drift_ppb: i64,
    /// Delay of each CPU's tick behind the machine's tick grid. CPUs beyond the end of the list
    /// have no delay.
    pub phases: Vec<Nanos>,
    /// When CPUs stop their ticks.
    pub tick: TickMode,
    /// Mask level of the tick. The tick is delayed by handlers at this level or above.
    pub tick_level: u8,
    /// How the kernel rounds the end of a sleep.
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
    /// Creates a machine with ideal timers, no kernel costs, and periodic ticks that are in phase
    /// on all CPUs.
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

/// Action of an interrupt handler when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    Nothing,
    /// Raises a softirq that takes this long.
    Softirq(Law),
    /// Signals a task, such as a threaded interrupt handler or a reader.
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
    /// Mask level of the handler. The handler is delayed by handlers at this level or above. Linux
    /// has only one level, BSD has several.
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

/// A receive path for packets: NIC ring, protocol queue, socket buffer. A packet that arrives at a
/// full queue is dropped there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Capacity of the NIC's ring, where packets wait for the interrupt handler.
    pub ring: u64,
    /// Capacity of the protocol queue, where packets wait for the softirq.
    pub protocol: u64,
    /// Capacity of the socket buffer, where packets wait for a task.
    pub socket: u64,
    /// Softirq time per packet.
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

/// Everything needed to run a simulation.
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

/// Why a setup is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct SetupError {
    /// The part of the setup that is invalid.
    pub what: String,
    /// Description of the problem.
    pub why: String,
}

impl Setup {
    /// Creates a setup that simulates `machine` without tasks for `length`.
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
    /// Returns an error with the first invalid part and the reason.
    pub fn check(&self) -> Result<(), SetupError> {
        self.check_machine()?;
        if self.tasks.len() > MAX_TASKS {
            return Err(error(
                "tasks",
                &format!("too many; give at most {MAX_TASKS}"),
            ));
        }
        for task in &self.tasks {
            self.check_task(task)
                .map_err(|why| error(&format!("task {}", task.name), &why))?;
        }
        for source in &self.sources {
            self.check_source(source)
                .map_err(|why| error(&format!("interrupt {}", source.name), &why))?;
        }
        if self.sources.len() > 64 {
            return Err(error("interrupts", "too many; give at most 64"));
        }
        for group in &self.groups {
            if group.quota <= Nanos::ZERO || group.period <= Nanos::ZERO {
                return Err(error("group", "quota and period must be above 0"));
            }
        }
        Ok(())
    }

    fn check_machine(&self) -> Result<(), SetupError> {
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
        let fail = |why: &str| Err(error("machine", why));
        if !(1..=8192).contains(cpus) {
            return fail("the number of CPUs must be 1 to 8192");
        }
        let Some(grid) = device.grid(*hz, Nanos::ZERO, *drift_ppb) else {
            return fail(&format!("its timer device cannot tick at {hz} Hz"));
        };
        if phases.len() > *cpus {
            return fail("there are more phases than CPUs");
        }
        if phases
            .iter()
            .any(|&phase| phase < Nanos::ZERO || phase > grid.step())
        {
            return fail("a phase must be between 0 and one tick");
        }
        if costs.tick < Nanos::ZERO || costs.timer < Nanos::ZERO || costs.switch < Nanos::ZERO {
            return fail("costs must not be negative");
        }
        if costs.tick.0 >= grid.step().0 / 2 {
            return fail("a tick must cost less than half of its period");
        }
        if let TickMode::NohzFull { cpus: full } = tick
            && full.iter().any(|cpu| cpu.index() >= *cpus)
        {
            return fail("nohz-full includes a CPU that does not exist");
        }
        if *slack < Nanos::ZERO {
            return fail("timer slack must not be negative");
        }
        if !speed.is_sound() {
            return fail("the speed must be above 0 and at most full speed");
        }
        if self.length < Nanos::ZERO {
            return fail("the length must not be negative");
        }
        Ok(())
    }

    fn check_task(&self, task: &TaskSpec) -> Result<(), String> {
        let attributes = &task.attributes;
        if attributes.cpu.is_some_and(|cpu| cpu >= self.machine.cpus) {
            return Err("it is pinned to a CPU that does not exist".to_owned());
        }
        if !(-20..=19).contains(&attributes.nice) {
            return Err("nice must be -20 to 19".to_owned());
        }
        if let Class::Fifo(priority) | Class::RoundRobin(priority) = attributes.class
            && !(1..=99).contains(&priority)
        {
            return Err("a real-time priority must be 1 to 99".to_owned());
        }
        if attributes.slice.is_some_and(|slice| slice <= Nanos::ZERO) {
            return Err("the slice must be above 0".to_owned());
        }
        if task.group.is_some_and(|group| group >= self.groups.len()) {
            return Err("its group does not exist".to_owned());
        }
        if task
            .footprint
            .is_some_and(|footprint| footprint.refill < Nanos::ZERO || footprint.tau <= Nanos::ZERO)
        {
            return Err("a footprint needs a refill of at least 0 and a tau above 0".to_owned());
        }
        if !task.program.iter().any(Step::takes_time) {
            return Err("its program never lets time pass; add a step that takes time".to_owned());
        }
        task.program
            .iter()
            .try_for_each(|step| self.check_step(step))
    }

    fn check_step(&self, step: &Step) -> Result<(), String> {
        if step.law().is_some_and(|law| !law.is_sound()) {
            return Err("a time is negative, or a range is empty".to_owned());
        }
        if matches!(*step, Step::Pace { spin, .. } if spin < Nanos::ZERO) {
            return Err("the spin time must not be negative".to_owned());
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
            return Err("periods and units must be above 0".to_owned());
        }
        match *step {
            Step::Signal(task) if task.index() >= self.tasks.len() => {
                Err("it signals a task that does not exist".to_owned())
            }
            Step::Lock(lock) | Step::Unlock(lock) if lock >= MAX_LOCKS => {
                Err(format!("lock numbers must be 0 to {}", MAX_LOCKS - 1))
            }
            Step::Receive(link, _) if link >= self.links.len() => {
                Err("it receives from a link that does not exist".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn check_source(&self, source: &Source) -> Result<(), String> {
        if source.cpu >= self.machine.cpus {
            return Err("its CPU does not exist".to_owned());
        }
        if !source.interval.is_sound() || source.interval.mean() <= Nanos::ZERO {
            return Err("its interval must be above 0".to_owned());
        }
        if !source.cost.is_sound() || source.start < Nanos::ZERO {
            return Err("its cost and start must not be negative".to_owned());
        }
        match source.then {
            Then::Signal(task) if task.index() >= self.tasks.len() => {
                Err("it signals a task that does not exist".to_owned())
            }
            Then::Packets(link) if link >= self.links.len() => {
                Err("its link does not exist".to_owned())
            }
            Then::Softirq(law) if !law.is_sound() => {
                Err("the cost of its softirq must not be negative".to_owned())
            }
            _ => Ok(()),
        }
    }
}

fn error(what: &str, why: &str) -> SetupError {
    SetupError {
        what: what.to_owned(),
        why: why.to_owned(),
    }
}
