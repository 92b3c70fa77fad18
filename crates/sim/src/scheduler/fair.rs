//! An approximation of CFS (`kernel/sched/fair.c`, 2.6.23 to 6.5): the task with the least weighted
//! run time runs. Groups, load tracking and wake-up heuristics are not modelled.

use std::collections::BTreeSet;

use ticktax_model::Nanos;

use super::weights::{NICE_0, weight};
use super::{Arrival, RunQueue};
use crate::fixed::scale;
use crate::task::{Attributes, TaskId};

/// The state that CFS keeps for a task.
#[derive(Clone, Debug)]
pub struct Share {
    weight: i64,
    /// Weighted run time, in ns at nice 0. While the task is not attached to a queue, this is
    /// relative to the minimum of the queue it left.
    vruntime: i64,
    /// Unweighted run time since the task was last picked to run.
    ran: Nanos,
}

/// A run queue ordered by virtual run time.
#[derive(Debug)]
pub struct Fair {
    latency: i64,
    granularity: i64,
    wakeup: i64,
    queue: BTreeSet<(i64, TaskId)>,
    /// Total weight of the queued tasks.
    load: i64,
    /// Minimum virtual run time of the queue, which never decreases. Woken tasks are placed
    /// relative to it.
    min: i64,
    running: Option<i64>,
}

impl Fair {
    /// Creates an empty queue for a machine with `cpus` CPUs. The latency is 6 ms, the minimum
    /// granularity 0.75 ms, and the wake-up granularity 1 ms. Each is multiplied by 1 + log₂(CPUs),
    /// where at most 8 CPUs count.
    pub fn new(cpus: usize) -> Self {
        let factor = 1 + i64::from(cpus.clamp(1, 8).ilog2());
        Self {
            latency: 6_000_000 * factor,
            granularity: 750_000 * factor,
            wakeup: 1_000_000 * factor,
            queue: BTreeSet::new(),
            load: 0,
            min: 0,
            running: None,
        }
    }

    /// Returns how long a task of this weight may run before another one must.
    fn slice(&self, weight: i64) -> i64 {
        let tasks = i64::try_from(self.queue.len()).unwrap_or(i64::MAX) + 1;
        let period = self.latency.max(self.granularity * tasks);
        scale(period, weight, self.load + weight)
    }

    fn advance_min(&mut self) {
        let first = self.queue.first().map(|&(vruntime, _)| vruntime);
        let min = match (self.running, first) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.min = self.min.max(min.unwrap_or(self.min));
    }
}

impl RunQueue for Fair {
    type Entity = Share;

    fn entity(&self, attributes: &Attributes) -> Share {
        Share {
            weight: weight(attributes.nice),
            vruntime: 0,
            ran: Nanos::ZERO,
        }
    }

    fn put(&mut self, tasks: &mut [Share], task: TaskId, why: Arrival) {
        let notes = &mut tasks[task.index()];
        if matches!(why, Arrival::Woken(_)) {
            // A sleeper gets at most half a latency period of credit (`GENTLE_FAIR_SLEEPERS`).
            notes.vruntime = notes.vruntime.max(self.min - self.latency / 2);
        } else {
            self.running = None;
        }
        if why == Arrival::Yielded
            && let Some(&(last, _)) = self.queue.last()
        {
            notes.vruntime = notes.vruntime.max(last);
        }
        self.load += notes.weight;
        self.queue.insert((notes.vruntime, task));
    }

    fn take(&mut self, tasks: &mut [Share], _: usize, _: Option<TaskId>) -> Option<TaskId> {
        let (vruntime, task) = self.queue.pop_first()?;
        let notes = &mut tasks[task.index()];
        self.load -= notes.weight;
        notes.ran = Nanos::ZERO;
        self.running = Some(vruntime);
        self.advance_min();
        Some(task)
    }

    fn leave(&mut self, _: &mut [Share], _: TaskId) {
        self.running = None;
        self.advance_min();
    }

    fn steal(&mut self, tasks: &mut [Share], movable: &dyn Fn(TaskId) -> bool) -> Option<TaskId> {
        let found = self.queue.iter().rev().find(|(_, task)| movable(*task));
        let &(vruntime, task) = found?;
        self.queue.remove(&(vruntime, task));
        self.load -= tasks[task.index()].weight;
        Some(task)
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn charge(&mut self, tasks: &mut [Share], task: TaskId, ran: Nanos) {
        let notes = &mut tasks[task.index()];
        notes.ran += ran;
        notes.vruntime += scale(ran.0, NICE_0, notes.weight);
        self.running = Some(notes.vruntime);
        self.advance_min();
    }

    fn tick(&mut self, tasks: &mut [Share], task: TaskId) -> bool {
        let Some(&(first, _)) = self.queue.first() else {
            return false;
        };
        let notes = &tasks[task.index()];
        let slice = self.slice(notes.weight);
        notes.ran.0 > slice || notes.ran.0 >= self.granularity && notes.vruntime - first > slice
    }

    fn preempts(&self, tasks: &[Share], running: TaskId, woken: TaskId) -> bool {
        let (running, woken) = (&tasks[running.index()], &tasks[woken.index()]);
        running.vruntime - woken.vruntime > scale(self.wakeup, NICE_0, woken.weight)
    }

    fn detach(&mut self, tasks: &mut [Share], task: TaskId) {
        tasks[task.index()].vruntime -= self.min;
    }

    fn attach(&mut self, tasks: &mut [Share], task: TaskId) {
        tasks[task.index()].vruntime += self.min;
    }
}
