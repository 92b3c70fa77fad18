//! Who runs next: the one trait between the engine and its schedulers, a file each.
//!
//! A policy is a [`RunQueue`]: it orders the runnable tasks of one queue. `Queues` gives every
//! CPU a queue of its own, or all of them one, and moves tasks between them. A new scheduler is a
//! file with a `RunQueue`, and its lines in [`Policy`]; scenarios, `--vary` and the property tests follow.

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

/// Which scheduler a kernel has for tasks that are not real-time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Linux 2.4: one queue for all CPUs, the best `goodness()` runs.
    Goodness,
    /// 2.4 with the `timer_ticks` proposal: a slice is charged when it is used up, not tick by
    /// tick.
    GoodnessSlices,
    /// 2.4's goodness with a queue for each CPU.
    GoodnessPerCpu,
    /// Linux 2.6.0 to 2.6.22, nearly: priority arrays, active and expired.
    O1,
    /// Linux 2.6.23 to 6.5, nearly: least virtual run time first.
    Fair,
    /// Linux 6.6 on, nearly: the earliest virtual deadline among the eligible.
    Eevdf {
        /// How much a task may run before its deadline is renewed, unless it asks for a slice of
        /// its own.
        slice: Nanos,
        /// Whether a timer ends slices (`HRTICK`), rather than the tick.
        hrtick: bool,
    },
}

impl Policy {
    /// Every policy, as it is where no more is said.
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

    /// The word for it in scenarios and on the command line, whatever its own settings are.
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

    /// Whether its kernels scale what `/proc/PID/stat` says to the time that the scheduler measured
    /// (`task_utime`, `fs/proc/array.c`), rather than count ticks.
    pub(crate) const fn scales_times(self) -> bool {
        match self {
            Self::Goodness | Self::GoodnessSlices | Self::GoodnessPerCpu | Self::O1 => false,
            Self::Fair | Self::Eevdf { .. } => true,
        }
    }

    /// A scheduler of this policy for these CPUs and tasks, at a tick rate of `hz`.
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
                let places = Places::of(tasks, cpus);
                let tasks = places.with_groups(tasks);
                let next = Cell::new(0);
                let queue = || Grouped::new(places.clone(), next.replace(next.get() + 1), queue);
                Box::new(Queues::per_cpu(cpus, hz, &tasks, queue))
            }
        }
    }
}

/// Why a task comes into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It had slept or waited for this long.
    Woken(Nanos),
    /// It ran, and another should.
    Preempted,
    /// It ran, and gave way.
    Yielded,
    /// It comes from another queue.
    Moved,
}

/// The order of the runnable tasks of one queue.
///
/// The queue hears of everything that happens to its tasks and holds no clock: run time comes
/// through [`charge`](Self::charge), before anything is decided upon it. `tasks` are the policy's
/// own notes on every task of the machine, by [`TaskId`].
pub trait RunQueue {
    /// What the policy notes of a task.
    type Entity;

    /// The notes on a new task.
    fn entity(&self, attributes: &Attributes) -> Self::Entity;

    /// Takes a task in.
    fn put(&mut self, tasks: &mut [Self::Entity], task: TaskId, why: Arrival);

    /// Takes the task out that shall run on `cpu`. `prev` ran there until now, whatever it does
    /// next; where it can run on, it has been [`put`](Self::put) back.
    fn take(
        &mut self,
        tasks: &mut [Self::Entity],
        cpu: usize,
        prev: Option<TaskId>,
    ) -> Option<TaskId>;

    /// The running `task` sleeps, waits or ends.
    fn leave(&mut self, _tasks: &mut [Self::Entity], _task: TaskId) {}

    /// Takes out a task that another CPU's queue may have, if any is `movable`.
    fn steal(
        &mut self,
        tasks: &mut [Self::Entity],
        movable: &dyn Fn(TaskId) -> bool,
    ) -> Option<TaskId>;

    /// How many tasks are queued, the running one left out.
    fn len(&self) -> usize;

    /// Whether no task is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notes that `task` ran for `ran`.
    fn charge(&mut self, _tasks: &mut [Self::Entity], _task: TaskId, _ran: Nanos) {}

    /// A tick while `task` ran; whether another should.
    fn tick(&mut self, tasks: &mut [Self::Entity], task: TaskId) -> bool;

    /// How many of the next ticks will change nothing but counts, so that they need not be looked
    /// at one by one: [`tick`](Self::tick) would say no.
    fn quiet_ticks(&self, _tasks: &[Self::Entity], _task: TaskId) -> i64 {
        if self.is_empty() { i64::MAX } else { 0 }
    }

    /// That many quiet ticks passed.
    fn pass(&mut self, _tasks: &mut [Self::Entity], _task: TaskId, _ticks: i64) {}

    /// Whether `woken`, which was just put in, should run instead of `running`.
    fn preempts(&self, tasks: &[Self::Entity], running: TaskId, woken: TaskId) -> bool;

    /// How much longer `task` may run before [`tick`](Self::tick) should be asked, where that is
    /// not left to ticks.
    fn alarm(&self, _tasks: &[Self::Entity], _task: TaskId) -> Option<Nanos> {
        None
    }

    /// `task`, which is in no queue, leaves this one for another.
    fn detach(&mut self, _tasks: &mut [Self::Entity], _task: TaskId) {}

    /// `task`, which is in no queue, comes to this one from another.
    fn attach(&mut self, _tasks: &mut [Self::Entity], _task: TaskId) {}
}

/// All queues of a machine, as the engine sees them.
pub(crate) trait Scheduler {
    /// The CPU that a woken task should go to; `running` has what each one runs.
    fn place(&self, task: TaskId, last: usize, running: &dyn Fn(usize) -> Option<TaskId>) -> usize;
    /// Puts a woken task in that CPU's queue.
    fn wake(&mut self, cpu: usize, task: TaskId, slept: Nanos);
    /// Puts the task that ran back, if it can run on (`back`), and takes out the next.
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
    /// How many tasks wait in the queue that serves `cpu`.
    fn queued(&self, cpu: usize) -> usize;
}

#[cfg(test)]
mod tests {
    use std::fs;

    #[test]
    fn the_documentation_has_a_row_for_every_policy() {
        let root = env!("CARGO_MANIFEST_DIR");
        let page = fs::read_to_string(format!("{root}/../../docs/model.md")).unwrap();
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
