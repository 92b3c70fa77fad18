//! Schedulers, each in a separate file, and the traits that connect them to the engine.
//!
//! A policy implements [`RunQueue`], which orders the runnable tasks of one queue. `Queues`
//! combines run queues into a machine's scheduler and migrates tasks. A machine has either one
//! queue per CPU or a single queue for all of them. To add a policy, write a file that implements
//! `RunQueue`, and add a variant to [`Policy`]. Scenarios, `--vary` and the property tests then
//! include it.

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

/// Scheduling policy for normal tasks, that is, those that are not real-time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Linux 2.4, with one queue for all CPUs. The task with the best `goodness()` runs.
    Goodness,
    /// Linux 2.4 with the proposed `timer_ticks` patch, which charges a slice only when it is used
    /// up instead of at every tick.
    GoodnessSlices,
    /// The `goodness()` of Linux 2.4, but with one queue per CPU.
    GoodnessPerCpu,
    /// Approximation of Linux 2.6.0 to 2.6.22: active and expired priority arrays.
    O1,
    /// Approximation of CFS, Linux 2.6.23 to 6.5: the task with the least virtual run time runs.
    Fair,
    /// Approximation of EEVDF, Linux 6.6 and later: the eligible task with the earliest virtual
    /// deadline runs.
    Eevdf {
        /// Run time after which a task's deadline is renewed, for tasks that do not request a
        /// specific slice.
        slice: Nanos,
        /// Whether slices are enforced by a timer (`HRTICK`) instead of the tick.
        hrtick: bool,
    },
}

impl Policy {
    /// One policy of each kind, with default parameters.
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

    /// Returns the policy's name, without its parameters, as used in scenarios and on the command
    /// line.
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

    /// Returns whether the times in `/proc/PID/stat` are scaled to the scheduler's exact run time
    /// (`task_utime`, `fs/proc/array.c`). If not, they are tick counts.
    pub(crate) const fn scales_times(self) -> bool {
        match self {
            Self::Goodness | Self::GoodnessSlices | Self::GoodnessPerCpu | Self::O1 => false,
            Self::Fair | Self::Eevdf { .. } => true,
        }
    }

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

/// Why a task is put into a run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The task woke up after it slept or waited for this long.
    Woken(Nanos),
    /// The task was preempted.
    Preempted,
    /// The task yielded the CPU.
    Yielded,
    /// The task migrated from another queue.
    Moved,
}

/// A run queue: a set of runnable tasks, and the order in which they run.
///
/// A run queue has no clock. The engine calls it whenever something happens to its tasks, and
/// reports their run time through [`charge`](Self::charge) before asking for a decision. In all
/// methods, `tasks` contains the policy's state for every task on the machine, indexed by
/// [`TaskId`].
pub trait RunQueue {
    /// The state that the policy keeps for a task.
    type Entity;

    /// Creates the state of a new task.
    fn entity(&self, attributes: &Attributes) -> Self::Entity;

    /// Queues a task.
    fn put(&mut self, tasks: &mut [Self::Entity], task: TaskId, why: Arrival);

    /// Removes and returns the task that will run next on `cpu`, or `None` if no task can run
    /// there. `prev` is the task that ran there until now. If it is still runnable, it has already
    /// been [`put`](Self::put) back.
    fn take(
        &mut self,
        tasks: &mut [Self::Entity],
        cpu: usize,
        prev: Option<TaskId>,
    ) -> Option<TaskId>;

    /// Called when `task`, which is running, blocks or exits.
    fn leave(&mut self, _tasks: &mut [Self::Entity], _task: TaskId) {}

    /// Removes and returns a queued task that another CPU can run, which means that `movable`
    /// accepts it; `None` if the queue has no such task.
    fn steal(
        &mut self,
        tasks: &mut [Self::Entity],
        movable: &dyn Fn(TaskId) -> bool,
    ) -> Option<TaskId>;

    /// Returns the number of queued tasks, not counting the running one.
    fn len(&self) -> usize;

    /// Returns whether no task is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `ran` to the run time of `task`.
    fn charge(&mut self, _tasks: &mut [Self::Entity], _task: TaskId, _ran: Nanos) {}

    /// Handles a tick at which `task` was running. Returns whether a different task should run now.
    fn tick(&mut self, tasks: &mut [Self::Entity], task: TaskId) -> bool;

    /// Returns how many of the next ticks will change nothing but counters, so that
    /// [`tick`](Self::tick) would return `false` for them. The engine handles these ticks together
    /// through [`pass`](Self::pass).
    fn quiet_ticks(&self, _tasks: &[Self::Entity], _task: TaskId) -> i64 {
        if self.is_empty() { i64::MAX } else { 0 }
    }

    /// Handles `ticks` ticks that change nothing but counters.
    fn pass(&mut self, _tasks: &mut [Self::Entity], _task: TaskId, _ticks: i64) {}

    /// Returns whether `woken`, which was just queued, should preempt `running`.
    fn preempts(&self, tasks: &[Self::Entity], running: TaskId, woken: TaskId) -> bool;

    /// Returns the run time after which the scheduler must be called for `task`, even if no tick is
    /// due by then; `None` if ticks are enough.
    fn alarm(&self, _tasks: &[Self::Entity], _task: TaskId) -> Option<Nanos> {
        None
    }

    /// Called when `task`, which is not queued, migrates from this queue to another.
    fn detach(&mut self, _tasks: &mut [Self::Entity], _task: TaskId) {}

    /// Called when `task`, which is not queued, migrates to this queue from another.
    fn attach(&mut self, _tasks: &mut [Self::Entity], _task: TaskId) {}
}

/// A machine's scheduler, as seen by the engine.
pub(crate) trait Scheduler {
    /// Picks a CPU for `task`, which is being woken and last ran on CPU `last`. `running` returns
    /// the task running on a given CPU.
    fn place(&self, task: TaskId, last: usize, running: &dyn Fn(usize) -> Option<TaskId>) -> usize;
    fn wake(&mut self, cpu: usize, task: TaskId, slept: Nanos);
    /// Picks the next task to run on `cpu`. If `back` is given, `prev` is first put back into the
    /// queue for that reason. If `back` is `None`, `prev` can no longer run and is not put back.
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
