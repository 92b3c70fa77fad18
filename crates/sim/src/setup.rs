//! What is simulated: a machine, its tasks, and what interrupts them.

use ticktax_model::Nanos;
use ticktax_model::machine::TickMode;

use crate::clock::Device;
use crate::random::Law;
use crate::scheduler::Policy;
use crate::speed::Speed;
use crate::task::{Class, Step, TaskSpec};
use crate::timer::TimerRule;

/// The most tasks of a setup.
pub(crate) const MAX_TASKS: usize = 65_536;
/// Locks are numbered from 0 to below this.
const MAX_LOCKS: usize = 4_096;

/// What the kernel's own work costs. All of it may be nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// A tick; less than a tick is long.
    pub tick: Nanos,
    /// The interrupt of a high-resolution timer.
    pub timer: Nanos,
    /// Changing to another task, paid by that task.
    pub switch: Nanos,
}

/// A machine and its kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// How many CPUs, from 1 to 8192.
    pub cpus: usize,
    /// Configured tick rate, in Hz.
    pub hz: u64,
    /// What ticks.
    pub device: Device,
    /// By how much the ticking clock is fast, in billionths.
    pub drift_ppb: i64,
    /// By how much each CPU's own tick is later than the machine's; none for those left out.
    pub phases: Vec<Nanos>,
    /// When a CPU's tick stops.
    pub tick: TickMode,
    /// Mask level of the tick: it is held up by handlers of this level and above.
    pub tick_level: u8,
    /// How sleeps are rounded.
    pub timers: TimerRule,
    /// By how much high-resolution timers of tasks may be late: 50 µs in Linux.
    pub slack: Nanos,
    /// Who runs next.
    pub policy: Policy,
    /// What that costs.
    pub costs: Costs,
    /// How fast the CPUs are.
    pub speed: Speed,
}

impl Machine {
    /// A machine without costs, on an ideal timer, with periodic ticks at one phase.
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

/// What comes of an interrupt, when its handler is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing more.
    Nothing,
    /// A softirq, which costs this much.
    Softirq(Law),
    /// A task goes on that waits: a threaded handler, a reader.
    Signal(crate::task::TaskId),
    /// The packets in this link's ring go up.
    Packets(usize),
}

/// A source of interrupts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// The CPU that it interrupts.
    pub cpu: usize,
    /// The mask level of its handler: held up by handlers of this level and above. Linux has one
    /// level for all; BSD has several.
    pub level: u8,
    /// When the first one comes.
    pub start: Nanos,
    /// The time from one to the next.
    pub interval: Law,
    /// What its handler costs.
    pub cost: Law,
    /// What comes of it.
    pub then: Then,
}

/// A way for packets: ring, protocol queue, socket buffer. What finds one full is dropped there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Packets that the card holds until its interrupt is handled.
    pub ring: u64,
    /// Packets between the interrupt and the softirq.
    pub protocol: u64,
    /// Packets that wait for the receiving task.
    pub socket: u64,
    /// What the softirq does for each packet.
    pub cost: Nanos,
}

/// A group of tasks with a quota of CPU time (`cpu.max`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Time that its tasks may run.
    pub quota: Nanos,
    /// In each period of this length.
    pub period: Nanos,
}

/// All of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The machine.
    pub machine: Machine,
    /// Its tasks, at most 65536.
    pub tasks: Vec<TaskSpec>,
    /// Its sources of interrupts, at most 64.
    pub sources: Vec<Source>,
    /// Its links.
    pub links: Vec<Link>,
    /// Its quotas.
    pub groups: Vec<Group>,
    /// How long it runs.
    pub length: Nanos,
    /// What all chance comes from.
    pub seed: u64,
}

/// Why a setup makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct SetupError {
    /// Where.
    pub what: String,
    /// Why not.
    pub why: String,
}

impl Setup {
    /// A machine that nothing runs on, for this long.
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

    /// Whether it can be run.
    ///
    /// # Errors
    /// What cannot be run, and why.
    pub fn check(&self) -> Result<(), SetupError> {
        self.check_machine()?;
        if self.tasks.len() > MAX_TASKS {
            return Err(error("tasks", &format!("at most {MAX_TASKS}")));
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
            return Err(error("interrupts", "at most 64"));
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
            return fail("there can be 1 to 8192 CPUs");
        }
        let Some(grid) = device.grid(*hz, Nanos::ZERO, *drift_ppb) else {
            return fail(&format!("its clock cannot tick at {hz} Hz"));
        };
        if phases.len() > *cpus {
            return fail("there are more phases than CPUs");
        }
        if phases
            .iter()
            .any(|&phase| phase < Nanos::ZERO || phase > grid.step())
        {
            return fail("a phase lies within a tick");
        }
        if costs.tick < Nanos::ZERO || costs.timer < Nanos::ZERO || costs.switch < Nanos::ZERO {
            return fail("a cost cannot be negative");
        }
        if costs.tick.0 >= grid.step().0 / 2 {
            return fail("a tick costs half of its period, or more");
        }
        if let TickMode::NohzFull { cpus: full } = tick
            && full.iter().any(|cpu| cpu.index() >= *cpus)
        {
            return fail("nohz-full names a CPU that is not there");
        }
        if *slack < Nanos::ZERO {
            return fail("its timers cannot be early");
        }
        if !speed.is_sound() {
            return fail("its speed is not a share of full speed");
        }
        if self.length < Nanos::ZERO {
            return fail("its time cannot be negative");
        }
        Ok(())
    }

    fn check_task(&self, task: &TaskSpec) -> Result<(), String> {
        let attributes = &task.attributes;
        if attributes.cpu.is_some_and(|cpu| cpu >= self.machine.cpus) {
            return Err("it is pinned to a CPU that is not there".to_owned());
        }
        if !(-20..=19).contains(&attributes.nice) {
            return Err("nice goes from -20 to 19".to_owned());
        }
        if let Class::Fifo(priority) | Class::RoundRobin(priority) = attributes.class
            && !(1..=99).contains(&priority)
        {
            return Err("a real-time priority goes from 1 to 99".to_owned());
        }
        if attributes.slice.is_some_and(|slice| slice <= Nanos::ZERO) {
            return Err("a slice must be above 0".to_owned());
        }
        if task.group.is_some_and(|group| group >= self.groups.len()) {
            return Err("its group is not there".to_owned());
        }
        if task
            .footprint
            .is_some_and(|it| it.refill < Nanos::ZERO || it.tau <= Nanos::ZERO)
        {
            return Err("a footprint needs a refill of 0 or more and a tau above 0".to_owned());
        }
        if !task.program.iter().any(Step::takes_time) {
            return Err("its program never lets time pass".to_owned());
        }
        task.program
            .iter()
            .try_for_each(|step| self.check_step(step))
    }

    fn check_step(&self, step: &Step) -> Result<(), String> {
        if step.law().is_some_and(|law| !law.is_sound()) {
            return Err("a time is negative, or a range empty".to_owned());
        }
        if matches!(*step, Step::Pace { spin, .. } if spin < Nanos::ZERO) {
            return Err("it cannot spin for less than no time".to_owned());
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
            return Err("a period or a unit must be above 0".to_owned());
        }
        match *step {
            Step::Signal(task) if task.index() >= self.tasks.len() => {
                Err("it signals a task that is not there".to_owned())
            }
            Step::Lock(lock) | Step::Unlock(lock) if lock >= MAX_LOCKS => {
                Err(format!("locks are numbered from 0 to {}", MAX_LOCKS - 1))
            }
            Step::Receive(link, _) if link >= self.links.len() => {
                Err("it receives from a link that is not there".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn check_source(&self, source: &Source) -> Result<(), String> {
        if source.cpu >= self.machine.cpus {
            return Err("its CPU is not there".to_owned());
        }
        if !source.interval.is_sound() || source.interval.mean() <= Nanos::ZERO {
            return Err("its interval must be above 0".to_owned());
        }
        if !source.cost.is_sound() || source.start < Nanos::ZERO {
            return Err("its cost and start cannot be negative".to_owned());
        }
        match source.then {
            Then::Signal(task) if task.index() >= self.tasks.len() => {
                Err("it signals a task that is not there".to_owned())
            }
            Then::Packets(link) if link >= self.links.len() => {
                Err("its link is not there".to_owned())
            }
            Then::Softirq(law) if !law.is_sound() => {
                Err("its softirq's cost cannot be negative".to_owned())
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
