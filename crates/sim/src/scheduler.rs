//! The trait between the engine and its schedulers, with one file per scheduler.
//!
//! A policy is a [`RunQueue`], which orders the runnable tasks of one queue. `Queues` gives each
//! CPU its own queue, or one queue to all, and moves tasks between them. A new scheduler is a file
//! with a `RunQueue` and an entry in [`Policy`]; scenarios, `--vary` and the property tests follow.

mod eevdf;
mod fair;
mod goodness;
mod grouped;
mod o1;
mod queues;
mod realtime;
mod weights;

use std::cell::Cell;

use ticktax_model::Nanos;

use crate::task::{Attributes, TaskId};
pub use eevdf::{Eevdf, base_slice};
pub use fair::Fair;
pub use goodness::{Goodness, nice_to_ticks};
use grouped::{Grouped, Places};
pub use o1::O1;
use queues::Queues;

/// The scheduler for tasks that are not real-time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Linux 2.4: one queue for all CPUs; the task with the best `goodness()` runs.
    Goodness,
    /// Linux 2.4 with the `timer_ticks` proposal: a slice is charged when it is used up, not tick
    /// by tick.
    GoodnessSlices,
    /// Linux 2.4's goodness with a queue per CPU.
    GoodnessPerCpu,
    /// Approximately Linux 2.6.0 to 2.6.22: active and expired priority arrays.
    O1,
    /// Approximately Linux 2.6.23 to 6.5: least virtual run time first.
    Fair,
    /// Approximately Linux 6.6 and later: the earliest virtual deadline among the eligible tasks.
    Eevdf {
        /// Run time until a task's deadline is renewed, unless the task requests its own slice.
        slice: Nanos,
        /// Whether a timer ends slices (`HRTICK`) instead of the tick.
        hrtick: bool,
    },
}

impl Policy {
    /// All policies, with their default settings.
    pub const ALL: [Self; 6] = [
        Self::Goodness,
        Self::GoodnessSlices,
        Self::GoodnessPerCpu,
        Self::O1,
        Self::Fair,
        Self::Eevdf {
            slice: eevdf::BASE_SLICE,
            hrtick: false,
        },
    ];

    /// Name in scenarios and on the command line, without its settings.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Goodness => "goodness",
            Self::GoodnessSlices => "goodness-slices",
            Self::GoodnessPerCpu => "goodness-per-cpu",
            Self::O1 => "o1",
            Self::Fair => "fair",
            Self::Eevdf { .. } => "eevdf",
        }
    }

    /// Whether kernels with this policy scale the times in `/proc/PID/stat` to the scheduler's
    /// measured run time (`task_utime`, `fs/proc/array.c`), instead of counting ticks.
    pub(crate) const fn scales_times(self) -> bool {
        match self {
            Self::Goodness | Self::GoodnessSlices | Self::GoodnessPerCpu | Self::O1 => false,
            Self::Fair | Self::Eevdf { .. } => true,
        }
    }

    /// Builds a scheduler for these CPUs and tasks, at a tick rate of `hz`.
    pub(crate) fn build(self, cpus: usize, hz: i64, tasks: &[Attributes]) -> Box<dyn Scheduler> {
        let smp = cpus > 1;
        match self {
            Self::Goodness | Self::GoodnessSlices => {
                let slices = self == Self::GoodnessSlices;
                Box::new(Queues::shared(
                    cpus,
                    hz,
                    tasks,
                    Goodness::new(hz, smp, slices),
                ))
            }
            Self::GoodnessPerCpu => {
                let queue = || Goodness::new(hz, false, false);
                Box::new(Queues::per_cpu(cpus, hz, tasks, queue))
            }
            Self::O1 => Box::new(Queues::per_cpu(cpus, hz, tasks, || O1::new(hz))),
            Self::Fair => Box::new(Queues::per_cpu(cpus, hz, tasks, || Fair::new(cpus))),
            Self::Eevdf { slice, hrtick } => {
                let queue = || Eevdf::new(slice, hrtick);
                if tasks.iter().all(|task| task.autogroup.is_none()) {
                    return Box::new(Queues::per_cpu(cpus, hz, tasks, queue));
                }
                let places = Places::new(tasks, cpus);
                let tasks = places.with_groups(tasks);
                let next = Cell::new(0);
                let queue = || Grouped::new(places.clone(), next.replace(next.get() + 1), queue);
                Box::new(Queues::per_cpu(cpus, hz, &tasks, queue))
            }
        }
    }
}

/// Why a task enters a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It had slept or waited for this long.
    Woken(Nanos),
    /// It was preempted.
    Preempted,
    /// It yielded the CPU.
    Yielded,
    /// It was moved from another queue.
    Moved,
}

/// The order of the runnable tasks of one queue.
///
/// The queue is notified of everything that happens to its tasks, and has no clock. Run time is
/// reported through [`charge`](Self::charge) before any decision based on it. `tasks` is the
/// policy's state of every task of the machine, indexed by [`TaskId`].
pub trait RunQueue {
    /// The policy's state of a task.
    type Entity;

    /// Initial state of a new task.
    fn entity(&self, attributes: &Attributes) -> Self::Entity;

    /// Enqueues a task.
    fn put(&mut self, tasks: &mut [Self::Entity], task: TaskId, why: Arrival);

    /// Dequeues the task that runs next on `cpu`. `prev` ran there until now. If it is still
    /// runnable, it has already been [`put`](Self::put) back.
    fn take(
        &mut self,
        tasks: &mut [Self::Entity],
        cpu: usize,
        prev: Option<TaskId>,
    ) -> Option<TaskId>;

    /// The running `task` sleeps, waits or ends.
    fn leave(&mut self, _tasks: &mut [Self::Entity], _task: TaskId) {}

    /// Dequeues a `movable` task for another CPU's queue, if there is one.
    fn steal(
        &mut self,
        tasks: &mut [Self::Entity],
        movable: &dyn Fn(TaskId) -> bool,
    ) -> Option<TaskId>;

    /// Number of queued tasks, without the running one.
    fn len(&self) -> usize;

    /// Whether no task is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records that `task` ran for `ran`.
    fn charge(&mut self, _tasks: &mut [Self::Entity], _task: TaskId, _ran: Nanos) {}

    /// Processes a tick while `task` runs. Returns whether another task should run.
    fn tick(&mut self, tasks: &mut [Self::Entity], task: TaskId) -> bool;

    /// Number of upcoming ticks that only change counters. They need not be processed one by one,
    /// because [`tick`](Self::tick) would return false.
    fn quiet_ticks(&self, _tasks: &[Self::Entity], _task: TaskId) -> i64 {
        if self.is_empty() { i64::MAX } else { 0 }
    }

    /// Records that `ticks` quiet ticks have passed.
    fn pass(&mut self, _tasks: &mut [Self::Entity], _task: TaskId, _ticks: i64) {}

    /// Whether `woken`, which has just been enqueued, should preempt `running`.
    fn preempts(&self, tasks: &[Self::Entity], running: TaskId, woken: TaskId) -> bool;

    /// Run time left until [`tick`](Self::tick) must be called for `task`, if that cannot wait for
    /// a tick.
    fn alarm(&self, _tasks: &[Self::Entity], _task: TaskId) -> Option<Nanos> {
        None
    }

    /// `task`, which is not enqueued, leaves this queue for another.
    fn detach(&mut self, _tasks: &mut [Self::Entity], _task: TaskId) {}

    /// `task`, which is not enqueued, joins this queue from another.
    fn attach(&mut self, _tasks: &mut [Self::Entity], _task: TaskId) {}
}

/// All queues of a machine, as the engine sees them.
pub(crate) trait Scheduler {
    /// The CPU that a woken task should go to; `running` returns the task on each CPU.
    fn place(&self, task: TaskId, last: usize, running: &dyn Fn(usize) -> Option<TaskId>) -> usize;
    /// Enqueues a woken task in that CPU's queue.
    fn wake(&mut self, cpu: usize, task: TaskId, slept: Nanos);
    /// Enqueues the previous task again, if it is runnable (`back`), and dequeues the next.
    fn switch(&mut self, cpu: usize, prev: Option<TaskId>, back: Option<Arrival>)
    -> Option<TaskId>;
    /// See [`RunQueue::charge`].
    fn charge(&mut self, cpu: usize, task: TaskId, ran: Nanos);
    /// See [`RunQueue::tick`].
    fn tick(&mut self, cpu: usize, task: TaskId) -> bool;
    /// See [`RunQueue::quiet_ticks`].
    fn quiet_ticks(&self, cpu: usize, task: TaskId) -> i64;
    /// See [`RunQueue::pass`].
    fn pass(&mut self, cpu: usize, task: TaskId, ticks: i64);
    /// See [`RunQueue::preempts`].
    fn preempts(&self, cpu: usize, running: TaskId, woken: TaskId) -> bool;
    /// See [`RunQueue::alarm`].
    fn alarm(&self, cpu: usize, task: TaskId) -> Option<Nanos>;
    /// Number of tasks that wait in the queue of `cpu`.
    fn queued(&self, cpu: usize) -> usize;
}

#[cfg(test)]
mod tests {
    use std::fs;

    #[test]
    fn the_documentation_has_a_row_for_every_policy() {
        let root = env!("CARGO_MANIFEST_DIR");
        let page = fs::read_to_string(format!("{root}/../../docs/explanation/model.md")).unwrap();
        let mut files = 0;
        for entry in fs::read_dir(format!("{root}/src/scheduler")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if fs::read_to_string(&path)
                .unwrap()
                .contains("impl RunQueue for ")
            {
                files += 1;
                assert!(page.contains(&format!("\n| `{name}` | ")), "{name}");
            }
        }
        assert!(files > 3, "{files} files of policies");
    }
}
