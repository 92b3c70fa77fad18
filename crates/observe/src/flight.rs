//! The flight recorder. It emits sums continuously, plus every event around delays that exceed a
//! threshold.
//!
//! After [`Recorder::start`], call [`Recorder::next_event`] repeatedly. It sleeps until a window of
//! sums is due, or until the kernel or a probe reports a trigger. The ring of spans and edges is
//! read only after a trigger. The seconds around the trigger become a [`FrozenWindow`], and
//! recording continues in the meantime.
//!
//! Further triggers extend the window. To report every trigger in time, the recorder also emits the
//! window's current state while the window is still growing. It emits the complete window at the
//! end.

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

mod events;
mod frames;
mod grow;
mod header;
mod learner;
mod rules;
mod sizes;
mod window;

pub use events::{
    FrameState, FrameStatus, FrozenWindow, PercentileStatus, ProgramWindow, RecorderEvent,
    RecorderPlan, RecorderStarted, RecorderStatus, SumsWindow,
};

use frames::Programs;
use grow::{Loading, Past};
use rules::{Fired, Rules};
use window::{Margins, Window};

/// After this time, every BPF program that was running at a given moment has finished, unless the
/// hypervisor stopped its CPU.
const SETTLE: Nanos = Nanos::from_millis(20);

/// While a window is open, each ring is read this many times in the time it takes to wrap around.
const READINGS: i64 = 4;

/// Minimum interval between two reads of a ring while a window is open.
const SHORTEST: Nanos = Nanos::from_millis(10);

/// The names of programs are forgotten after this many windows of sums.
const FORGET: u64 = 6;

/// A handle that lets any thread end the wait in [`Recorder::next_event`].
#[derive(Clone, Debug)]
pub struct Waker(Arc<EventFd>);

impl Waker {
    /// Makes [`Recorder::next_event`] return immediately.
    pub fn wake(&self) {
        // This fails only if a huge number of wake-ups are already pending, so the error can be
        // ignored.
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
    /// Length of the tables that are indexed by CPU number.
    room: usize,
    past: Past,
    larger: Option<Loading>,
    started: RecorderStarted,
    start_reported: bool,
    /// The tracer, or `None` after the recorder has ended.
    tracer: Option<Tracer>,
    triggers: Triggers,
    wake: Waker,
    rules: Rules,
    /// Programs that have frame triggers.
    programs: Programs,
    /// Probes for gap triggers, or `None` without such triggers.
    gaps: Option<GapWatch>,
    /// Number of gaps that were suppressed by probes that have since been replaced.
    gaps_suppressed: u64,
    next_minute: Nanos,
    /// The window that is being kept, and the events read for it so far.
    open: Option<(Window, Capture)>,
    next_reading: Nanos,
    /// This thread's affinity and priority, from the moment a window is opened until it has been
    /// handled.
    collector: Option<Collector>,
    /// Triggers that do not belong to a window yet.
    waiting: VecDeque<Trigger>,
    /// End of the last window. No new window may start before this time.
    not_before: Nanos,
    next_sums: Nanos,
    /// When the kernel switched to the other table of sums. `None` once the sums in the previous
    /// table have been emitted.
    switched: Option<Nanos>,
    windows: u64,
    /// When [`Recorder::stop`] was called, or `None` if it was not.
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

    /// Same as [`Recorder::start`], for a thread that has already taken a head start. The head
    /// start ends when this function returns.
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
        let (watched, online) = (&settings.watched, &settings.online);
        let mut rules = Rules::from_triggers(&plan.triggers, watched, online, &proc)?;
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

    /// Returns the facts that are known before the first event.
    pub fn started(&self) -> &RecorderStarted {
        &self.started
    }

    /// Returns a handle that ends the wait in [`Recorder::next_event`].
    pub fn waker(&self) -> Waker {
        self.wake.clone()
    }

    /// Returns the current status, or the final status if the recorder has ended.
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
            // The rings and tables are mapped into this process, so they are included.
            memory_bytes: own_peak_memory(),
        }
    }

    /// Returns the tracer's counters so far, or its final counters if the recorder has ended.
    pub fn counted(&self) -> Counted {
        let tracer = self.tracer.as_ref();
        tracer.map_or_else(
            || self.last_counted.clone(),
            |tracer| self.past.plus(tracer.counted()),
        )
    }

    /// Returns the intervals that each CPU's sums cover. The list is empty until the recorder has
    /// ended.
    pub fn books(&self) -> &[CpuInterval] {
        &self.books
    }

    /// Makes the recorder keep the events around the current time, as if a trigger had fired.
    /// `kind` is [`TriggerKind::Signal`] or [`TriggerKind::Mark`], and `words` is a comment that is
    /// stored with the trigger.
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
            place: None,
        });
    }

    /// Replaces the triggers.
    ///
    /// # Errors
    /// Returns an error if a trigger names something that does not exist, or if there are too many
    /// triggers. The previous triggers then stay in effect.
    pub fn set_triggers(&mut self, triggers: &[TriggerSpec]) -> Result<(), ObserveError> {
        let online = &self.started.cpus;
        let mut rules = Rules::from_triggers(triggers, &self.watched, online, &self.proc)?;
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

    /// Returns the status of the triggers whose thresholds are percentiles.
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

    /// Stops the recorder. It then emits the state of the open window, if there is one, and the
    /// last sums.
    pub fn stop(&mut self) {
        self.stopped.get_or_insert_with(now);
    }

    /// Returns the next event, or [`RecorderEvent::Idle`] after `timeout`.
    pub fn next_event(&mut self, timeout: Duration) -> RecorderEvent<'_> {
        if !self.start_reported {
            self.start_reported = true;
            // The probes start only now because some callers change their user first, which affects
            // all threads.
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

    /// Raises this thread's priority if it acted much later than `due` while a window was open. The
    /// ring must not wrap around merely because this thread is waiting for a CPU.
    fn was_due(&mut self, due: Nanos) {
        if let (Some(_), Some(tracer), Some(collector)) =
            (&self.open, &self.tracer, &mut self.collector)
        {
            collector.was_due(due, reading_interval(tracer));
        }
    }

    /// Returns whether [`Waker::wake`] has been called since the last check.
    fn was_woken(&self) -> bool {
        self.wake.0.read().is_ok()
    }

    /// Returns when the recorder must act next if no trigger fires before then.
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

    /// Adds new triggers to the open window. Triggers that don't fit into it are queued for the
    /// next one.
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
                    place: None,
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
                    place: None,
                });
            }
        }
        if let Some((window, _)) = &mut self.open {
            self.waiting.retain(|trigger| !window.add(trigger));
        }
        if let Some(stopped) = self.stopped {
            // Don't accept later triggers: on a busy machine, new ones could keep coming forever.
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
            // If the rules in the kernel cannot be updated, the previous thresholds apply for
            // another minute.
            let _ = self.rules.turn(tracer, self.gaps.as_ref());
        }
    }

    /// Opens a window after a trigger, and reads the rings when a read is due. Returns the window
    /// when it is complete. Further triggers extend the window. If waiting for the complete window
    /// would report earlier triggers too late, returns the window's current state.
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
            // Handling a window takes CPU time. Don't take it from the CPU on which the delay
            // occurred.
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

    /// Switches between the two tables of sums when a switch is due. Somewhat later, returns the
    /// sums in the table that is now inactive.
    fn turn_sums(&mut self, time: Nanos) -> Option<SumsWindow> {
        self.tracer.as_ref()?;
        match self.switched {
            _ if self.stopped.is_some() => self.close_sums(),
            None if time >= self.next_sums => {
                // Windows that were missed during a suspend or an overload become one long window.
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
        let window = tracer.take_sums(&mut sources, &mut |_, row| rows.push(row))?;
        self.windows += 1;
        if self.windows.is_multiple_of(FORGET) {
            tracer.forget_programs();
        }
        self.switched = None;
        Some(SumsWindow {
            begin: window.start,
            end: window.end,
            sources,
            rows,
        })
    }

    /// Returns the last sums, including each CPU's intervals that are still open.
    fn close_sums(&mut self) -> Option<SumsWindow> {
        let sums = self.close_tracer()?;
        self.books = std::mem::take(&mut self.past.books);
        self.end();
        Some(sums)
    }

    /// Closes the current tracer and returns its last sums.
    fn close_tracer(&mut self) -> Option<SumsWindow> {
        let tracer = self.tracer.as_mut()?;
        // The accounts of a CPU that has gone offline end at its last event.
        let online = self.proc.online();
        let online = online.as_ref().unwrap_or(&self.started.cpus);
        let (mut sources, mut rows) = (SourceTable::default(), Vec::new());
        let (window, closing) = tracer.close_flight(online, &mut sources, &mut |_, row| {
            rows.push(row.clone());
        });
        self.past.books.extend(closing.books);
        self.switched = None;
        Some(SumsWindow {
            begin: window.start,
            end: window.end,
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

/// Returns a function that a probe's thread can call to wake the recorder.
fn wake_up_call(wake: &Waker) -> impl Fn() + Clone + Send + 'static {
    let wake = wake.clone();
    move || wake.wake()
}

/// Returns the interval between two reads of the rings.
fn reading_interval(tracer: &Tracer) -> Nanos {
    let reach = tracer.ring_reach().unwrap_or(Nanos::from_secs(READINGS));
    Nanos(reach.0 / READINGS).max(SHORTEST)
}
