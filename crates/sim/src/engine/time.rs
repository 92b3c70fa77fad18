//! Charges the elapsed time on a CPU, and computes when the CPU's next event is due.

use ticktax_model::machine::TickMode;
use ticktax_model::{Cpu, Nanos};

use super::{CpuState, Engine, Frame, Work};
use crate::report::Mode;
use crate::task::TaskId;
use crate::timer::TimerRule;

impl Engine<'_> {
    /// Charges the time that has passed on `cpu`, including ticks that are not processed
    /// individually.
    pub(super) fn advance(&mut self, cpu: usize) {
        let now = self.now;
        let state = &mut self.cpus[cpu];
        let passed = now - state.stamp;
        if let Some(frame) = state.frames.last_mut() {
            frame.left -= passed;
            state.report.times[frame.mode() as usize] += passed;
            state.stamp = now;
            return;
        }
        let last = state.next_decisive_or_last(now);
        let ticks = last - state.next_tick + 1;
        if ticks <= 0 || state.masked {
            self.charge(cpu, passed);
            self.cpus[cpu].stamp = now;
            return;
        }
        let count = ticks.unsigned_abs();
        if state.off {
            state.next_tick += ticks;
            state.report.stopped += count;
            self.charge(cpu, passed);
            self.cpus[cpu].stamp = now;
            return;
        }
        // The handler of the last tick may still be running at `now`.
        let cost = self.tick_cost;
        let over = (state.grid.at(last) + cost - now).max(Nanos::ZERO);
        let in_ticks = Nanos(cost.0 * ticks) - over;
        let mode = state.mode;
        let first = state.next_tick;
        state.report.samples[mode as usize] += count;
        state.report.times[Mode::Irq as usize] += in_ticks;
        state.next_tick += ticks;
        let complete_ticks = if over > Nanos::ZERO { ticks - 1 } else { ticks };
        state.base_nested += Nanos(cost.0 * complete_ticks);
        if self.recorder.is_some() {
            self.emit_ticks(cpu, first, complete_ticks);
        }
        if let Some(task) = self.cpus[cpu].current {
            self.tasks[task.index()].report.sampled += count;
        }
        self.charge(cpu, passed - in_ticks);
        if let Some(task) = self.cpus[cpu].current {
            // The scheduler processes a tick only when the tick handler ends.
            self.scheduler.pass(cpu, task, complete_ticks);
        }
        let state = &mut self.cpus[cpu];
        state.stamp = now;
        if over > Nanos::ZERO {
            state.frames.push(Frame {
                work: Work::Tick,
                level: self.setup.machine.tick_level,
                began: state.grid.at(last),
                left: over,
                nested: Nanos::ZERO,
            });
        }
    }

    fn emit_ticks(&mut self, cpu: usize, first: i64, count: i64) {
        let grid = self.cpus[cpu].grid;
        if let Some(recorder) = &mut self.recorder {
            for tick in first..first + count {
                let at = grid.at(tick);
                recorder.span(cpu, recorder.ids.tick, at, at + self.tick_cost, Nanos::ZERO);
            }
        }
    }

    /// Charges `time` to the current task of `cpu`, or to idle time.
    fn charge(&mut self, cpu: usize, time: Nanos) {
        let state = &mut self.cpus[cpu];
        state.report.times[state.mode as usize] += time;
        let Some(task) = state.current.filter(|_| time > Nanos::ZERO) else {
            return;
        };
        let notes = &mut self.tasks[task.index()];
        notes.left -= time;
        if notes.until.is_some() {
            notes.left = notes.left.max(Nanos::ZERO);
        }
        notes.report.ran += time;
        self.scheduler.charge(cpu, task, time);
        if let Some(group) = self.setup.tasks[task.index()].group {
            self.quotas[group].left -= time;
        }
    }

    /// Computes when the next event on `cpu` is due.
    pub(super) fn plan(&mut self, cpu: usize) {
        let off = self.ticks_stand_still(cpu);
        if self.cpus[cpu].off != off {
            self.start_or_stop_ticks(cpu, off);
        }
        let state = &self.cpus[cpu];
        let wheel = state.wheel.first();
        let mut decisive = if wheel == i64::MAX {
            wheel
        } else {
            wheel.max(state.next_tick)
        };
        let slack = state.slack.first();
        if slack != i64::MAX && !off {
            let tick = state.grid.first_from(Nanos(slack));
            decisive = decisive.min(tick.max(state.next_tick));
        }
        let mut next = Nanos(state.agenda.first());
        let mut alarm = Nanos::MAX;
        if let Some(frame) = state.frames.last() {
            next = next.min(state.stamp + frame.left);
            if !off {
                decisive = state.next_tick;
            }
        } else if let Some(task) = state.current {
            if !off {
                let quiet = self.quiet_ticks(cpu, task);
                decisive = decisive.min(state.next_tick.saturating_add(quiet));
            }
            if let Some(left) = self.scheduler.alarm(cpu, task) {
                alarm = state.stamp + left;
                decisive = if off { decisive } else { state.next_tick };
            }
            next = next.min(self.burst_end(state, task)).min(alarm);
        }
        let at = if decisive == i64::MAX {
            Nanos::MAX
        } else {
            state.grid.at(decisive)
        };
        let state = &mut self.cpus[cpu];
        state.alarm = alarm;
        state.decisive = decisive;
        state.decisive_at = at;
        self.order.set(cpu, next.min(at));
    }

    /// Returns how many of the next ticks will change nothing but counters if `task` keeps running.
    fn quiet_ticks(&self, cpu: usize, task: TaskId) -> i64 {
        let state = &self.cpus[cpu];
        if state.masked {
            return 0;
        }
        let quiet = self.scheduler.quiet_ticks(cpu, task);
        match self.setup.tasks[task.index()].group {
            Some(group) => {
                let ticks = self.quotas[group].left.0 / (state.grid.step().0 + 1);
                // With several CPUs, a task on another CPU may use up the quota at any time, so no
                // tick can be skipped.
                let alone = self.cpus.len() == 1;
                quiet.min(if alone { (ticks - 1).max(0) } else { 0 })
            }
            None => quiet,
        }
    }

    /// Returns when the current work of `task` will end if only ticks interrupt it. Ticks delay
    /// ordinary work, but not work that spins until a fixed time. If that time falls within a tick
    /// handler, the end of the handler is a separate event.
    fn burst_end(&self, state: &CpuState, task: TaskId) -> Nanos {
        let until = self.tasks[task.index()].until.unwrap_or(Nanos::ZERO);
        self.work_end(state, task).max(until)
    }

    /// Returns when `task` will have used up its remaining CPU time if only ticks interrupt it.
    fn work_end(&self, state: &CpuState, task: TaskId) -> Nanos {
        let mut end = state.stamp + self.tasks[task.index()].left;
        if state.off || state.masked || self.tick_cost == Nanos::ZERO {
            return end;
        }
        let first = state.next_tick;
        // Add the time that ticks take before the end. Repeat until the end no longer changes,
        // because each addition may bring further ticks before the end.
        loop {
            let ticks = (state.grid.last_at(end) - first + 1).max(0);
            let later =
                state.stamp + self.tasks[task.index()].left + Nanos(self.tick_cost.0 * ticks);
            if later == end {
                return end;
            }
            end = later;
        }
    }

    /// Returns whether the current work of `task` is finished. For work that spins until a fixed
    /// time, that time must also have passed.
    pub(super) fn is_done(&self, task: TaskId) -> bool {
        let notes = &self.tasks[task.index()];
        notes.left <= Nanos::ZERO && notes.until.is_none_or(|until| until <= self.now)
    }

    fn ticks_stand_still(&self, cpu: usize) -> bool {
        let state = &self.cpus[cpu];
        match &self.setup.machine.tick {
            TickMode::Periodic => false,
            TickMode::NohzIdle => state.current.is_none(),
            TickMode::NohzFull { cpus } => {
                let may_stop_busy = || u32::try_from(cpu).is_ok_and(|cpu| cpus.contains(Cpu(cpu)));
                state.current.is_none() || (self.scheduler.queued(cpu) == 0 && may_stop_busy())
            }
        }
    }

    fn start_or_stop_ticks(&mut self, cpu: usize, off: bool) {
        let state = &mut self.cpus[cpu];
        state.off = off;
        state.report.programs += 1;
        if !off {
            state.skip_ticks(state.grid.last_at(self.now) + 1);
        }
    }

    /// Returns whether the timer hardware is programmed anew for each event rather than ticking
    /// periodically.
    pub(super) fn is_one_shot(&self) -> bool {
        self.setup.machine.tick != TickMode::Periodic
            || self.setup.machine.timers == TimerRule::HighResolution
    }
}

impl CpuState {
    /// Returns the number of the last tick at or before `now` that does not need to be processed
    /// individually.
    fn next_decisive_or_last(&self, now: Nanos) -> i64 {
        // Fast path without a division: the next tick is usually in the future.
        if self.grid.at(self.next_tick) > now {
            return self.next_tick - 1;
        }
        self.grid.last_at(now).min(self.decisive - 1)
    }

    /// Counts all ticks before number `next` as skipped while the tick was stopped.
    pub(super) fn skip_ticks(&mut self, next: i64) {
        let skipped = (next - self.next_tick).max(0);
        self.report.stopped += skipped.unsigned_abs();
        self.next_tick += skipped;
    }
}
