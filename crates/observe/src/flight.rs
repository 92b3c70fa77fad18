//! The flight recorder: sums all the time, and everything around what lasted too long.
//!
//! [`Recorder::start`] begins, and [`Recorder::next_event`] is then called again and again: it sleeps
//! until a window of sums is due or the kernel notices a trigger. The ring of every span and edge is not
//! read before; then the seconds around the trigger become a [`FrozenWindow`], and recording goes on
//! meanwhile and afterwards.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use ticktax_host::{Proc, own_peak_memory, own_thread_cpu_time};
use ticktax_model::incident::{Trigger, TriggerKind, TriggerSpec};
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Books, Header, Row};
use ticktax_model::{CpuList, Nanos, SourceTable};
use ticktax_probes::clock::now;
use ticktax_trace::{Capture, Counted, FrozenRows, Tracer, Triggers};

use crate::collector::Collector;
use crate::error::ObserveError;
use crate::plan::{Plan, Settings};

mod grow;
mod header;
mod rules;
mod sizes;
mod window;

use grow::{Loading, Past};
use window::{Margins, Window};

/// After a moment, all programs that were at work then have ended: as long as this, unless the hypervisor
/// stopped a CPU.
const SETTLE: Nanos = Nanos::from_millis(20);

/// How often a ring is read while a window is open: so many times before it comes round.
const READINGS: i64 = 4;

/// The shortest time from one of these readings to the next.
const SHORTEST: Nanos = Nanos::from_millis(10);

/// Windows of sums from one time that names of programs are forgotten to the next.
const FORGET: u64 = 6;

/// What to record.
#[derive(Clone, Debug, PartialEq)]
pub struct RecorderPlan {
    /// Which CPUs; `None`: all that are online, and those that are plugged in later.
    pub cpus: Option<CpuList>,
    /// What freezes the ring. [`TriggerKind::Signal`] among them changes nothing: see
    /// [`Recorder::trigger`].
    pub triggers: Vec<TriggerSpec>,
    /// What is kept before the beginning of what triggered.
    pub before: Nanos,
    /// And after the last trigger.
    pub after: Nanos,
    /// The longest window: what triggers after it freezes the next one.
    pub longest: Nanos,
    /// How often sums are handed out.
    pub window: Nanos,
    /// Most memory for the rings of all CPUs together, in bytes.
    pub ring_bytes: u64,
    /// What they take at the start; `None`: a quarter of that, or as much more as the rate of events asks for then.
    pub ring_first: Option<u64>,
    /// Whether rings that reach back for less than [`RecorderPlan::before`] give way to larger ones. That takes the
    /// rights that starting took, and for a moment the memory of both.
    pub ring_grows: bool,
    /// Most memory for a window while it is kept, in bytes; it holds some ten bytes of each record. A window
    /// that needs more ends early.
    pub window_bytes: usize,
}

impl Default for RecorderPlan {
    /// Two seconds around a trigger, windows of ten seconds, at most 64 MiB of rings, which stay as they are; no
    /// trigger.
    fn default() -> Self {
        Self {
            cpus: None,
            triggers: Vec::new(),
            before: Nanos::from_secs(2),
            after: Nanos::from_secs(2),
            longest: Nanos::from_secs(10),
            window: Nanos::from_secs(10),
            ring_bytes: 64 << 20,
            ring_first: None,
            ring_grows: false,
            window_bytes: 28 << 20,
        }
    }
}

/// What is known before the first event.
#[derive(Clone, Debug)]
pub struct RecorderStarted {
    /// The machine.
    pub machine: Machine,
    /// The CPUs that are watched from the beginning.
    pub cpus: CpuList,
    /// What cannot be seen on this kernel.
    pub limitations: Vec<Limitation>,
    /// Records that each CPU's ring holds at the start.
    pub ring_records: usize,
    /// Memory of the rings and tables, in bytes.
    pub buffer_bytes: u64,
    /// When the books were opened, on `CLOCK_MONOTONIC`.
    pub begin: Nanos,
}

/// How a recorder stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderStatus {
    /// Tracepoint hits so far.
    pub events: u64,
    /// Triggers so far that the kernel did not hand out: more than 16 on a CPU within a second.
    pub suppressed: u64,
    /// Records that each CPU's ring holds by now.
    pub ring_records: usize,
    /// For how long the ring that comes round soonest reaches back; `None` where none has come round.
    pub reach: Option<Nanos>,
    /// CPU time of the thread that drives it, since it was started.
    pub cpu: Nanos,
    /// Most memory that the process held, with the rings and tables, in bytes.
    pub memory_bytes: u64,
}

/// The sums of one window of time.
#[derive(Clone, Debug)]
pub struct SumsWindow {
    /// On `CLOCK_MONOTONIC`.
    pub begin: Nanos,
    /// Likewise.
    pub end: Nanos,
    /// The sources that the rows name.
    pub sources: SourceTable,
    /// [`Row::Sum`]s; of the last window also a span for each thing that a CPU was in the middle of.
    pub rows: Vec<Row>,
}

/// Everything that was recorded around some triggers.
#[derive(Clone, Debug)]
pub struct FrozenWindow {
    /// As of any recording; [`Header::triggers`] are in it.
    pub header: Header,
    /// The sources that the rows name.
    pub sources: SourceTable,
    /// Made when they are asked for, as often as that is.
    pub rows: FrozenRows,
    /// Triggers within it that are not in the header: there were too many.
    pub left_out: u64,
}

/// One step of a recorder.
#[derive(Debug)]
pub enum RecorderEvent<'a> {
    /// Comes first, and once.
    Started(&'a RecorderStarted),
    /// A window of sums is over.
    Sums(Box<SumsWindow>),
    /// Something triggered, and what is to be kept after it has passed.
    Frozen(Box<FrozenWindow>),
    /// Nothing, for as long as asked, or until [`Waker::wake`].
    Idle,
    /// Comes last, again and again.
    Ended(RecorderStatus),
}

/// Ends the waiting of [`Recorder::next_event`], from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<EventFd>);

impl Waker {
    /// Has [`Recorder::next_event`] return at once.
    pub fn wake(&self) {
        // It fails only where it has been woken very often already.
        let _ = self.0.write(1);
    }
}

/// A flight recorder of this machine. Dropping it takes the tracer out of the kernel; nothing stays there
/// when the process is killed either.
///
/// It belongs to the thread that starts it: what that thread uses is its cost.
pub struct Recorder {
    proc: Proc,
    plan: RecorderPlan,
    watched: CpuList,
    /// The CPUs that there may ever be.
    room: usize,
    past: Past,
    larger: Option<Loading>,
    started: RecorderStarted,
    told: bool,
    /// `None` once it has ended.
    tracer: Option<Tracer>,
    triggers: Triggers,
    wake: Waker,
    /// Those of the plan that the kernel decides, in the order of its rules.
    rules: Vec<TriggerKind>,
    /// What is being kept.
    open: Option<(Window, Capture)>,
    next_reading: Nanos,
    /// What this thread is while a window is kept, until it has been dealt with.
    collector: Option<Collector>,
    /// Triggers that belong to no window yet.
    waiting: VecDeque<Trigger>,
    /// No window begins before the end of the last one.
    not_before: Nanos,
    next_sums: Nanos,
    /// When the table that is to be handed out was left.
    switched: Option<Nanos>,
    windows: u64,
    stopped: bool,
    last: RecorderStatus,
    last_counted: Counted,
    books: Vec<Books>,
    cpu_before: Nanos,
}

impl Recorder {
    /// Loads the tracer and begins to record.
    ///
    /// # Errors
    /// When the plan does not fit this machine, or the tracer does not load.
    pub fn start(plan: RecorderPlan) -> Result<Self, ObserveError> {
        let proc = Proc::default();
        let settings = Settings::of(
            Plan {
                cpus: plan.cpus.clone(),
                ..Plan::default()
            },
            &proc,
        )?;
        let rules = rules::rules(&plan.triggers, &proc)?;
        let cpu_before = own_thread_cpu_time();
        let room = proc.room_for_cpus();
        let per_cpu = sizes::records_per_cpu(&proc, settings.online.len(), room, &plan);
        let refused = |why| ObserveError::NoTracer {
            program: "this machine".to_owned(),
            why,
        };
        let (mut tracer, triggers) = grow::load(per_cpu, room).map_err(refused)?;
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(|_| ObserveError::NoDescriptor)?;
        tracer.start_flight(&settings.watched, &settings.online);
        let begin = now();
        tracer.set_rules(&rules).map_err(refused)?;
        let measured = plan.triggers.iter().map(|spec| spec.kind);
        Ok(Self {
            started: RecorderStarted {
                machine: proc.machine(),
                cpus: settings.online,
                limitations: tracer.limitations().to_vec(),
                ring_records: tracer.ring_len(),
                buffer_bytes: tracer.buffer_bytes(),
                begin,
            },
            rules: measured.filter(|kind| kind.is_measured()).collect(),
            proc,
            watched: settings.watched,
            room,
            past: Past::default(),
            larger: None,
            told: false,
            tracer: Some(tracer),
            triggers,
            wake: Waker(Arc::new(wake)),
            open: None,
            next_reading: begin,
            collector: None,
            waiting: VecDeque::new(),
            not_before: begin,
            next_sums: begin + plan.window,
            switched: None,
            windows: 0,
            stopped: false,
            last: RecorderStatus {
                events: 0,
                suppressed: 0,
                ring_records: 0,
                reach: None,
                cpu: Nanos::ZERO,
                memory_bytes: 0,
            },
            last_counted: Counted::default(),
            books: Vec::new(),
            cpu_before,
            plan,
        })
    }

    /// What [`RecorderEvent::Started`] tells, or told.
    pub fn started(&self) -> &RecorderStarted {
        &self.started
    }

    /// Ends the waiting of [`Recorder::next_event`].
    pub fn waker(&self) -> Waker {
        self.wake.clone()
    }

    /// How it stands; what it came to where it has ended.
    pub fn status(&self) -> RecorderStatus {
        let Some(tracer) = &self.tracer else {
            return self.last;
        };
        RecorderStatus {
            events: self.past.counted.events + tracer.events(),
            suppressed: self.past.suppressed + tracer.suppressed(),
            ring_records: tracer.ring_len(),
            reach: tracer.ring_reach(),
            cpu: own_thread_cpu_time() - self.cpu_before,
            // The rings and tables are mapped, so they are among it.
            memory_bytes: own_peak_memory(),
        }
    }

    /// What the tracer has counted so far, or had when the recorder ended.
    pub fn counted(&self) -> Counted {
        let tracer = self.tracer.as_ref();
        tracer.map_or_else(
            || self.last_counted.clone(),
            |tracer| self.past.and(tracer.counted()),
        )
    }

    /// The time on each CPU that all sums together are of; empty before the recorder has ended.
    pub fn books(&self) -> &[Books] {
        &self.books
    }

    /// Freezes the ring because somebody asked for it: [`TriggerKind::Signal`] or [`TriggerKind::Mark`], with
    /// the words that came with it.
    pub fn trigger(&mut self, kind: TriggerKind, words: &str) {
        self.waiting.push_back(Trigger {
            kind,
            time: now(),
            cpu: None,
            tid: 0,
            pid: 0,
            comm: words.to_owned(),
            lasted: Nanos::ZERO,
        });
    }

    /// Replaces what freezes the ring.
    ///
    /// # Errors
    /// When a trigger names what is not there, or they are too many; those before stay then.
    pub fn set_triggers(&mut self, triggers: &[TriggerSpec]) -> Result<(), ObserveError> {
        let rules = rules::rules(triggers, &self.proc)?;
        if let Some(tracer) = &mut self.tracer {
            let set = tracer.set_rules(&rules);
            set.map_err(|why| ObserveError::NoTracer {
                program: "this machine".to_owned(),
                why,
            })?;
        }
        let kinds = triggers.iter().map(|spec| spec.kind);
        self.rules = kinds.filter(|kind| kind.is_measured()).collect();
        self.plan.triggers = triggers.to_vec();
        Ok(())
    }

    /// Ends it: what is open is handed out as it is, then the last sums.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// The next step; waits for it for `timeout` at most.
    pub fn next_event(&mut self, timeout: Duration) -> RecorderEvent<'_> {
        if !self.told {
            self.told = true;
            return RecorderEvent::Started(&self.started);
        }
        if self.open.is_none() {
            self.collector = None;
        }
        let timeout = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX / 4);
        let deadline = Nanos(now().0.saturating_add(timeout));
        loop {
            self.take_triggers();
            let time = now();
            if let Some(frozen) = self.turn_window(time) {
                return RecorderEvent::Frozen(Box::new(frozen));
            }
            if let Some(sums) = self.turn_sums(time) {
                return RecorderEvent::Sums(Box::new(sums));
            }
            if self.stopped && self.open.is_none() && self.switched.is_none() {
                return RecorderEvent::Ended(self.end());
            }
            if time >= deadline || self.was_woken() {
                return RecorderEvent::Idle;
            }
            let due = self.next_step().min(deadline);
            let next = Duration::from_nanos(u64::try_from((due - time).0).unwrap_or(0));
            self.triggers.wait(self.wake.0.as_fd(), next);
            self.was_due(due);
        }
    }

    /// Where a window is open, a ring must not come round while this thread waits for a CPU.
    fn was_due(&mut self, due: Nanos) {
        if let (Some(_), Some(tracer), Some(collector)) =
            (&self.open, &self.tracer, &mut self.collector)
        {
            collector.was_due(due, reading_interval(tracer));
        }
    }

    /// Whether somebody woke it since this was last asked.
    fn was_woken(&self) -> bool {
        self.wake.0.read().is_ok()
    }

    /// When there is something to do, unless something triggers before.
    fn next_step(&self) -> Nanos {
        let sums = self.switched.map_or(self.next_sums, |time| time + SETTLE);
        match &self.open {
            Some((window, _)) => sums.min(self.next_reading).min(window.end() + SETTLE),
            None => sums,
        }
    }

    /// Puts what triggered into the window that is open, or has it wait for the next.
    fn take_triggers(&mut self) {
        let Some(tracer) = &mut self.tracer else {
            return;
        };
        while let Some(noticed) = tracer.next_trigger(&mut self.triggers) {
            // The rules may have been replaced since.
            if let Some(&kind) = self.rules.get(noticed.rule) {
                self.waiting.push_back(Trigger {
                    kind,
                    time: noticed.time,
                    cpu: Some(noticed.cpu),
                    tid: noticed.tid,
                    pid: noticed.pid,
                    comm: noticed.name,
                    lasted: noticed.lasted,
                });
            }
        }
        if let Some((window, _)) = &mut self.open {
            self.waiting.retain(|trigger| !window.add(trigger));
        }
    }

    /// Opens a window where something triggered, reads the ring where it is time, and hands the window out
    /// once it is over.
    fn turn_window(&mut self, time: Nanos) -> Option<FrozenWindow> {
        let tracer = self.tracer.as_mut()?;
        if self.open.is_none()
            && let Some(first) = self.waiting.pop_front()
        {
            let margins = Margins {
                before: self.plan.before,
                after: self.plan.after,
                longest: self.plan.longest,
            };
            // It has a window's work before it, which is not to be done where somebody is late already.
            let mut collector = Collector::new();
            collector.keep_off(first.cpu.as_slice());
            self.collector = Some(collector);
            let mut window = Window::new(first, margins, self.not_before);
            self.waiting.retain(|trigger| !window.add(trigger));
            let capture = tracer.capture(window.begin(), self.plan.window_bytes);
            self.next_reading = time + reading_interval(tracer);
            self.open = Some((window, capture));
        }
        let (window, capture) = self.open.as_mut()?;
        let over = time >= window.end() + SETTLE || self.stopped;
        if !over && time >= self.next_reading {
            tracer.fill_capture(capture);
            self.next_reading = now() + reading_interval(tracer);
        }
        if !over && !capture.is_full() {
            return None;
        }
        let (window, capture) = self.open.take()?;
        let frozen = self.freeze(window, capture, time)?;
        self.not_before = frozen.header.after.at;
        Some(frozen)
    }

    /// Has the tables of sums take turns, and hands out the one that was left.
    fn turn_sums(&mut self, time: Nanos) -> Option<SumsWindow> {
        self.tracer.as_ref()?;
        match self.switched {
            _ if self.stopped => self.close_sums(),
            None if time >= self.next_sums => {
                // What was missed, while the machine was suspended or too busy, is one long window.
                self.next_sums = time + self.plan.window;
                let grown = self.grow();
                if grown.is_none() {
                    self.tracer.as_mut()?.switch_tables(time);
                    self.switched = Some(time);
                }
                grown
            }
            Some(switched) if time >= switched + SETTLE => self.take_sums(),
            _ => None,
        }
    }

    fn take_sums(&mut self) -> Option<SumsWindow> {
        let tracer = self.tracer.as_mut()?;
        let (mut sources, mut rows) = (SourceTable::default(), Vec::new());
        let (begin, end) = tracer.take_sums(&mut sources, &mut |_, row| rows.push(row))?;
        self.windows += 1;
        if self.windows.is_multiple_of(FORGET) {
            tracer.forget_programs();
        }
        self.switched = None;
        Some(SumsWindow {
            begin,
            end,
            sources,
            rows,
        })
    }

    /// The last sums, with what each CPU is in the middle of.
    fn close_sums(&mut self) -> Option<SumsWindow> {
        let sums = self.close_tracer()?;
        self.books = std::mem::take(&mut self.past.books);
        self.end();
        Some(sums)
    }

    /// The last sums of the tracer at work.
    fn close_tracer(&mut self) -> Option<SumsWindow> {
        let tracer = self.tracer.as_mut()?;
        // The books of a CPU that was taken offline end with the last event seen there.
        let online = self.proc.online();
        let online = online.as_ref().unwrap_or(&self.started.cpus);
        let (mut sources, mut rows) = (SourceTable::default(), Vec::new());
        let ((begin, end), closing) = tracer.close_flight(online, &mut sources, &mut |_, row| {
            rows.push(row.clone());
        });
        self.past.books.extend(closing.books);
        self.switched = None;
        Some(SumsWindow {
            begin,
            end,
            sources,
            rows,
        })
    }

    /// Takes the tracer out of the kernel, and says what it came to.
    fn end(&mut self) -> RecorderStatus {
        self.last = self.status();
        self.last_counted = self.counted();
        self.tracer = None;
        self.last
    }
}

/// From one reading of the rings to the next, while they are read.
fn reading_interval(tracer: &Tracer) -> Nanos {
    let reach = tracer.ring_reach().unwrap_or(Nanos::from_secs(READINGS));
    Nanos(reach.0 / READINGS).max(SHORTEST)
}
