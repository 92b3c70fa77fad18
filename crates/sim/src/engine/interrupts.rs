//! Ticks, interrupts and softirqs, and how they preempt and delay one another.

use ticktax_model::Nanos;

use super::wakers::Waker;
use super::{Engine, Event, Frame, Work};
use crate::hash::TraceEvent;
use crate::report::Mode;
use crate::setup::Then;
use crate::task::TaskId;
use crate::timer::TimerRule;

impl Engine<'_> {
    /// Processes the tick that is due now on `cpu`.
    pub(super) fn tick(&mut self, cpu: usize) {
        let tick_level = self.setup.machine.tick_level;
        let level = self.level(cpu);
        let one_shot = self.is_one_shot();
        let state = &mut self.cpus[cpu];
        if state.off {
            state.skip_ticks(state.decisive);
        }
        state.next_tick += 1;
        state.report.programs += u64::from(one_shot);
        if level < tick_level {
            self.deliver_tick(cpu);
        } else if state.tick_pending {
            state.report.lost += 1;
        } else {
            state.tick_pending = true;
        }
    }

    /// Starts the tick handler. As in the kernel, the tick is charged as a sample to the work it
    /// interrupts.
    fn deliver_tick(&mut self, cpu: usize) {
        let state = &mut self.cpus[cpu];
        let mode = state.frames.last().map_or(state.mode, Frame::mode);
        state.report.samples[mode as usize] += 1;
        if let Some(task) = state.current.filter(|_| state.frames.is_empty()) {
            self.tasks[task.index()].report.sampled += 1;
        }
        self.push(
            cpu,
            Work::Tick,
            self.setup.machine.tick_level,
            self.tick_cost,
        );
    }

    /// Returns the mask level of the work running on `cpu`. Only an interrupt with a higher level
    /// may interrupt that work.
    fn level(&self, cpu: usize) -> u8 {
        let state = &self.cpus[cpu];
        match state.frames.last() {
            Some(frame) => frame.level,
            None if state.masked => u8::MAX,
            None => 0,
        }
    }

    fn push(&mut self, cpu: usize, work: Work, level: u8, cost: Nanos) {
        self.cpus[cpu].frames.push(Frame {
            work,
            level,
            began: self.now,
            left: cost,
            nested: Nanos::ZERO,
        });
    }

    /// Raises the interrupt of `source` on `cpu`, and schedules that source's next one.
    pub(super) fn arrive(&mut self, cpu: usize, source: usize) {
        let spec = &self.setup.sources[source];
        let interval = self.chances[source].draw(&spec.interval).max(Nanos(1));
        let state = &mut self.cpus[cpu];
        state
            .agenda
            .push((self.now + interval).0, Event::Arrival(source));
        state.report.merged += (state.pending >> source) & 1;
        state.pending |= 1 << source;
        if let Then::Packets(link) = spec.then {
            self.packet_arrives(link);
        }
    }

    /// Processes everything that is due on `cpu` now: ends and starts handlers, and switches tasks.
    pub(super) fn settle(&mut self, cpu: usize) {
        loop {
            let state = &mut self.cpus[cpu];
            if let Some(frame) = state.frames.pop_if(|frame| frame.left <= Nanos::ZERO) {
                self.emit_frame(cpu, &frame);
                self.complete(cpu, frame.work);
                continue;
            }
            if self.interrupt(cpu) {
                continue;
            }
            let state = &mut self.cpus[cpu];
            if !state.frames.is_empty() {
                return;
            }
            if state.softirqs != 0 && !state.masked {
                let source = state.softirqs.trailing_zeros() as usize;
                state.softirqs &= state.softirqs - 1;
                let cost = self.softirq_cost(source);
                self.push(cpu, Work::Softirq(source), 0, cost);
                continue;
            }
            let Some(task) = state.current else {
                if state.resched || self.scheduler.queued(cpu) > 0 {
                    self.schedule(cpu, None);
                    if self.cpus[cpu].current.is_some() {
                        continue;
                    }
                }
                return;
            };
            let state = &self.cpus[cpu];
            if self.is_done(task) {
                // Process a tick at exactly this time first, because it still samples the task as
                // running.
                if state.decisive_at == self.now && state.decisive >= state.next_tick {
                    return;
                }
                self.go_on(cpu, task);
                continue;
            }
            if state.resched && state.mode == Mode::User {
                self.schedule(cpu, Some(crate::scheduler::Arrival::Preempted));
                continue;
            }
            return;
        }
    }

    /// Starts the handler of the pending interrupt with the highest level if that level may
    /// interrupt the running work. Returns whether a handler was started.
    fn interrupt(&mut self, cpu: usize) -> bool {
        let level = self.level(cpu);
        let tick_level = self.setup.machine.tick_level;
        let state = &self.cpus[cpu];
        let mut best: Option<(u8, usize)> = None;
        let mut pending = state.pending;
        while pending != 0 {
            let source = pending.trailing_zeros() as usize;
            pending &= pending - 1;
            let wanted = self.setup.sources[source].level;
            if wanted > level && best.is_none_or(|(level, _)| wanted > level) {
                best = Some((wanted, source));
            }
        }
        // At equal levels, the timer comes before a device, because the local timer's vector has a
        // higher priority than device vectors.
        let timer_first = tick_level > level && best.is_none_or(|(level, _)| tick_level >= level);
        if timer_first && state.tick_pending {
            let state = &mut self.cpus[cpu];
            state.tick_pending = false;
            state.report.late += 1;
            self.deliver_tick(cpu);
            return true;
        }
        if timer_first && !state.expired.is_empty() {
            self.cpus[cpu].report.programs += 1;
            self.push(
                cpu,
                Work::Timers,
                tick_level,
                self.setup.machine.costs.timer,
            );
            return true;
        }
        let Some((level, source)) = best else {
            return false;
        };
        self.cpus[cpu].pending &= !(1 << source);
        let cost = self.chances[source].draw(&self.setup.sources[source].cost);
        let what = u32::try_from(source).unwrap_or(u32::MAX);
        self.hash.note(self.now, TraceEvent::Interrupt, cpu, what);
        self.push(cpu, Work::Irq(source), level, cost);
        true
    }

    fn softirq_cost(&mut self, source: usize) -> Nanos {
        match self.setup.sources[source].then {
            Then::Softirq(law) => self.chances[source].draw(&law),
            Then::Packets(link) => self.packets_cost(link),
            Then::Nothing | Then::Signal(_) => Nanos::ZERO,
        }
    }

    fn complete(&mut self, cpu: usize, work: Work) {
        match work {
            Work::Tick => self.complete_tick(cpu),
            Work::Timers => {
                for task in std::mem::take(&mut self.cpus[cpu].expired) {
                    self.timer_ended(cpu, task, work);
                }
            }
            Work::Irq(source) => match self.setup.sources[source].then {
                Then::Nothing => {}
                Then::Softirq(_) => self.raise(cpu, source),
                Then::Signal(task) => self.signal(task, Waker::Handler(cpu, work)),
                Then::Packets(link) => {
                    self.packets_go_up(link);
                    self.raise(cpu, source);
                }
            },
            Work::Softirq(source) => {
                if let Then::Packets(link) = self.setup.sources[source].then {
                    self.packets_reach_the_socket(link, Waker::Handler(cpu, work));
                }
            }
        }
    }

    /// Raises the softirq of `source` when its interrupt handler ends.
    fn raise(&mut self, cpu: usize, source: usize) {
        self.emit_raising(cpu, source);
        self.cpus[cpu].softirqs |= 1 << source;
    }

    /// Returns the handler in which sleep timers expire: the timer interrupt if timers are
    /// high-resolution, or else the tick.
    pub(super) fn timer_work(&self) -> Work {
        match self.setup.machine.timers {
            TimerRule::HighResolution => Work::Timers,
            _ => Work::Tick,
        }
    }

    /// Completes a tick. The scheduler accounts for the tick before due timers expire, because
    /// `update_process_times` runs before the softirq that `run_local_timers` raises.
    fn complete_tick(&mut self, cpu: usize) {
        if let Some(task) = self.cpus[cpu].current
            && (self.scheduler.tick(cpu, task) | self.is_out_of_quota(task))
        {
            self.cpus[cpu].resched = true;
        }
        let state = &self.cpus[cpu];
        let last = state.next_tick - 1;
        let began = state.grid.at(last);
        while let Some(task) = self.cpus[cpu].wheel.pop(last) {
            let timer = &mut self.tasks[task.index()].timer;
            if timer.take_if(|(_, latest)| *latest <= began).is_some() {
                self.timer_ended(cpu, task, Work::Tick);
            }
        }
        while let Some(task) = self.next_in_slack(cpu, began) {
            self.timer_ended(cpu, task, Work::Tick);
        }
    }

    /// Handles the expiry of the high-resolution timer of `task`, unless the timer has already been
    /// cleared. Other timers whose slack has begun expire along with it.
    pub(super) fn timer_expires(&mut self, cpu: usize, task: TaskId) {
        let now = self.now;
        let timer = &mut self.tasks[task.index()].timer;
        if timer.take_if(|(_, latest)| *latest == now).is_none() {
            return;
        }
        self.cpus[cpu].expired.push(task);
        while let Some(other) = self.next_in_slack(cpu, now) {
            self.cpus[cpu].expired.push(other);
        }
    }

    /// Clears the timer of the next task whose timer slack has begun by `time`, and returns the
    /// task; `None` if no task's slack has begun.
    fn next_in_slack(&mut self, cpu: usize, time: Nanos) -> Option<TaskId> {
        loop {
            let task = self.cpus[cpu].slack.pop(time.0)?;
            let timer = &mut self.tasks[task.index()].timer;
            if timer.take_if(|(soonest, _)| *soonest <= time).is_some() {
                return Some(task);
            }
        }
    }

    /// Replenishes the quota of `group`, and unthrottles its tasks.
    pub(super) fn refill(&mut self, cpu: usize, group: usize) {
        let quota = &mut self.quotas[group];
        let at = self.now + quota.group.period;
        self.cpus[cpu].agenda.push(at.0, Event::Refill(group));
        quota.left = (quota.left + quota.group.quota).min(quota.group.quota);
        if quota.left > Nanos::ZERO {
            for task in std::mem::take(&mut quota.throttled) {
                self.end_throttling(task);
                self.wake(task, Waker::Unknown);
            }
        }
    }

    fn is_out_of_quota(&self, task: TaskId) -> bool {
        let group = self.setup.tasks[task.index()].group;
        group.is_some_and(|group| self.quotas[group].left <= Nanos::ZERO)
    }

    /// Throttles `task`, which was about to run, if its group has used up its quota. Returns
    /// whether it was throttled.
    pub(super) fn throttle(&mut self, cpu: usize, task: TaskId) -> bool {
        if !self.is_out_of_quota(task) {
            return false;
        }
        let notes = &mut self.tasks[task.index()];
        notes.state = crate::task::State::Throttled;
        notes.throttled_at = self.now;
        notes.last_cpu = cpu;
        if let Some(group) = self.setup.tasks[task.index()].group {
            self.quotas[group].throttled.push(task);
        }
        self.is_off(cpu, task, None);
        true
    }

    /// If `task` is throttled, records how long it has been throttled.
    pub(super) fn end_throttling(&mut self, task: TaskId) {
        let notes = &mut self.tasks[task.index()];
        if notes.state != crate::task::State::Throttled {
            return;
        }
        notes.report.throttled += self.now - notes.throttled_at;
        if let Some(recorder) = &mut self.recorder {
            let source = recorder.ids.throttled[task.index()];
            recorder.span(
                notes.last_cpu,
                source,
                notes.throttled_at,
                self.now,
                Nanos::ZERO,
            );
        }
    }
}
