//! An approximation of the O(1) scheduler (`kernel/sched.c`, 2.6.0 to 2.6.22), with active and
//! expired priority arrays. The bonus for sleeping follows the kernel's idea, but not its special
//! cases: one second of sleep raises the priority by ten levels, and one second of running lowers
//! it again.

use std::collections::VecDeque;

use ticktax_model::Nanos;

use super::{Arrival, RunQueue};
use crate::task::{Attributes, TaskId};

const PRIORITIES: usize = 40;
/// Maximum credited sleep time (`MAX_SLEEP_AVG`), in ns.
const MAX_SLEEP: i64 = 1_000_000_000;

/// The state that the scheduler keeps for a task.
#[derive(Clone, Debug)]
pub struct Priority {
    nice: i64,
    /// Remaining ticks of the slice.
    slice: i64,
    sleep: i64,
}

impl Priority {
    /// Returns the priority level, from 0 (highest) to 39: the nice value minus a bonus of -5 to 5.
    fn level(&self) -> usize {
        let bonus = self.sleep * 10 / MAX_SLEEP - 5;
        usize::try_from((self.nice + 20 - bonus).clamp(0, 39)).unwrap_or(0)
    }
}

/// One queue per priority, and a bit mask of the non-empty ones.
#[derive(Debug)]
struct Array {
    queues: [VecDeque<TaskId>; PRIORITIES],
    mask: u64,
    tasks: usize,
}

impl Array {
    fn new() -> Self {
        Self {
            queues: std::array::from_fn(|_| VecDeque::new()),
            mask: 0,
            tasks: 0,
        }
    }

    fn push(&mut self, level: usize, task: TaskId, first: bool) {
        if first {
            self.queues[level].push_front(task);
        } else {
            self.queues[level].push_back(task);
        }
        self.mask |= 1 << level;
        self.tasks += 1;
    }

    fn pop(&mut self) -> Option<TaskId> {
        let level = self.mask.trailing_zeros() as usize;
        let task = self.queues.get_mut(level)?.pop_front();
        self.tidy(level, task)
    }

    fn tidy(&mut self, level: usize, task: Option<TaskId>) -> Option<TaskId> {
        if self.queues[level].is_empty() {
            self.mask &= !(1 << level);
        }
        self.tasks -= usize::from(task.is_some());
        task
    }

    fn remove(&mut self, movable: &dyn Fn(TaskId) -> bool) -> Option<TaskId> {
        (0..PRIORITIES).rev().find_map(|level| {
            let place = self.queues[level].iter().position(|&task| movable(task))?;
            let task = self.queues[level].remove(place);
            self.tidy(level, task)
        })
    }
}

/// A run queue with active and expired arrays.
#[derive(Debug)]
pub struct O1 {
    hz: i64,
    active: Array,
    expired: Array,
}

impl O1 {
    /// Creates an empty queue for a tick rate of `hz`.
    pub fn new(hz: i64) -> Self {
        Self {
            hz,
            active: Array::new(),
            expired: Array::new(),
        }
    }

    /// Returns the slice at `nice` in ticks. It takes 100 ms at nice 0, 800 ms at -20, and 5 ms at
    /// 19 (`task_timeslice`).
    fn slice(&self, nice: i64) -> i64 {
        let base = if nice < 0 { 400 } else { 100 };
        let ms = (base * (20 - nice) / 20).max(5);
        (ms * self.hz / 1000).max(1)
    }
}

impl RunQueue for O1 {
    type Entity = Priority;

    fn entity(&self, attributes: &Attributes) -> Priority {
        let nice = i64::from(attributes.nice);
        Priority {
            nice,
            slice: self.slice(nice),
            sleep: MAX_SLEEP / 2,
        }
    }

    fn put(&mut self, tasks: &mut [Priority], task: TaskId, why: Arrival) {
        let notes = &mut tasks[task.index()];
        if let Arrival::Woken(slept) = why {
            notes.sleep = notes.sleep.saturating_add(slept.0).min(MAX_SLEEP);
        }
        let expired = notes.slice == 0;
        if expired {
            notes.slice = self.slice(notes.nice);
        }
        let level = notes.level();
        if expired || why == Arrival::Yielded {
            self.expired.push(level, task, false);
        } else {
            self.active.push(level, task, why == Arrival::Preempted);
        }
    }

    fn take(&mut self, _: &mut [Priority], _: usize, _: Option<TaskId>) -> Option<TaskId> {
        if self.active.tasks == 0 {
            std::mem::swap(&mut self.active, &mut self.expired);
        }
        self.active.pop()
    }

    fn steal(&mut self, _: &mut [Priority], movable: &dyn Fn(TaskId) -> bool) -> Option<TaskId> {
        let task = self.expired.remove(movable);
        task.or_else(|| self.active.remove(movable))
    }

    fn len(&self) -> usize {
        self.active.tasks + self.expired.tasks
    }

    fn charge(&mut self, tasks: &mut [Priority], task: TaskId, ran: Nanos) {
        let notes = &mut tasks[task.index()];
        notes.sleep = (notes.sleep - ran.0).max(0);
    }

    fn tick(&mut self, tasks: &mut [Priority], task: TaskId) -> bool {
        let notes = &mut tasks[task.index()];
        notes.slice -= 1;
        if notes.slice > 0 {
            return false;
        }
        notes.slice = 0;
        true
    }

    fn quiet_ticks(&self, tasks: &[Priority], task: TaskId) -> i64 {
        (tasks[task.index()].slice - 1).max(0)
    }

    fn pass(&mut self, tasks: &mut [Priority], task: TaskId, ticks: i64) {
        tasks[task.index()].slice -= ticks;
    }

    fn preempts(&self, tasks: &[Priority], running: TaskId, woken: TaskId) -> bool {
        tasks[woken.index()].level() < tasks[running.index()].level()
    }
}
