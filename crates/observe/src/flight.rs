//! The flight recorder: continuous sums, and full detail around delays above a threshold.
//!
//! After [`Recorder::start`], call [`Recorder::next_event`] repeatedly. It sleeps until a window of
//! sums is due, or until the kernel or a probe reports a trigger. The ring of spans and edges is
//! read only after a trigger. The seconds around the trigger become a [`FrozenWindow`], while
//! recording continues.
//!
//! Further triggers extend the window. So that no trigger is reported late, the recorder also emits
//! the window's current state while it grows, and the complete window at its end.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use ticktax_host::{Proc, clock_offsets, own_peak_memory, own_thread_cpu_time};
use ticktax_model::incident::{Trigger, TriggerKind, TriggerSpec};
use ticktax_model::recording::CpuInterval;
use ticktax_model::{CpuList, Nanos, SourceTable};
use ticktax_probes::clock::now;
use ticktax_probes::gaps::GapWatch;
use ticktax_trace::{Capture, Counted, Tracer, Triggers};

use crate::collector::Collector;
use crate::error::ObserveError;
use crate::head_start::HeadStart;
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

/// Time by which BPF programs running at a given moment have finished, unless the hypervisor
/// stopped their CPU.
const SETTLE: Nanos = Nanos::from_millis(20);

/// Number of times that a ring is read before it can wrap, while a window is open.
const READINGS: i64 = 4;

/// Minimum interval between two of these reads.
const SHORTEST: Nanos = Nanos::from_millis(10);

/// Program names are forgotten after this many windows of sums.
const FORGET: u64 = 6;

/// A handle that lets any thread end the wait in [`Recorder::next_event`].
#[derive(Clone, Debug)]
pub struct Waker(Arc<EventFd>);

impl Waker {
    /// Makes [`Recorder::next_event`] return immediately.
    pub fn wake(&self) {
        // This fails only if very many wake-ups are already pending.
        let _ = self.0.write(1);
    }
}

/// A flight recorder for this machine. The tracer is unloaded when the recorder is dropped or the
/// process is killed.
///
/// The recorder belongs to the thread that starts it. That thread's CPU time counts as the
/// recorder's cost.
pub struct Recorder {
    proc: Proc,
    plan: RecorderPlan,
    watched: CpuList,
    /// Length that a table indexed by CPU number must have.
    room: usize,
    past: Past,
    larger: Option<Loading>,
    started: RecorderStarted,
    start_reported: bool,
    /// The tracer; `None` after the end.
    tracer: Option<Tracer>,
    triggers: Triggers,
    wake: Waker,
    rules: Rules,
    /// Programs with frame triggers.
    programs: Programs,
    /// Probes for gap triggers, if there are any.
    gaps: Option<GapWatch>,
    /// Number of gaps that earlier probes suppressed.
    gaps_suppressed: u64,
    next_minute: Nanos,
    /// The window being kept, and its events so far.
    open: Option<(Window, Capture)>,
    next_reading: Nanos,
    /// Affinity and priority of this thread while a window is being kept and handled.
    collector: Option<Collector>,
    /// Triggers that are not part of a window yet.
    waiting: VecDeque<Trigger>,
    /// End of the last window, before which no new window may start.
    not_before: Nanos,
    next_sums: Nanos,
    /// When the kernel switched away from the table of sums due to be emitted next.
    switched: Option<Nanos>,
    windows: u64,
    /// When [`Recorder::stop`] was called.
    stopped: Option<Nanos>,
    last: RecorderStatus,
    last_counted: Counted,
    books: Vec<CpuInterval>,
    cpu_before: Nanos,
}

impl Recorder {
    /// Loads the tracer and starts recording.
    ///
    /// # Errors
    /// Returns an error if the plan does not fit this machine, or if the tracer cannot be loaded.
    pub fn start(plan: RecorderPlan) -> Result<Self, ObserveError> {
        Self::start_with(plan, HeadStart::take())
    }

    /// Does the same as [`Recorder::start`], for a thread that has already taken a head start, which
    /// ends when this returns.
    ///
    /// # Errors
    /// Returns the same errors as [`Recorder::start`].
    pub fn start_with(plan: RecorderPlan, _head_start: HeadStart) -> Result<Self, ObserveError> {
        let proc = Proc::default();
        let settings = Settings::new(
            Plan {
                cpus: plan.cpus.clone(),
                ..Plan::default()
            },
            &proc,
        )?;
        let cpus = (&settings.watched, &settings.online);
        let mut rules = Rules::from_triggers(&plan.triggers, cpus, &proc)?;
        let mut programs = Programs::from_triggers(&plan.triggers, &proc)?;
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
        let gaps = rules.probe(plan.probe, wake_up_call(&wake))?;
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
            start_reported: false,
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

    /// Facts known before the first event.
    pub fn started(&self) -> &RecorderStarted {
        &self.started
    }

    /// A handle that ends the wait in [`Recorder::next_event`].
    pub fn waker(&self) -> Waker {
        self.wake.clone()
    }

    /// The current status, or the final status once the recorder has ended.
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
            // This includes the rings and tables, because they are mapped into this process.
            memory_bytes: own_peak_memory(),
        }
    }

    /// The tracer's counters so far, or its final counters once the recorder has ended.
    pub fn counted(&self) -> Counted {
        let tracer = self.tracer.as_ref();
        tracer.map_or_else(
            || self.last_counted.clone(),
            |tracer| self.past.plus(tracer.counted()),
        )
    }

    /// The interval that the sums of each CPU cover together. Empty until the recorder has ended.
    pub fn books(&self) -> &[CpuInterval] {
        &self.books
    }

    /// Freezes the ring on request. `kind` is [`TriggerKind::Signal`] or [`TriggerKind::Mark`], and
    /// `words` is a comment to store with the trigger.
    pub fn trigger(&mut self, kind: TriggerKind, words: &str) {
        self.waiting.push_back(Trigger {
            kind,
            at: now(),
            cpu: None,
            tid: 0,
            pid: 0,
            comm: words.to_owned(),
            lasted: Nanos::ZERO,
            above: None,
        });
    }

    /// Replaces the triggers.
    ///
    /// # Errors
    /// Returns an error if a trigger names something that does not exist, or if there are too many
    /// triggers. The previous triggers then stay in effect.
    pub fn set_triggers(&mut self, triggers: &[TriggerSpec]) -> Result<(), ObserveError> {
        let cpus = (&self.watched, &self.started.cpus);
        let mut rules = Rules::from_triggers(triggers, cpus, &self.proc)?;
        let mut programs = Programs::from_triggers(triggers, &self.proc)?;
        programs.begin(now());
        let gaps = rules.probe(self.plan.probe, wake_up_call(&self.wake))?;
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

    /// Status of the triggers with percentile thresholds.
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

    /// Ends the recorder, which then emits the current state of the open window and the last sums.
    pub fn stop(&mut self) {
        self.stopped.get_or_insert_with(now);
    }

    /// Returns the next event, after at most `timeout`.
    pub fn next_event(&mut self, timeout: Duration) -> RecorderEvent<'_> {
        if !self.start_reported {
            self.start_reported = true;
            // Wait until now, because the caller may first change its user, which affects all
            // threads.
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

    /// Raises the priority if something due at `due` happened too late: while a window is open, the
    /// ring must not wrap just because this thread waits for a CPU.
    fn was_due(&mut self, due: Nanos) {
        if let (Some(_), Some(tracer), Some(collector)) =
            (&self.open, &self.tracer, &mut self.collector)
        {
            collector.was_due(due, reading_interval(tracer));
        }
    }

    /// Whether [`Waker::wake`] was called since the last check.
    fn was_woken(&self) -> bool {
        self.wake.0.read().is_ok()
    }

    /// When to act next if no trigger fires before.
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

    /// Adds new triggers to the open window, or queues them for the next window.
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
                    at: noticed.time,
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
                    at: gap.end,
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
            // Without this limit, a busy machine could add new triggers forever.
            self.waiting.retain(|trigger| trigger.at <= stopped);
        }
    }

    /// Updates percentile thresholds once per minute.
    fn turn_minute(&mut self, time: Nanos) {
        if time < self.next_minute {
            return;
        }
        self.next_minute = time + self.plan.minute;
        if let Some(tracer) = &mut self.tracer {
            // If the kernel's rules cannot be updated, the previous thresholds apply for another
            // minute.
            let _ = self.rules.turn(tracer, self.gaps.as_ref());
        }
    }

    /// Opens a window after a trigger, and reads the ring when due. Returns the window when it is
    /// over. Returns its current state earlier if further triggers would delay the report of
    /// earlier ones too long.
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
            // Handling a window takes CPU time. Do not take it from the CPU that is already late.
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

    /// Switches between the two tables of sums, and returns the contents of the inactive one.
    fn turn_sums(&mut self, time: Nanos) -> Option<SumsWindow> {
        self.tracer.as_ref()?;
        match self.switched {
            _ if self.stopped.is_some() => self.close_sums(),
            None if time >= self.next_sums => {
                // After a suspend or an overload, the missed windows become one long window.
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

    /// Returns the last sums, including the intervals still open on each CPU.
    fn close_sums(&mut self) -> Option<SumsWindow> {
        let sums = self.close_tracer()?;
        self.books = std::mem::take(&mut self.past.books);
        self.end();
        Some(sums)
    }

    /// Ends the current tracer and returns its last sums.
    fn close_tracer(&mut self) -> Option<SumsWindow> {
        let tracer = self.tracer.as_mut()?;
        // The accounts of a CPU that went offline end with its last event.
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

    /// Unloads the tracer and returns the final status.
    fn end(&mut self) -> RecorderStatus {
        self.stop_probes();
        self.last = self.status();
        self.last_counted = self.counted();
        self.tracer = None;
        self.last
    }
}

/// Returns a function with which a probe's thread wakes the recorder.
fn wake_up_call(wake: &Waker) -> impl Fn() + Clone + Send + 'static {
    let wake = wake.clone();
    move || wake.wake()
}

/// Interval between two reads of the rings.
fn reading_interval(tracer: &Tracer) -> Nanos {
    let reach = tracer.ring_reach().unwrap_or(Nanos::from_secs(READINGS));
    Nanos(reach.0 / READINGS).max(SHORTEST)
}
