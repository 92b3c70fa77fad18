//! Executes each task's program step by step, and switches between tasks.

use ticktax_model::Nanos;
use ticktax_model::pace::{Frame, PaceRule, Schedule};
use ticktax_model::victim::OffCpuReason;

use super::wakers::Waker;
use super::{Engine, Event, Work};
use crate::fixed::{ONE, exp_neg, narrow};
use crate::hash::TraceEvent;
use crate::random::Law;
use crate::report::Mode;
use crate::scheduler::Arrival;
use crate::task::{State, Step, TaskId};
use crate::timer::{Call, Due, Grids};

/// How to continue after a step.
enum Next {
    /// Execute the next step immediately.
    Step,
    /// Let time pass: the step has added CPU work.
    Work,
    /// Switch tasks. The current task returns to the run queue for this reason or, if the value is
    /// `None`, blocks or exits.
    Switch(Option<Arrival>),
}

impl Engine<'_> {
    /// Switches to the task that the scheduler picks. `back` is the reason why the previous task
    /// returns to the run queue, or `None` if it blocked or exited.
    pub(super) fn schedule(&mut self, cpu: usize, back: Option<Arrival>) {
        let prev = self.cpus[cpu].current;
        self.cpus[cpu].resched = false;
        if let Some(prev) = prev {
            self.charge_refill(prev);
            self.tasks[prev.index()].last_cpu = cpu;
            if back.is_some() {
                self.tasks[prev.index()].state = State::Runnable;
            }
        }
        let mut next = self.scheduler.switch(cpu, prev, back);
        while let Some(task) = next {
            if !self.throttle(cpu, task) {
                break;
            }
            next = self.scheduler.switch(cpu, Some(task), None);
        }
        if next != prev {
            self.emit_base(cpu);
            if let Some(prev) = prev {
                self.leaves(cpu, prev, back.is_some());
            }
        }
        let state = &mut self.cpus[cpu];
        state.current = next;
        let Some(task) = next else {
            state.mode = Mode::Idle;
            state.masked = false;
            state.report.halts += u64::from(prev.is_some());
            if prev.is_some() {
                self.hash.note(self.now, TraceEvent::Switch, cpu, u32::MAX);
            }
            return;
        };
        self.come_on(cpu, task, next != prev);
    }

    /// Starts running `task` on the CPU. `is_new` is false if this task was also the last one to
    /// run there.
    fn come_on(&mut self, cpu: usize, task: TaskId, is_new: bool) {
        let notes = &mut self.tasks[task.index()];
        notes.state = State::Running(cpu);
        if let Some(woken) = notes.woken_at.take() {
            let latency = self.now - woken;
            notes.report.latency += latency;
            notes.report.worst_latency = notes.report.worst_latency.max(latency);
            let late = self.now - notes.due_at;
            notes.report.worst_lateness = notes.report.worst_lateness.max(late);
            notes.lateness.record(late);
        }
        if is_new {
            self.is_off(cpu, task, None);
            let notes = &mut self.tasks[task.index()];
            notes.report.switches += 1;
            // Add the cost of the switch to the task's remaining work, or to its next work if none
            // remains.
            notes.left += self.setup.machine.costs.switch;
            self.hash.note(self.now, TraceEvent::Switch, cpu, task.0);
        }
        if self.setup.tasks[task.index()].footprint.is_some() && self.cpus[cpu].warm != Some(task) {
            let notes = &mut self.tasks[task.index()];
            notes.cold_at = notes.report.ran;
            notes.refilled = Nanos::ZERO;
            notes.report.refills += 1;
            self.cpus[cpu].warm = Some(task);
        }
        self.set_mode(cpu, task);
    }

    fn set_mode(&mut self, cpu: usize, task: TaskId) {
        let spec = &self.setup.tasks[task.index()];
        let notes = &self.tasks[task.index()];
        let step = notes.asked.and_then(|_| {
            let last = notes
                .next_step
                .checked_sub(1)
                .unwrap_or(spec.program.len() - 1);
            spec.program.get(last)
        });
        let state = &mut self.cpus[cpu];
        state.masked = matches!(step, Some(Step::Masked(_)));
        state.mode = match step {
            Some(Step::Kernel(_) | Step::Masked(_)) => Mode::Kernel,
            _ => Mode::User,
        };
    }

    /// Executes steps of `task` on `cpu` until one takes time or blocks. Work in progress is
    /// completed first.
    pub(super) fn go_on(&mut self, cpu: usize, task: TaskId) {
        if let Some(asked) = self.tasks[task.index()].asked {
            if self.charge_refill(task) {
                return;
            }
            let notes = &mut self.tasks[task.index()];
            notes.asked = None;
            notes.until = None;
            notes.report.work += asked;
            notes.report.bursts += 1;
            self.hash.note(self.now, TraceEvent::Done, cpu, task.0);
            self.set_mode(cpu, task);
            if self.cpus[cpu].resched {
                // The task could not be preempted while it was working in the kernel. Preempt it
                // now.
                self.schedule(cpu, Some(Arrival::Preempted));
                return;
            }
        }
        loop {
            match self.take_step(cpu, task) {
                Next::Step => {}
                Next::Work => {
                    self.set_mode(cpu, task);
                    return;
                }
                Next::Switch(back) => {
                    self.schedule(cpu, back);
                    return;
                }
            }
        }
    }

    fn take_step(&mut self, cpu: usize, task: TaskId) -> Next {
        let program = &self.setup.tasks[task.index()].program;
        let place = self.tasks[task.index()].next_step;
        let notes = &mut self.tasks[task.index()];
        notes.next_step = if place + 1 == program.len() {
            0
        } else {
            place + 1
        };
        let step = program[place];
        match step {
            Step::Work(law) | Step::Kernel(law) | Step::Masked(law) => {
                let time = notes.chance.draw(&law);
                self.work(task, time)
            }
            Step::Sleep(..)
            | Step::SleepRest { .. }
            | Step::SleepUntil(..)
            | Step::SpinUntil(_)
            | Step::Pace { .. } => self.wait_for_time(cpu, task, step),
            Step::Late(law) => {
                notes.late = notes.chance.draw(&law);
                Next::Step
            }
            Step::Arrive(law) => {
                let time = notes.chance.draw(&law).max(Nanos(1));
                self.await_arrival(cpu, task, time)
            }
            Step::Every { period, work } => self.every(task, place, period, &work),
            Step::Frame => {
                self.begin_frame(task);
                Next::Step
            }
            Step::Yield => Next::Switch(Some(Arrival::Yielded)),
            Step::Lock(lock) => self.lock(task, lock),
            Step::Unlock(lock) => self.unlock(cpu, task, lock),
            Step::Signal(other) => {
                self.signal(other, Waker::Task(cpu, task));
                Next::Step
            }
            Step::Wait if notes.signals > 0 => {
                notes.signals -= 1;
                Next::Step
            }
            Step::Wait => self.block(task, State::Waiting),
            Step::Receive(link, law) => {
                if self.take_packet(link) {
                    let notes = &mut self.tasks[task.index()];
                    notes.report.packets += 1;
                    let time = notes.chance.draw(&law);
                    return self.work(task, time);
                }
                // There is nothing to receive, so block and retry this step after the wake-up.
                self.tasks[task.index()].next_step = place;
                self.links[link].waiting.push_back(task);
                self.block(task, State::Blocked)
            }
            Step::Exit => {
                notes.state = State::Ended;
                Next::Switch(None)
            }
        }
    }

    /// Executes a step that sleeps or spins until a certain time.
    fn wait_for_time(&mut self, cpu: usize, task: TaskId, step: Step) -> Next {
        let now = self.now;
        let notes = &mut self.tasks[task.index()];
        match step {
            Step::Sleep(call, law) => {
                let time = notes.chance.draw(&law);
                self.sleep(cpu, task, call, time)
            }
            Step::SleepRest { call, time, unit } => {
                let passed = now - notes.frame_at;
                let rest = time - Nanos(passed.0 / unit.0 * unit.0);
                notes.due = notes.frame_at + time;
                if rest > Nanos::ZERO {
                    self.sleep(cpu, task, call, rest)
                } else {
                    Next::Step
                }
            }
            Step::SleepUntil(call, period) => {
                let rest = Nanos(period.0 - now.0 % period.0);
                self.sleep(cpu, task, call, rest)
            }
            Step::SpinUntil(period) => {
                let rest = Nanos(period.0 - now.0 % period.0);
                self.spin(task, now + rest)
            }
            Step::Pace {
                rule,
                period,
                unit,
                spin,
            } => {
                let due = notes.paced.take();
                let due = due.unwrap_or_else(|| self.next_frame(task, rule, period));
                self.pace(cpu, task, due, unit, spin)
            }
            _ => Next::Step,
        }
    }

    fn work(&mut self, task: TaskId, time: Nanos) -> Next {
        let wall = self
            .setup
            .machine
            .speed
            .wall(time.max(Nanos(1)), Nanos::ZERO);
        let notes = &mut self.tasks[task.index()];
        notes.asked = Some(wall);
        notes.left += wall;
        Next::Work
    }

    /// Spins until `due`. The spinning does not count as requested work.
    fn spin(&mut self, task: TaskId, due: Nanos) -> Next {
        self.end_frame(task);
        let notes = &mut self.tasks[task.index()];
        notes.asked = Some(Nanos::ZERO);
        notes.until = Some(due);
        notes.due = due;
        Next::Work
    }

    fn block(&mut self, task: TaskId, state: State) -> Next {
        let notes = &mut self.tasks[task.index()];
        notes.state = state;
        notes.slept_at = self.now;
        Next::Switch(None)
    }

    /// Blocks until an external event, which occurs `time` from now.
    fn await_arrival(&mut self, cpu: usize, task: TaskId, time: Nanos) -> Next {
        self.end_frame(task);
        let next = self.block(task, State::Blocked);
        let at = self.now + time;
        self.tasks[task.index()].due = at;
        self.cpus[cpu].agenda.push(at.0, Event::Arrived(task));
        next
    }

    /// Executes the [`Step::Every`] at index `place`: works if a new period has started since this
    /// step last worked.
    fn every(&mut self, task: TaskId, place: usize, period: Nanos, work: &Law) -> Next {
        let now = self.now;
        let notes = &mut self.tasks[task.index()];
        let schedule = notes.every[place].get_or_insert(Schedule::new(period));
        let Some(missed) = schedule.take(now) else {
            return Next::Step;
        };
        notes.report.overshot += missed;
        let time = notes.chance.draw(work);
        self.work(task, time)
    }

    fn next_frame(&self, task: TaskId, rule: PaceRule, period: Nanos) -> Nanos {
        let notes = &self.tasks[task.index()];
        let frame = Frame {
            due: notes.due,
            began: notes.frame_at,
            ended: self.now,
            cpu: Nanos::ZERO,
        };
        rule.next_due(&frame, period)
    }

    /// Waits until `due`, and spins for the last `spin` of the wait. Returns immediately if `due`
    /// has passed.
    fn pace(&mut self, cpu: usize, task: TaskId, due: Nanos, unit: Nanos, spin: Nanos) -> Next {
        let rest = due - self.now;
        if rest <= Nanos::ZERO {
            self.end_frame(task);
            self.tasks[task.index()].due = due;
            return Next::Step;
        }
        if rest <= spin {
            return self.spin(task, due);
        }
        let units = ((rest - spin).0 + unit.0 - 1) / unit.0;
        let next = self.sleep(cpu, task, Call::Nanosleep, Nanos(units * unit.0));
        let steps = self.setup.tasks[task.index()].program.len();
        let notes = &mut self.tasks[task.index()];
        notes.due = due;
        if spin > Nanos::ZERO {
            // Execute this step again after the wake-up, in order to spin.
            notes.paced = Some(due);
            notes.next_step = notes.next_step.checked_sub(1).unwrap_or(steps - 1);
        }
        next
    }

    /// Wakes `task`, whose timer has expired in the handler `work`. If [`Step::Late`](crate::Step)
    /// set a delay, the wake-up comes after this delay.
    pub(super) fn timer_ended(&mut self, cpu: usize, task: TaskId, work: Work) {
        let late = std::mem::take(&mut self.tasks[task.index()].late);
        if late > Nanos::ZERO {
            let at = self.now + late;
            self.cpus[cpu].agenda.push(at.0, Event::Late(task));
        } else {
            self.wake(task, Waker::Handler(cpu, work));
        }
    }

    fn sleep(&mut self, cpu: usize, task: TaskId, call: Call, time: Nanos) -> Next {
        self.end_frame(task);
        let notes = &mut self.tasks[task.index()];
        notes.state = State::Sleeping;
        notes.slept_at = self.now;
        notes.asleep_until = Some(self.now + time);
        notes.due = self.now + time;
        let state = &mut self.cpus[cpu];
        let grids = Grids {
            jiffies: &self.jiffies,
            local: &state.grid,
            hz: self.hz,
            slack: self.setup.machine.slack,
        };
        let due = self.setup.machine.timers.due(call, self.now, time, &grids);
        // A timer that is already due expires at the next tick. If the tick is stopped, `next_tick`
        // may be far in the past.
        let next = state.grid.first_from(self.now).max(state.next_tick);
        let (soonest, latest) = match due {
            Due::Tick(tick) | Due::TickWithin { latest: tick, .. } => {
                let tick = tick.max(next);
                let at = state.grid.at(tick);
                state.wheel.push(tick, task);
                match due {
                    Due::TickWithin { soonest, .. } => (soonest.max(self.now), at),
                    _ => (at, at),
                }
            }
            Due::Within { soonest, latest } => {
                let latest = latest.max(self.now + Nanos(1));
                state.agenda.push(latest.0, Event::Timer(task));
                (soonest, latest)
            }
        };
        if self.setup.machine.slack > Nanos::ZERO && soonest < latest {
            state.slack.push(soonest.0, task);
        }
        self.tasks[task.index()].timer = Some((soonest, latest));
        Next::Switch(None)
    }

    fn lock(&mut self, task: TaskId, lock: usize) -> Next {
        let lock = &mut self.locks[lock];
        if lock.holder.is_none() {
            lock.holder = Some(task);
            return Next::Step;
        }
        lock.waiting.push_back(task);
        self.block(task, State::Blocked)
    }

    /// Releases a lock and passes it to the first waiter. Does nothing if `task` does not hold the
    /// lock.
    fn unlock(&mut self, cpu: usize, task: TaskId, lock: usize) -> Next {
        let lock = &mut self.locks[lock];
        if lock.holder == Some(task) {
            lock.holder = lock.waiting.pop_front();
            if let Some(next) = lock.holder {
                self.wake(next, Waker::Task(cpu, task));
            }
        }
        Next::Step
    }

    /// Wakes `task` if it is waiting for a signal. If not, stores the signal for its next wait.
    pub(super) fn signal(&mut self, task: TaskId, by: Waker) {
        let waits = self.tasks[task.index()].state == State::Waiting;
        if waits {
            self.wake(task, by);
        } else {
            self.tasks[task.index()].signals += 1;
        }
    }

    /// Makes `task` runnable, and preempts the task running on the chosen CPU if the scheduler
    /// requests it.
    pub(super) fn wake(&mut self, task: TaskId, by: Waker) {
        self.emit_waking(by, task);
        let now = self.now;
        let notes = &mut self.tasks[task.index()];
        notes.due_at = now;
        if let Some(until) = notes.asleep_until.take() {
            notes.due_at = until;
            let late = now - until;
            notes.report.sleeps += 1;
            notes.report.min_late = Some(notes.report.min_late.map_or(late, |min| min.min(late)));
        }
        notes.woken_at = Some(now);
        notes.state = State::Runnable;
        let (last, slept) = (notes.last_cpu, now - notes.slept_at);
        notes.slept_at = now;
        let cpus = &self.cpus;
        let cpu = self.scheduler.place(task, last, &|cpu| cpus[cpu].current);
        if self.cpus[cpu].stamp < now {
            self.advance(cpu);
        }
        self.scheduler.wake(cpu, task, slept);
        self.is_off(cpu, task, Some(OffCpuReason::Woken));
        self.hash.note(now, TraceEvent::Wake, cpu, task.0);
        let state = &mut self.cpus[cpu];
        match state.current {
            None => state.resched = true,
            Some(running) if self.scheduler.preempts(cpu, running, task) => state.resched = true,
            Some(_) => {}
        }
        self.touched.push(cpu);
    }

    /// Charges `task` for reloading its data into the cache. Returns whether this added work.
    ///
    /// The reload costs `refill` in total. After the task has run for a time s since its data was
    /// evicted, `refill · (1 - e^(-s/tau))` of that cost has been charged. This assumes that in any
    /// two periods of equal length, the task touches the same fraction of the data it has not
    /// reloaded yet.
    fn charge_refill(&mut self, task: TaskId) -> bool {
        let Some(footprint) = self.setup.tasks[task.index()].footprint else {
            return false;
        };
        let notes = &mut self.tasks[task.index()];
        let run = notes.report.ran - notes.cold_at;
        let touched = i128::from(ONE - exp_neg(run.0, footprint.tau.0));
        let refill = Nanos(narrow((touched * i128::from(footprint.refill.0)) >> 32));
        let cost = refill - notes.refilled;
        if cost <= Nanos::ZERO {
            return false;
        }
        notes.refilled = refill;
        notes.report.refill_time += cost;
        if notes.until.is_some() {
            // Reloading data does not delay a task that spins until a fixed time.
            return false;
        }
        notes.left += cost;
        true
    }
}
