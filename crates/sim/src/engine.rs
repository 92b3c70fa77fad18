//! The simulation engine, which processes events in a total order.
//!
//! Events are ordered by time, and events at the same time by CPU. On one CPU, ticks come first,
//! then agenda entries in insertion order, then the end of the running work. Each CPU knows when
//! its next event is due, and a tournament tree finds the earliest event of all CPUs.
//!
//! # Why it is fast
//! Ticks are not queued. A CPU's ticks lie on a [`Grid`](crate::Grid), and a sleep that ends on a
//! tick stores the number of that tick. The scheduler reports how many of the next ticks cannot
//! change its decision, so the engine knows which tick must be processed individually. All ticks
//! before that one are counted, charged and emitted together.

mod follow;
mod interrupts;
mod packets;
mod tasks;
mod time;
mod wakers;

use std::collections::VecDeque;

use ticktax_model::pace::Schedule;
use ticktax_model::recording::{Header, RowSink};
use ticktax_model::{Histogram, Nanos, SourceId, SourceTable};

use self::follow::Follower;
use self::wakers::Waker;
use crate::agenda::{Agenda, Order};
use crate::clock::Grid;
use crate::hash::TraceHash;
use crate::random::Stream;
use crate::record::{Recorder, header};
use crate::report::{CpuReport, LinkReport, Mode, Report};
use crate::scheduler::Scheduler;
use crate::setup::{Group, Link, Setup, SetupError};
use crate::task::{Attributes, State, TaskId, TaskReport};

/// Runs a simulation and discards the rows of its recording.
///
/// # Errors
/// Returns an error if the setup is invalid ([`Setup::check`]).
pub fn run(setup: &Setup) -> Result<Report, SetupError> {
    setup.check()?;
    Ok(Engine::new(setup, None).run().0)
}

/// Runs a simulation and discards the rows of its recording. Returns `None` if the simulation would
/// process more than `max_events` events. One core processes a few million events per second.
///
/// # Errors
/// Returns an error if the setup is invalid ([`Setup::check`]).
pub fn run_within(setup: &Setup, max_events: u64) -> Result<Option<Report>, SetupError> {
    setup.check()?;
    let mut engine = Engine::new(setup, None);
    engine.max_events = max_events;
    let is_complete = engine.go();
    Ok(is_complete.then(|| engine.close().0))
}

/// Runs a simulation and passes the rows of its recording to `sink`. The rows of each CPU arrive in
/// order of end time. Returns the report, the recording's header, and the table of sources that the
/// rows refer to.
///
/// # Errors
/// Returns an error if the setup is invalid ([`Setup::check`]).
pub fn record(
    setup: &Setup,
    sink: &mut dyn RowSink,
) -> Result<(Report, Header, SourceTable), SetupError> {
    setup.check()?;
    let recorder = Recorder::new(setup, sink, None);
    let (report, sources) = Engine::new(setup, Some(recorder)).run();
    let header = header(setup, &report, None);
    Ok((report, header, sources.unwrap_or_default()))
}

pub use follow::{Followed, Frames, follow, frames};

/// An event in a CPU's agenda.
#[derive(Clone, Copy, Debug)]
enum Event {
    Start(TaskId),
    /// The external event that a task is waiting for in [`Step::Arrive`](crate::Step::Arrive)
    /// occurs.
    Arrived(TaskId),
    /// A task wakes up after the delay that [`Step::Late`](crate::Step::Late) added to its timer's
    /// expiry.
    Late(TaskId),
    /// A high-resolution timer expires.
    Timer(TaskId),
    /// An interrupt source raises its interrupt.
    Arrival(usize),
    /// A group's quota is replenished.
    Refill(usize),
}

/// A handler that interrupts a task or the idle loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Tick,
    Timers,
    Irq(usize),
    Softirq(usize),
}

/// A handler in progress. Handlers nest, so each CPU has a stack of them.
#[derive(Clone, Copy, Debug)]
struct Frame {
    work: Work,
    level: u8,
    began: Nanos,
    left: Nanos,
    nested: Nanos,
}

impl Frame {
    fn mode(&self) -> Mode {
        match self.work {
            Work::Softirq(_) => Mode::Softirq,
            _ => Mode::Irq,
        }
    }
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "the flags are independent, and any combination is possible"
)]
struct CpuState {
    grid: Grid,
    /// Number of the next tick.
    next_tick: i64,
    /// Number of the next tick that must be processed individually, or `i64::MAX` if no such tick
    /// is known.
    decisive: i64,
    decisive_at: Nanos,
    /// Whether the tick is stopped.
    off: bool,
    current: Option<TaskId>,
    /// Mode of the CPU while no handler is running.
    mode: Mode,
    masked: bool,
    /// When the current task or idle period started on this CPU, and how much time handlers have
    /// taken since.
    base_began: Nanos,
    base_nested: Nanos,
    frames: Vec<Frame>,
    /// Time until which all CPU time has been charged.
    stamp: Nanos,
    /// Sleeping tasks that a tick will wake, by tick number.
    wheel: Agenda<TaskId>,
    /// All events except those in `wheel` and `slack`, by time. Ticks are not queued.
    agenda: Agenda<Event>,
    /// Sleeping tasks, by the time at which their timer slack starts. After that, a tick or another
    /// task's timer may wake the task. The task's own expiry is queued as well, but has no effect
    /// if the task is already awake.
    slack: Agenda<TaskId>,
    /// When the scheduler must be called even if no tick is due.
    alarm: Nanos,
    tick_pending: bool,
    /// Pending interrupts, one bit per source.
    pending: u64,
    softirqs: u64,
    /// Tasks whose high-resolution timers have expired but have not been handled by the timer
    /// interrupt yet.
    expired: Vec<TaskId>,
    resched: bool,
    /// The task with a cache footprint that ran on this CPU most recently.
    warm: Option<TaskId>,
    report: CpuReport,
}

struct Task {
    state: State,
    next_step: usize,
    /// Remaining time of the current work.
    left: Nanos,
    /// Length of the current work as requested by the program, or `None` if no work is in progress.
    asked: Option<Nanos>,
    /// Earliest end of the current work, if the program set one. The work ends as soon as this time
    /// has passed and `left` is used up.
    until: Option<Nanos>,
    last_cpu: usize,
    frame_at: Nanos,
    due: Nanos,
    /// Due time of the frame that the task is sleeping for, or `None` if it will not spin at the
    /// end of the wait.
    paced: Option<Nanos>,
    /// Delay to be added between the next timer expiry and the wake-up.
    late: Nanos,
    /// The schedule of each [`Step::Every`](crate::Step), indexed by its position in the program.
    every: Vec<Option<Schedule>>,
    /// When the task went to sleep, and when it asked to be woken.
    slept_at: Nanos,
    asleep_until: Option<Nanos>,
    /// Earliest and latest expiry of the task's timer, or `None` if no timer is set.
    timer: Option<(Nanos, Nanos)>,
    woken_at: Option<Nanos>,
    /// When the task should have started to run: the requested end of its sleep, or the time of its
    /// wake-up if it was not sleeping on a timer.
    due_at: Nanos,
    lateness: Histogram,
    throttled_at: Nanos,
    signals: u64,
    /// CPU time that the task had used when its data was last evicted from the cache. `refilled` is
    /// the cost charged since then for reloading the data.
    cold_at: Nanos,
    refilled: Nanos,
    chance: Stream,
    report: TaskReport,
}

#[derive(Default)]
struct Lock {
    holder: Option<TaskId>,
    waiting: VecDeque<TaskId>,
}

struct Quota {
    group: Group,
    left: Nanos,
    throttled: Vec<TaskId>,
}

struct LinkState {
    link: Link,
    waiting: VecDeque<TaskId>,
    report: LinkReport,
}

struct Engine<'s> {
    setup: &'s Setup,
    now: Nanos,
    jiffies: Grid,
    hz: i64,
    tick_cost: Nanos,
    cpus: Vec<CpuState>,
    tasks: Vec<Task>,
    locks: Vec<Lock>,
    quotas: Vec<Quota>,
    links: Vec<LinkState>,
    chances: Vec<Stream>,
    scheduler: Box<dyn Scheduler>,
    order: Order,
    /// CPUs whose next event must be recomputed after the current event.
    touched: Vec<usize>,
    hash: TraceHash,
    events: u64,
    max_events: u64,
    recorder: Option<Recorder<'s>>,
    follower: Option<Follower>,
}

impl<'s> Engine<'s> {
    /// Creates an engine for `setup`, which must have passed [`Setup::check`].
    fn new(setup: &'s Setup, recorder: Option<Recorder<'s>>) -> Self {
        let machine = &setup.machine;
        let grid = machine
            .device
            .grid(machine.hz, Nanos::ZERO, machine.drift_ppb);
        let jiffies = grid.expect("a setup is checked before it is run");
        let hz = i64::try_from(machine.hz).expect("a checked rate is below 1 MHz");
        let phases = machine.phases.iter().chain(std::iter::repeat(&Nanos::ZERO));
        let cpus = phases
            .take(machine.cpus)
            .map(|&phase| CpuState::new(jiffies.shifted(phase)));
        let attributes: Vec<Attributes> = setup.tasks.iter().map(|task| task.attributes).collect();
        let locks = setup.tasks.iter().flat_map(|task| &task.program);
        let locks = locks.filter_map(|step| match step {
            crate::Step::Lock(lock) | crate::Step::Unlock(lock) => Some(lock + 1),
            _ => None,
        });
        let number = |place: usize| u64::try_from(place).unwrap_or(u64::MAX);
        let mut engine = Self {
            setup,
            now: Nanos::ZERO,
            jiffies,
            hz,
            tick_cost: machine.costs.tick,
            cpus: cpus.collect(),
            tasks: (0..setup.tasks.len())
                .map(|place| Task::new(setup, place, Stream::new(setup.seed, 2 * number(place))))
                .collect(),
            locks: (0..locks.max().unwrap_or(0))
                .map(|_| Lock::default())
                .collect(),
            quotas: setup.groups.iter().map(Quota::new).collect(),
            links: setup.links.iter().map(LinkState::new).collect(),
            chances: (0..setup.sources.len())
                .map(|place| Stream::new(setup.seed, 2 * number(place) + 1))
                .collect(),
            scheduler: machine.policy.build(machine.cpus, hz, &attributes),
            order: Order::new(machine.cpus),
            touched: Vec::new(),
            hash: TraceHash::new(setup.seed),
            events: 0,
            max_events: u64::MAX,
            recorder,
            follower: None,
        };
        engine.enter_all();
        engine
    }

    /// Queues the initial events.
    fn enter_all(&mut self) {
        for (place, task) in (0_u32..).zip(&self.setup.tasks) {
            let cpu = self.tasks[place as usize].last_cpu;
            let event = Event::Start(TaskId(place));
            self.cpus[cpu].agenda.push(task.start.0, event);
        }
        for (place, source) in self.setup.sources.iter().enumerate() {
            let agenda = &mut self.cpus[source.cpu].agenda;
            agenda.push(source.start.0, Event::Arrival(place));
        }
        for (place, quota) in self.quotas.iter().enumerate() {
            let at = quota.group.period;
            self.cpus[0].agenda.push(at.0, Event::Refill(place));
        }
        for cpu in 0..self.cpus.len() {
            self.plan(cpu);
        }
    }

    fn run(mut self) -> (Report, Option<SourceTable>) {
        self.go();
        self.close()
    }

    /// Runs the simulation to its end. Returns `false` if it would process more than `max_events`
    /// events.
    fn go(&mut self) -> bool {
        let end = self.setup.length;
        loop {
            let (at, cpu) = self.order.first();
            if at >= end {
                break;
            }
            if self.events == self.max_events {
                return false;
            }
            debug_assert!(
                at >= self.now,
                "time runs backwards: {at:?} after {:?}",
                self.now
            );
            self.now = at;
            self.events += 1;
            self.step(cpu);
        }
        self.now = end;
        true
    }

    /// Processes the next event on `cpu`, along with its immediate consequences on all CPUs.
    fn step(&mut self, cpu: usize) {
        self.advance(cpu);
        let state = &mut self.cpus[cpu];
        if state.decisive_at == self.now && state.decisive >= state.next_tick {
            self.tick(cpu);
        } else if let Some(event) = state.agenda.pop(self.now.0) {
            self.happen(cpu, event);
        } else if state.alarm <= self.now {
            state.alarm = Nanos::MAX;
            if let Some(task) = state.current
                && self.scheduler.tick(cpu, task)
            {
                self.cpus[cpu].resched = true;
            }
        }
        self.touched.push(cpu);
        while let Some(cpu) = self.touched.pop() {
            self.settle(cpu);
            self.plan(cpu);
        }
    }

    fn happen(&mut self, cpu: usize, event: Event) {
        match event {
            Event::Start(task) => self.wake(task, Waker::Unknown),
            Event::Arrived(task) => self.wake(task, Waker::Outside(cpu)),
            Event::Late(task) => self.wake(task, Waker::Handler(cpu, self.timer_work())),
            Event::Timer(task) => self.timer_expires(cpu, task),
            Event::Arrival(source) => self.arrive(cpu, source),
            Event::Refill(group) => self.refill(cpu, group),
        }
    }

    /// Charges the time of all CPUs up to the end, emits the work that is still in progress, and
    /// returns the results.
    fn close(mut self) -> (Report, Option<SourceTable>) {
        for cpu in 0..self.cpus.len() {
            // A tick exactly at the end is not part of the simulation.
            self.now -= Nanos(1);
            if self.cpus[cpu].stamp <= self.now {
                self.advance(cpu);
            }
            self.now += Nanos(1);
            self.cpus[cpu].decisive = self.cpus[cpu].next_tick;
            self.advance(cpu);
            while let Some(frame) = self.cpus[cpu].frames.pop() {
                self.emit_frame(cpu, &frame);
            }
            let state = &mut self.cpus[cpu];
            state.report.pending = u64::from(state.tick_pending);
            self.emit_base(cpu);
        }
        for task in 0..self.tasks.len() {
            self.end_throttling(TaskId(u32::try_from(task).unwrap_or(u32::MAX)));
        }
        self.end_waits();
        let count = |cpu: &CpuState| cpu.report.sampled() + cpu.report.stopped + cpu.report.lost;
        let report = Report {
            elapsed: self.now,
            hash: self.hash.value(),
            events: self.events,
            ticks: self.cpus.iter().map(count).sum(),
            cpus: self.cpus.iter().map(|cpu| cpu.report).collect(),
            tasks: self.tasks.iter().map(|task| task.report).collect(),
            lateness: self.tasks.into_iter().map(|task| task.lateness).collect(),
            links: self.links.iter().map(|link| link.report).collect(),
            tick: self.jiffies.step(),
        };
        (report, self.recorder.map(Recorder::into_sources))
    }

    fn emit_frame(&mut self, cpu: usize, frame: &Frame) {
        let now = self.now;
        let state = &mut self.cpus[cpu];
        let nested = match state.frames.last_mut() {
            Some(below) => &mut below.nested,
            None => &mut state.base_nested,
        };
        *nested += now - frame.began;
        if let Some(recorder) = &mut self.recorder {
            let source = recorder.ids.of_work(frame.work);
            recorder.span(cpu, source, frame.began, now, frame.nested);
        }
    }

    fn emit_base(&mut self, cpu: usize) {
        let state = &mut self.cpus[cpu];
        if let Some(recorder) = &mut self.recorder
            && state.base_began < self.now
        {
            let source: SourceId = match state.current {
                Some(task) => recorder.ids.tasks[task.index()],
                None => recorder.ids.idle,
            };
            recorder.span(cpu, source, state.base_began, self.now, state.base_nested);
        }
        state.base_began = self.now;
        state.base_nested = Nanos::ZERO;
    }
}

impl CpuState {
    fn new(grid: Grid) -> Self {
        Self {
            grid,
            // A tick at time 0 is not charged.
            next_tick: grid.last_at(Nanos::ZERO) + 1,
            decisive: i64::MAX,
            decisive_at: Nanos::MAX,
            off: false,
            current: None,
            mode: Mode::Idle,
            masked: false,
            base_began: Nanos::ZERO,
            base_nested: Nanos::ZERO,
            frames: Vec::new(),
            stamp: Nanos::ZERO,
            wheel: Agenda::new(),
            agenda: Agenda::new(),
            slack: Agenda::new(),
            alarm: Nanos::MAX,
            tick_pending: false,
            pending: 0,
            softirqs: 0,
            expired: Vec::new(),
            resched: false,
            warm: None,
            report: CpuReport::default(),
        }
    }
}

impl Task {
    fn new(setup: &Setup, place: usize, chance: Stream) -> Self {
        let spec = &setup.tasks[place];
        Self {
            state: State::Unborn,
            next_step: 0,
            left: Nanos::ZERO,
            asked: None,
            until: None,
            last_cpu: spec.attributes.cpu.unwrap_or(place % setup.machine.cpus),
            frame_at: spec.start,
            due: spec.start,
            paced: None,
            late: Nanos::ZERO,
            every: vec![None; spec.program.len()],
            slept_at: spec.start,
            asleep_until: None,
            timer: None,
            woken_at: None,
            due_at: spec.start,
            lateness: Histogram::default(),
            throttled_at: Nanos::ZERO,
            signals: 0,
            cold_at: Nanos::ZERO,
            refilled: Nanos::ZERO,
            chance,
            report: TaskReport::default(),
        }
    }
}

impl Quota {
    fn new(group: &Group) -> Self {
        Self {
            group: *group,
            left: group.quota,
            throttled: Vec::new(),
        }
    }
}

impl LinkState {
    fn new(link: &Link) -> Self {
        Self {
            link: *link,
            waiting: VecDeque::new(),
            report: LinkReport::default(),
        }
    }
}
