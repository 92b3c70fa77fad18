//! An approximation of EEVDF (`kernel/sched/fair.c`, 6.6 and later; Stoica and Abdel-Wahab, 1995).
//!
//! A task is eligible while it has not received more than its share of the CPU. The eligible task
//! with the earliest virtual deadline runs. A task's deadline is one slice, in virtual time, after
//! its current request began.
//!
//! Once picked, a task runs until a tick or a wake-up finds that it has exceeded its share or used
//! up its slice (`RUN_TO_PARITY`). A task with a shorter slice can preempt it earlier
//! (`PREEMPT_SHORT`). A task that has received more than its share pays the excess back while it
//! sleeps (`DELAY_DEQUEUE`). The kernel has done so only since 6.12, but this model does it for all
//! versions. Unlike in the kernel, such a sleeper does not slow down the virtual time of others.
//! [`super::grouped`] adds groups.

use ticktax_model::Nanos;
use ticktax_model::autogroup::Autogroup;

use super::weights::{NICE_0, weight};
use super::{Arrival, RunQueue};
use crate::fixed::{narrow, scale};
use crate::task::{Attributes, TaskId};

/// Default slice of the newest kernels on a machine with one CPU.
pub(super) const BASE_SLICE: Nanos = Nanos(700_000);

/// Returns the default slice of tasks on kernel `release` (major, minor).
///
/// The default is `sysctl_sched_base_slice` times 1 + log₂(CPUs), where at most 8 CPUs count
/// (`get_update_sysctl_factor`). `sysctl_sched_base_slice` is 0.75 ms from 6.6 and 0.70 ms from
/// 6.15 (`kernel/sched/fair.c`; commit 2ae891b82695, "sched: Reduce the default slice to avoid
/// tasks getting an extra tick"). If the release is unknown, the newest kernel is assumed.
pub fn base_slice(release: Option<(u32, u32)>, cpus: usize) -> Nanos {
    let base = match release {
        Some(release) if release < (6, 15) => 750_000,
        _ => BASE_SLICE.0,
    };
    Nanos(base * (1 + i64::from(cpus.clamp(1, 8).ilog2())))
}

/// The state that EEVDF keeps for a task, or for a group's entity on one CPU.
#[derive(Clone, Debug)]
pub struct Request {
    weight: i64,
    slice: i64,
    /// Virtual run time, in ns at nice 0. The task is eligible while this does not exceed the
    /// queue's average.
    vruntime: i64,
    deadline: i64,
    /// Virtual run time below which other tasks do not preempt this one (`RUN_TO_PARITY`). It is
    /// set to the deadline when the task is picked to run after a different task.
    protected: i64,
    /// Virtual time that the queue owed the task when the task left, limited to ± two slices;
    /// negative if the task had received more than its share.
    lag: i64,
    /// Whether the task left its queue to sleep rather than to migrate.
    left: bool,
    pub(super) autogroup: Option<Autogroup>,
    /// For a group's entity on a CPU, the total weight of the group's runnable tasks on that CPU.
    pub(super) inside: i64,
}

impl Request {
    fn virtual_slice(&self) -> i64 {
        scale(self.slice, NICE_0, self.weight)
    }

    pub(super) fn weight(&self) -> i64 {
        self.weight
    }
}

/// A run queue ordered by virtual deadline.
#[derive(Debug)]
pub struct Eevdf {
    slice: Nanos,
    hrtick: bool,
    queue: Vec<TaskId>,
    running: Option<TaskId>,
    /// Average virtual run time at the last call of `settle`, which is the reference point for the
    /// next average.
    idle_at: i64,
}

impl Eevdf {
    /// Creates an empty queue. `slice` applies to tasks that do not request one.
    pub fn new(slice: Nanos, hrtick: bool) -> Self {
        Self {
            slice,
            hrtick,
            queue: Vec::new(),
            running: None,
            idle_at: 0,
        }
    }

    /// Returns the weighted mean of the virtual run times of all tasks in the queue, including the
    /// running one. A task below this mean has received less than its share.
    fn average(&self, tasks: &[Request]) -> i64 {
        let mut load = 0_i128;
        let mut sum = 0_i128;
        for task in self.queue.iter().chain(&self.running) {
            let notes = &tasks[task.index()];
            load += i128::from(notes.weight);
            sum += i128::from(notes.weight) * i128::from(notes.vruntime - self.idle_at);
        }
        self.idle_at + narrow(sum.checked_div_euclid(load).unwrap_or(0))
    }

    /// Returns the queue index of the task to run next, or `None` if the queue is empty. This is
    /// the eligible task with the earliest deadline or, if rounding errors leave no task eligible,
    /// the one with the least virtual run time.
    fn best(&self, tasks: &[Request], average: i64) -> Option<usize> {
        let key = |&(_, task): &(usize, &TaskId)| {
            let notes = &tasks[task.index()];
            let eligible = notes.vruntime <= average;
            let key = if eligible {
                notes.deadline
            } else {
                notes.vruntime
            };
            (!eligible, key, *task)
        };
        self.queue
            .iter()
            .enumerate()
            .min_by_key(key)
            .map(|(place, _)| place)
    }

    pub(super) fn holds(&self, task: TaskId) -> bool {
        self.running == Some(task) || self.queue.contains(&task)
    }

    /// Counts the queued entities whose index is below `place`.
    pub(super) fn tasks_below(&self, place: usize) -> usize {
        let below = |task: &&TaskId| task.index() < place;
        self.queue.iter().filter(below).count()
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Changes the weight of entity `task`, preserving the run time it is owed (`reweight_entity`).
    pub(super) fn reweight(&self, tasks: &mut [Request], task: TaskId, weight: i64) {
        let average = self.average(tasks);
        let notes = &mut tasks[task.index()];
        if notes.weight == weight {
            return;
        }
        let scaled = |time: i64| scale(time, notes.weight, weight);
        let vruntime = average - scaled(average - notes.vruntime);
        notes.deadline = vruntime + scaled(notes.deadline - notes.vruntime);
        notes.protected = vruntime + scaled(notes.protected - notes.vruntime);
        notes.vruntime = vruntime;
        notes.weight = weight;
    }

    /// Removes a group's queued entity after the group's last runnable task has left.
    pub(super) fn remove(&mut self, tasks: &mut [Request], task: TaskId) {
        self.settle(tasks);
        self.queue.retain(|&other| other != task);
        let notes = &mut tasks[task.index()];
        notes.lag = self.idle_at - notes.vruntime;
        notes.left = true;
        self.settle(tasks);
    }

    /// Stores the average virtual run time, so that virtual time continues from there while the
    /// queue is empty.
    fn settle(&mut self, tasks: &[Request]) {
        self.idle_at = self.average(tasks);
    }
}

impl RunQueue for Eevdf {
    type Entity = Request;

    fn entity(&self, attributes: &Attributes) -> Request {
        Request {
            weight: weight(attributes.nice),
            slice: attributes.slice.unwrap_or(self.slice).0,
            vruntime: 0,
            deadline: 0,
            protected: 0,
            lag: 0,
            left: false,
            autogroup: attributes.autogroup,
            inside: 0,
        }
    }

    fn put(&mut self, tasks: &mut [Request], task: TaskId, why: Arrival) {
        if self.running == Some(task) {
            self.running = None;
            let notes = &mut tasks[task.index()];
            if notes.vruntime >= notes.deadline {
                notes.deadline = notes.vruntime + notes.virtual_slice();
            }
            if why == Arrival::Yielded {
                notes.deadline += notes.virtual_slice();
            }
        } else {
            let average = self.average(tasks);
            let queued = self.queue.iter().chain(&self.running);
            let load: i64 = queued.map(|other| tasks[other.index()].weight).sum();
            let notes = &mut tasks[task.index()];
            if notes.left && notes.lag < 0 {
                notes.lag = (average - notes.vruntime).clamp(notes.lag, 0);
            }
            notes.left = false;
            // Adding the task shifts the average, so scale the task's lag to compensate
            // (`place_entity`).
            let lag = match load {
                0 => notes.lag,
                load => scale(notes.lag, load + notes.weight, load),
            };
            notes.vruntime = average - lag;
            notes.deadline = notes.vruntime + notes.virtual_slice();
        }
        self.queue.push(task);
    }

    fn take(&mut self, tasks: &mut [Request], _: usize, prev: Option<TaskId>) -> Option<TaskId> {
        let place = self.best(tasks, self.average(tasks))?;
        let task = self.queue.swap_remove(place);
        if prev != Some(task) {
            let notes = &mut tasks[task.index()];
            notes.protected = notes.deadline;
        }
        self.running = Some(task);
        Some(task)
    }

    fn leave(&mut self, tasks: &mut [Request], task: TaskId) {
        self.settle(tasks);
        let notes = &mut tasks[task.index()];
        let max = 2 * notes.virtual_slice();
        notes.lag = (self.idle_at - notes.vruntime).clamp(-max, max);
        notes.left = true;
        self.running = None;
        self.settle(tasks);
    }

    fn steal(&mut self, tasks: &mut [Request], movable: &dyn Fn(TaskId) -> bool) -> Option<TaskId> {
        let place = self.queue.iter().position(|&task| movable(task))?;
        self.settle(tasks);
        let task = self.queue.remove(place);
        tasks[task.index()].lag = self.idle_at - tasks[task.index()].vruntime;
        self.settle(tasks);
        Some(task)
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn charge(&mut self, tasks: &mut [Request], task: TaskId, ran: Nanos) {
        let notes = &mut tasks[task.index()];
        notes.vruntime += scale(ran.0, NICE_0, notes.weight);
    }

    fn tick(&mut self, tasks: &mut [Request], task: TaskId) -> bool {
        let notes = &mut tasks[task.index()];
        if notes.vruntime < notes.deadline {
            return false;
        }
        notes.deadline = notes.vruntime + notes.virtual_slice();
        !self.queue.is_empty()
    }

    fn preempts(&self, tasks: &[Request], running: TaskId, woken: TaskId) -> bool {
        let (a, b) = (&tasks[running.index()], &tasks[woken.index()]);
        // Like a tick, queueing a task checks whether the running task has used up its slice
        // (`update_curr` in `enqueue_entity`).
        let used_up = a.vruntime >= a.deadline;
        if used_up && self.queue.len() > 1 {
            return true;
        }
        let deadline = if used_up {
            a.vruntime + a.virtual_slice()
        } else {
            a.deadline
        };
        let average = self.average(tasks);
        let is_best = self.best(tasks, average).map(|place| self.queue[place]) == Some(woken);
        let short = b.slice < a.slice && b.vruntime <= average;
        let protected = a.vruntime < a.protected && !short;
        let goes_on = a.vruntime <= average && (protected || deadline <= b.deadline);
        is_best && !goes_on
    }

    fn detach(&mut self, tasks: &mut [Request], task: TaskId) {
        let notes = &mut tasks[task.index()];
        // A sleeping task that migrates has already paid back the excess time it received.
        if notes.left {
            notes.lag = notes.lag.max(0);
        }
        notes.left = false;
    }

    fn alarm(&self, tasks: &[Request], task: TaskId) -> Option<Nanos> {
        let notes = &tasks[task.index()];
        let left = scale(notes.deadline - notes.vruntime, notes.weight, NICE_0) + 1;
        (self.hrtick && !self.queue.is_empty()).then_some(Nanos(left.max(1)))
    }
}
