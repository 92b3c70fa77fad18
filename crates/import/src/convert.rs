//! Turns a trace's events into the rows of a recording.
//!
//! # Accounts
//! For each CPU, a stack holds what the CPU is executing. The bottom entry is a thread or idle
//! time, and interrupts, softirqs and timer functions lie above it, as in the tracer's BPF
//! programs. An entry becomes a row when it ends. Its self time is its length without the entries
//! above it, so a CPU's self times add up to the elapsed time.
//!
//! # Gaps
//! A trace can lack events. Almost every event names the thread that was running. If that is not
//! the thread of the latest switch, then a switch is missing, and the time since the CPU's previous
//! event is charged to an unknown thread. The same happens to the time before events that the trace
//! reports as lost.

mod cpu;
mod header;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ticktax_model::hook::Hook;
use ticktax_model::kernel_words::{LOCAL_TIMER, UNREPORTED, UNTRACED_TIMER};
use ticktax_model::recording::{Edge, Effect, Row, RowSink};
use ticktax_model::{Cpu, CpuList, Kind, Nanos, Source, SourceId, SourceTable, Span};
use ticktax_store::recording::{RecordingBuffer, RecordingReader};

use self::cpu::{CpuState, Frame, Pending};
use crate::error::ImportError;
use crate::event::{Action, Event, Facts, Task};
use crate::kind::TraceKind;
use crate::names::{NameId, Names};
use crate::threads::Threads;

/// Largest step back in time that is accepted as disorder within a trace. A larger one means that
/// the file contains several traces.
const MAX_STEP_BACK: i64 = 1_000_000_000;

/// Latest time that a recording can have, in nanoseconds (73 years).
const MAX_TIME: i64 = 1 << 61;

/// A recording under construction.
pub(crate) struct Converter {
    pub(crate) names: Names,
    pub(crate) threads: Threads,
    sources: SourceTable,
    rows: RecordingBuffer,
    cpus: Vec<Option<CpuState>>,
    counts: Counts,
    unreported: SourceId,
    local_timer: NameId,
    untraced_timer: NameId,
}

/// Counts of events, from which the limitations follow.
#[derive(Debug, Default)]
struct Counts {
    events: u64,
    hooks: BTreeSet<Hook>,
    wakings: u64,
    wakeups: u64,
    wakeups_missed: u64,
    switches_missed: u64,
    switches_inferred: u64,
    entries_missed: u64,
    switched_out: u64,
    unordered: u64,
    max_step: i64,
    /// Events lost before the first event of a CPU, by CPU.
    lost_early: BTreeMap<u32, u64>,
}

impl Converter {
    /// Starts a recording. `path` is the file being converted.
    pub(crate) fn new(path: &Path) -> Result<Self, ImportError> {
        let mut sources = SourceTable::default();
        let unreported = sources.intern(Source::kernel(Kind::Task, UNREPORTED, ""));
        let mut names = Names::default();
        Ok(Self {
            local_timer: names.intern(LOCAL_TIMER),
            untraced_timer: names.intern(UNTRACED_TIMER),
            names,
            threads: Threads::default(),
            sources,
            rows: RecordingBuffer::new(path)?,
            cpus: Vec::new(),
            counts: Counts::default(),
            unreported,
        })
    }

    /// Number of events so far.
    pub(crate) fn events(&self) -> u64 {
        self.counts.events
    }

    /// Returns the time of the latest event on a CPU, or 0 if it has none.
    pub(crate) fn seen(&self, cpu: u32) -> i64 {
        let state = self.cpus.get(cpu as usize).and_then(Option::as_ref);
        state.map_or(0, |state| state.seen)
    }

    /// Adds an event. The events of one CPU must arrive in order.
    ///
    /// # Errors
    /// Returns why the event cannot belong to the trace: an impossible CPU number or time, or a
    /// large step back in time.
    pub(crate) fn event(&mut self, event: Event) -> Result<(), Misfit> {
        let Event { at, cpu, .. } = event;
        if cpu > CpuList::MAX_CPU {
            return Err(Misfit::Cpu(cpu));
        }
        if !(0..MAX_TIME).contains(&at) {
            return Err(Misfit::Time(at));
        }
        self.counts.events += 1;
        let slot = cpu as usize;
        if slot >= self.cpus.len() {
            self.cpus.resize_with(slot + 1, || None);
        }
        let known = self.cpus[slot].take();
        let Some(mut state) = known.or_else(|| self.begin(&event)) else {
            self.without_context(&event);
            return Ok(());
        };
        let result = self.on_cpu(&mut state, event);
        self.cpus[slot] = Some(state);
        result
    }

    /// Starts the accounts of a CPU with its first event. Returns `None` if the event does not show
    /// which thread is running.
    fn begin(&mut self, event: &Event) -> Option<CpuState> {
        let running = match event.action {
            Action::Switch { prev, .. } => {
                self.note(prev);
                prev.tid
            }
            _ => event.context?,
        };
        let source = self.source(running, None);
        Some(CpuState::new(Cpu(event.cpu), event.at, running, source))
    }

    fn on_cpu(&mut self, state: &mut CpuState, event: Event) -> Result<(), Misfit> {
        let back = state.seen - event.at;
        if back > MAX_STEP_BACK {
            return Err(Misfit::StepBack(back));
        }
        if back > 0 {
            self.counts.unordered += 1;
            self.counts.max_step = self.counts.max_step.max(back);
        }
        let at = event.at.max(state.seen);
        if let Action::Lost(events) = event.action {
            state.lost = state.lost.saturating_add(events);
            state.lost_since_seen = true;
            return Ok(());
        }
        let running = match event.action {
            Action::Switch { prev, .. } => Some(prev.tid),
            _ => event.context,
        };
        if state.lost_since_seen || running.is_some_and(|tid| tid != state.running) {
            match running {
                Some(tid) if state.running == 0 && !state.lost_since_seen => {
                    self.leave_idle(state, at, tid);
                }
                _ => self.lose_sight(state, at, running),
            }
        }
        if let Action::Ran(time) = event.action {
            self.settle(state, Some(at - time));
        }
        self.act(state, at, event.action);
        state.seen = at;
        Ok(())
    }

    /// Charges the time since the CPU's previous event to an unknown thread, because events are
    /// missing. `running` is the thread that is known to run now.
    fn lose_sight(&mut self, state: &mut CpuState, at: i64, running: Option<i32>) {
        self.counts.switches_missed += u64::from(!state.lost_since_seen);
        state.lost_since_seen = false;
        self.settle(state, None);
        let seen = state.seen;
        while let Some(row) = state.leave(seen) {
            self.emit(state, row);
        }
        let row = state.replace(seen, state.running, self.unreported);
        self.emit(state, row);
        let running = running.unwrap_or(state.running);
        // The event in which the thread started to run, and perhaps its wake-up, are missing. A
        // thread without a wake-up would count as preempted since its last run.
        if running != 0 && self.threads.ran(running) {
            self.counts.wakeups_missed += 1;
            self.edge(state.cpu, at, self.unreported, Effect::Woke(running));
        }
        let source = self.source(running, None);
        let row = state.replace(at, running, source);
        self.emit(state, row);
    }

    /// Switches from idle time to a thread although the trace lacks the switch. perf does not
    /// report some of these switches. The thread's next `sched_stat_runtime` event reveals when it
    /// started.
    fn leave_idle(&mut self, state: &mut CpuState, at: i64, running: i32) {
        self.settle(state, None);
        let seen = state.seen;
        while let Some(row) = state.leave(seen) {
            self.emit(state, row);
        }
        let source = self.source(running, None);
        let row = state.replace(seen, running, source);
        self.emit(state, row);
        state.restart(at);
        state.pending = Some(Pending {
            from: seen,
            until: at,
            tid: running,
            lacks_wakeup: self.threads.ran(running),
            held: Vec::new(),
        });
    }

    /// Writes the rows around a pending switch from idle time, and the rows that were held back.
    /// `start` is the time of the switch, if it is known.
    fn settle(&mut self, state: &mut CpuState, start: Option<i64>) {
        let Some(pending) = state.pending.take() else {
            return;
        };
        let Pending { from, until, .. } = pending;
        let start = start.map(|start| start.clamp(from, until));
        if let Some(start) = start {
            self.counts.switches_inferred += 1;
            let idle = self.source(0, None);
            self.emit(state, CpuState::part(from, start, idle));
            let source = self.source(pending.tid, None);
            self.emit(state, CpuState::part(start, until, source));
        } else {
            self.counts.switches_missed += 1;
            self.emit(state, CpuState::part(from, until, self.unreported));
        }
        if pending.lacks_wakeup {
            self.counts.wakeups_missed += 1;
            let effect = Effect::Woke(pending.tid);
            self.edge(state.cpu, start.unwrap_or(until), self.unreported, effect);
        }
        for row in pending.held {
            self.emit(state, row);
        }
    }

    fn act(&mut self, state: &mut CpuState, at: i64, action: Action) {
        match action {
            Action::Switch { prev, left, next } => {
                self.settle(state, None);
                self.counts.hooks.insert(Hook::SchedSwitch);
                while let Some(row) = state.leave(at) {
                    self.counts.switched_out += 1;
                    self.emit(state, row);
                }
                self.note(prev);
                self.note(next);
                self.threads.left(prev.tid, left);
                if next.tid != 0 && self.threads.ran(next.tid) {
                    self.counts.wakeups_missed += 1;
                    let effect = Effect::Woke(next.tid);
                    self.edge(state.cpu, at, self.unreported, effect);
                }
                let source = self.source(next.tid, None);
                let row = state.replace(at, next.tid, source);
                self.emit(state, row);
            }
            Action::Waking(task) | Action::Wakeup(task) => {
                self.note(task);
                if matches!(action, Action::Waking(_)) {
                    self.counts.hooks.insert(Hook::SchedWaking);
                    self.counts.wakings += 1;
                } else {
                    self.counts.hooks.insert(Hook::SchedWakeup);
                    self.counts.wakeups += 1;
                }
                // A wake-up with both events counts once.
                if self.threads.woken(task.tid) {
                    self.edge(state.cpu, at, state.top(), Effect::Woke(task.tid));
                }
            }
            Action::WakeupNew(task) => {
                self.note(task);
                self.threads.created(task.tid);
            }
            Action::Created(task) => {
                self.counts.hooks.insert(Hook::TaskNewtask);
                self.threads.created(task.tid);
                self.note(task);
                self.edge(state.cpu, at, state.top(), Effect::Started(task.tid));
            }
            Action::Enter(kind, name) => self.enter(state, at, kind, name),
            Action::Leave(kind) => self.leave(state, at, kind),
            Action::TimerStart(function) => self.timer(state, at, function),
            Action::TimerEnd => {
                if state.is_in_function() {
                    let row = state.leave(at);
                    self.emit_some(state, row);
                } else {
                    self.counts.entries_missed += 1;
                }
            }
            Action::Raised(name) => {
                self.counts.hooks.insert(Hook::SoftirqRaise);
                let effect = Effect::Raised(self.names.get(name).clone());
                self.edge(state.cpu, at, state.top(), effect);
            }
            Action::Queued(function) => {
                self.counts.hooks.insert(Hook::WorkqueueQueueWork);
                let effect = Effect::Queued(self.names.get(function).clone());
                self.edge(state.cpu, at, state.top(), effect);
            }
            Action::WorkStart(function) => {
                self.counts.hooks.insert(Hook::WorkqueueExecute);
                self.work(state, at, Some(function));
            }
            Action::WorkEnd => self.work(state, at, None),
            Action::Ran(_) | Action::Lost(_) | Action::Seen => {}
        }
    }

    fn enter(&mut self, state: &mut CpuState, at: i64, kind: Kind, name: NameId) {
        self.counts.hooks.insert(match kind {
            Kind::Softirq => Hook::Softirq,
            _ if name == self.local_timer => Hook::LocalTimer,
            _ => Hook::IrqHandler,
        });
        let source = Source::kernel(kind, self.names.get(name), "");
        let source = self.sources.intern(source);
        let is_function = false;
        let entered = state.enter(Frame::new(at, kind, name, source, is_function));
        self.counts.entries_missed += u64::from(!entered);
    }

    fn leave(&mut self, state: &mut CpuState, at: i64, kind: Kind) {
        if !state.is_in(kind) {
            self.counts.entries_missed += 1;
            return;
        }
        // Functions within the interrupt may lack their exit event.
        while let Some(top) = state.top_frame() {
            let is_done = top.is_interrupt(kind);
            let row = state.leave(at);
            self.emit_some(state, row);
            if is_done {
                return;
            }
            self.counts.entries_missed += 1;
        }
    }

    fn timer(&mut self, state: &mut CpuState, at: i64, function: NameId) {
        let (kind, name) = match state.top_frame() {
            Some(frame) => (frame.kind, frame.name),
            // The trace lacks the interrupt that ran the timer.
            None => (Kind::Irq, self.untraced_timer),
        };
        self.counts.hooks.insert(match kind {
            Kind::Softirq => Hook::TimerExpire,
            _ => Hook::HrtimerExpire,
        });
        let source = Source::kernel(kind, self.names.get(name), self.names.get(function));
        let source = self.sources.intern(source);
        let entered = state.enter(Frame::new(at, kind, name, source, true));
        self.counts.entries_missed += u64::from(!entered);
    }

    /// Splits the running thread's row at the start or end of a work item.
    fn work(&mut self, state: &mut CpuState, at: i64, function: Option<NameId>) {
        if state.running == 0 || state.top_frame().is_some() {
            self.counts.entries_missed += 1;
            return;
        }
        let source = self.source(state.running, function);
        let row = state.replace(at, state.running, source);
        self.emit(state, row);
    }

    /// Adds an event of a CPU on which no thread has been seen yet.
    fn without_context(&mut self, event: &Event) {
        if let Action::Lost(events) = event.action {
            let lost = self.counts.lost_early.entry(event.cpu).or_default();
            *lost = lost.saturating_add(events);
        } else if let Action::Waking(task) | Action::Wakeup(task) = event.action {
            self.note(task);
            if self.threads.woken(task.tid) {
                let effect = Effect::Woke(task.tid);
                self.edge(Cpu(event.cpu), event.at, self.unreported, effect);
            }
        }
    }

    fn note(&mut self, task: Task) {
        if let Some(name) = task.name {
            self.threads.name(task.tid, name);
        }
    }

    fn source(&mut self, tid: i32, work: Option<NameId>) -> SourceId {
        self.threads
            .source(tid, work, &self.names, &mut self.sources)
    }

    fn edge(&mut self, cpu: Cpu, at: i64, source: SourceId, effect: Effect) {
        let edge = Edge::new(cpu, Nanos(at), source, effect);
        self.rows.row(&self.sources, &Row::Edge(edge));
    }

    fn emit_some(&mut self, state: &mut CpuState, row: Option<Frame>) {
        if let Some(row) = row {
            self.emit(state, row);
        }
    }

    /// Writes the row of an entry that ended. Its end is in `frame.end`.
    fn emit(&mut self, state: &mut CpuState, frame: Frame) {
        if let Some(pending) = &mut state.pending {
            pending.held.push(frame);
            if pending.held.len() > Pending::MAX_HELD {
                self.settle(state, None);
            }
            return;
        }
        let dur = frame.end - frame.start;
        if dur == 0 && frame.nested == 0 && !frame.is_nested {
            return;
        }
        let span = Span {
            cpu: state.cpu,
            start: Nanos(frame.start),
            dur: Nanos(dur),
            self_time: Nanos(dur - frame.nested),
            source: frame.source,
        };
        self.rows.row(&self.sources, &Row::Span(span));
    }

    /// Closes the accounts of all CPUs at the time of the last event, and returns the recording.
    ///
    /// # Errors
    /// Returns an error if the trace contains no context switches or no time.
    pub(crate) fn finish(
        mut self,
        path: &Path,
        kind: TraceKind,
        facts: &Facts,
    ) -> Result<RecordingReader, ImportError> {
        if !self.counts.hooks.contains(&Hook::SchedSwitch) {
            return Err(ImportError::NoSwitches {
                path: path.to_owned(),
                kind,
                events: self.counts.events,
            });
        }
        let cpus = self.cpus.iter().flatten();
        let end = cpus.map(|state| state.seen).max().unwrap_or_default();
        let mut states: Vec<CpuState> = std::mem::take(&mut self.cpus)
            .into_iter()
            .flatten()
            .collect();
        for state in &mut states {
            self.settle(state, None);
            if state.lost_since_seen {
                self.lose_sight(state, end, None);
            }
            while let Some(row) = state.leave(end) {
                self.emit(state, row);
            }
            let row = state.replace(end, state.running, self.unreported);
            self.emit(state, row);
        }
        let header = header::header(&states, end, &self.counts, &self.threads, kind, facts);
        Ok(self.rows.finish(&header)?)
    }
}

/// Why an event cannot belong to a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// No kernel has that many CPUs.
    #[error("an event is on CPU {0}, but CPU numbers end at {max}", max = CpuList::MAX_CPU)]
    Cpu(u32),
    /// The time is negative or too large.
    #[error("an event has the impossible time {0} ns")]
    Time(i64),
    /// The time jumps back.
    #[error(
        "the time on a CPU jumps back by {} ms, so the file contains several traces: split it",
        .0 / 1_000_000
    )]
    StepBack(i64),
}
