//! The flight recorder: sums all the time, and everything around what lasted too long.
//!
//! [`Recorder::start`] begins, and [`Recorder::next_event`] is then called again and again: it sleeps
//! until a window of sums is due, or the kernel or a probe notices a trigger. The ring of every span and edge is not
//! read before; then the seconds around the trigger become a [`FrozenWindow`], and recording goes on
//! meanwhile and afterwards. Where further triggers make that longer, it is handed out as it is as often as some of
//! them have been waiting for as long as one alone would, and whole at its end.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use ticktax_host::{Proc, clock_offsets, own_peak_memory, own_thread_cpu_time};
use ticktax_model::incident::{Trigger, TriggerKind, TriggerSpec};
use ticktax_model::recording::Books;
use ticktax_model::{CpuList, Nanos, SourceTable};
use ticktax_probes::clock::now;
use ticktax_probes::gaps::GapWatch;
use ticktax_trace::{Capture, Counted, Tracer, Triggers};

use crate::collector::Collector;
use crate::error::ObserveError;
use crate::plan::{Plan, Settings};

mod frames;
mod grow;
mod header;
mod learner;
mod rules;
mod sizes;
mod told;
mod window;

pub use told::{
    FrameState, FrameStatus, FrozenWindow, PercentileStatus, ProgramWindow, RecorderEvent,
    RecorderPlan, RecorderStarted, RecorderStatus, SumsWindow,
};

use frames::Programs;
use grow::{Loading, Past};
use rules::{Fired, Rules};
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
    rules: Rules,
    /// Those whose frames triggers are about.
    programs: Programs,
    /// Where a trigger is about gaps.
    gaps: Option<GapWatch>,
    /// Gaps that probes before these did not hand over.
    gaps_suppressed: u64,
    next_minute: Nanos,
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
    /// Since when it is to end.
    stopped: Option<Nanos>,
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
        let cpus = (&settings.watched, &settings.online);
        let mut rules = Rules::of(&plan.triggers, cpus, &proc)?;
        let mut programs = Programs::of(&plan.triggers, &proc)?;
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
        let wake = Waker(Arc::new(wake));
        let gaps = rules.probe(plan.probe, ring(&wake))?;
        tracer.start_flight(&settings.watched, &settings.online);
        let begin = now();
        rules.begin(&mut tracer).map_err(refused)?;
        programs.begin(begin);
        Ok(Self {
            started: RecorderStarted {
                machine: proc.machine(),
                cpus: settings.online,
                limitations: tracer.limitations().to_vec(),
                ring_records: tracer.ring_len(),
                buffer_bytes: tracer.buffer_bytes(),
                probe: plan.probe,
                probed: rules.probed(),
                probe_refused: gaps.as_ref().and_then(GapWatch::refused).cloned(),
                begin,
            },
            watched: settings.watched,
            rules,
            programs,
            gaps,
            gaps_suppressed: 0,
            next_minute: begin + plan.minute,
            proc,
            room,
            past: Past::default(),
            larger: None,
            told: false,
            tracer: Some(tracer),
            triggers,
            wake,
            open: None,
            next_reading: begin,
            collector: None,
            waiting: VecDeque::new(),
            not_before: begin,
            next_sums: begin + plan.window,
            switched: None,
            windows: 0,
            stopped: None,
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
            suppressed: self.past.suppressed + tracer.suppressed() + self.gaps_suppressed(),
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
            above: None,
        });
    }

    /// Replaces what freezes the ring.
    ///
    /// # Errors
    /// When a trigger names what is not there, or they are too many; those before stay then.
    pub fn set_triggers(&mut self, triggers: &[TriggerSpec]) -> Result<(), ObserveError> {
        let cpus = (&self.watched, &self.started.cpus);
        let mut rules = Rules::of(triggers, cpus, &self.proc)?;
        let mut programs = Programs::of(triggers, &self.proc)?;
        programs.begin(now());
        let gaps = rules.probe(self.plan.probe, ring(&self.wake))?;
        if let Some(tracer) = &mut self.tracer {
            let begun = rules.begin(tracer);
            begun.map_err(|why| ObserveError::NoTracer {
                program: "this machine".to_owned(),
                why,
            })?;
        }
        self.stop_probes();
        self.gaps = gaps;
        if let Some(gaps) = &mut self.gaps {
            gaps.begin();
        }
        self.rules = rules;
        self.programs = programs;
        self.plan.triggers = triggers.to_vec();
        Ok(())
    }

    /// How the triggers stand whose thresholds are percentiles.
    pub fn percentiles(&self) -> Vec<PercentileStatus> {
        self.rules.percentiles().collect()
    }

    fn gaps_suppressed(&self) -> u64 {
        let now = self.gaps.as_ref().map_or(0, GapWatch::suppressed);
        self.gaps_suppressed + now
    }

    fn stop_probes(&mut self) {
        if let Some(gaps) = self.gaps.take() {
            self.gaps_suppressed += gaps.suppressed();
            gaps.stop();
        }
    }

    /// Ends it: what is open is handed out as it is, then the last sums.
    pub fn stop(&mut self) {
        self.stopped.get_or_insert_with(now);
    }

    /// The next step; waits for it for `timeout` at most.
    pub fn next_event(&mut self, timeout: Duration) -> RecorderEvent<'_> {
        if !self.told {
            self.told = true;
            // Not before: whoever drives it may become another user first, which all threads do together.
            if let Some(gaps) = &mut self.gaps {
                gaps.begin();
            }
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
            self.turn_minute(time);
            if let Some(seen) = self.turn_frames(time) {
                return RecorderEvent::Program(Box::new(seen));
            }
            if let Some(frozen) = self.turn_window(time) {
                return RecorderEvent::Frozen(Box::new(frozen));
            }
            if let Some(sums) = self.turn_sums(time) {
                return RecorderEvent::Sums(Box::new(sums));
            }
            if self.stopped.is_some() && self.open.is_none() && self.switched.is_none() {
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
        let mut sums = self.switched.map_or(self.next_sums, |time| time + SETTLE);
        if self.rules.learns() {
            sums = sums.min(self.next_minute);
        }
        if let (None, Some(visit)) = (&self.open, self.programs.next_visit()) {
            sums = sums.min(visit);
        }
        match &self.open {
            Some((window, _)) => {
                let due = window.due().min(window.end());
                sums.min(self.next_reading).min(due + SETTLE)
            }
            None => sums,
        }
    }

    /// Puts what triggered into the window that is open, or has it wait for the next.
    fn take_triggers(&mut self) {
        let Some(tracer) = &mut self.tracer else {
            return;
        };
        while let Some(noticed) = tracer.next_trigger(&mut self.triggers) {
            if let Some(target) = self.rules.framed(&noticed) {
                self.programs.lost_one(target, noticed.time);
            }
            if let Some(Fired { kind, above }) = self.rules.fired(&noticed) {
                self.waiting.push_back(Trigger {
                    kind,
                    time: noticed.time,
                    cpu: Some(noticed.cpu),
                    tid: noticed.tid,
                    pid: noticed.pid,
                    comm: noticed.name,
                    lasted: noticed.lasted,
                    above,
                });
            }
        }
        while let Some(gap) = self.gaps.as_ref().and_then(GapWatch::next_gap) {
            if let Some(Fired { kind, above }) = self.rules.gap_fired(&gap) {
                self.waiting.push_back(Trigger {
                    kind,
                    time: gap.end,
                    cpu: Some(gap.cpu),
                    tid: 0,
                    pid: 0,
                    comm: String::new(),
                    lasted: gap.end - gap.begin,
                    above,
                });
            }
        }
        if let Some((window, _)) = &mut self.open {
            self.waiting.retain(|trigger| !window.add(trigger));
        }
        if let Some(stopped) = self.stopped {
            // On a busy machine there is always one more.
            self.waiting.retain(|trigger| trigger.time <= stopped);
        }
    }

    /// Sets thresholds that are percentiles, once in a minute.
    fn turn_minute(&mut self, time: Nanos) {
        if time < self.next_minute {
            return;
        }
        self.next_minute = time + self.plan.minute;
        if let Some(tracer) = &mut self.tracer {
            // Where the kernel cannot be told, what it was told before holds, and the next minute tries again.
            let _ = self.rules.turn(tracer, self.gaps.as_ref());
        }
    }

    /// Opens a window where something triggered, reads the ring where it is time, and hands the window out
    /// once it is over, or before where more triggers made it longer than the first of them can wait.
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
            window.clocks = clock_offsets();
            self.waiting.retain(|trigger| !window.add(trigger));
            let capture = tracer.capture(window.begin(), self.plan.window_bytes);
            self.next_reading = time + reading_interval(tracer);
            self.open = Some((window, capture));
        }
        let (window, capture) = self.open.as_mut()?;
        let over = time >= window.end() + SETTLE || self.stopped.is_some();
        if !over && time >= self.next_reading {
            tracer.fill_capture(capture);
            self.next_reading = now() + reading_interval(tracer);
        }
        if over || capture.is_full() {
            let (window, capture) = self.open.take()?;
            let frozen = self.freeze(window, capture, time)?;
            self.not_before = frozen.header.after.at;
            return Some(frozen);
        }
        if time < window.due() + SETTLE {
            return None;
        }
        let (mut window, mut capture) = self.open.take()?;
        let seen = self.look(&mut window, &mut capture);
        self.open = Some((window, capture));
        seen
    }

    /// Has the tables of sums take turns, and hands out the one that was left.
    fn turn_sums(&mut self, time: Nanos) -> Option<SumsWindow> {
        self.tracer.as_ref()?;
        match self.switched {
            _ if self.stopped.is_some() => self.close_sums(),
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
        self.stop_probes();
        self.last = self.status();
        self.last_counted = self.counted();
        self.tracer = None;
        self.last
    }
}

/// What a probe's thread calls.
fn ring(wake: &Waker) -> impl Fn() + Clone + Send + 'static {
    let wake = wake.clone();
    move || wake.wake()
}

/// From one reading of the rings to the next, while they are read.
fn reading_interval(tracer: &Tracer) -> Nanos {
    let reach = tracer.ring_reach().unwrap_or(Nanos::from_secs(READINGS));
    Nanos(reach.0 / READINGS).max(SHORTEST)
}
