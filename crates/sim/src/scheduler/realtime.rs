//! `SCHED_FIFO` and `SCHED_RR` tasks, which run before all other tasks. Newer kernels keep them in
//! a separate queue (`kernel/sched/rt.c`), and Linux 2.4 gives them a goodness of 1000 or more.

use std::collections::{BTreeMap, VecDeque};

use crate::task::{Attributes, Class, TaskId};

/// Slice of `SCHED_RR`, in ms (`RR_TIMESLICE`).
const ROUND_ROBIN_MS: i64 = 100;

#[derive(Clone, Copy, Debug)]
pub(super) struct Urgency {
    /// Real-time priority, or 0 for a task that is not real-time.
    pub(super) priority: u8,
    /// Remaining ticks of a `SCHED_RR` task's slice, or `None` for other tasks.
    slice: Option<i64>,
}

impl Urgency {
    pub(super) fn new(attributes: &Attributes, hz: i64) -> Self {
        match attributes.class {
            Class::Normal => Self {
                priority: 0,
                slice: None,
            },
            Class::Fifo(priority) => Self {
                priority,
                slice: None,
            },
            Class::RoundRobin(priority) => Self {
                priority,
                slice: Some(Self::full_slice(hz)),
            },
        }
    }

    fn full_slice(hz: i64) -> i64 {
        (ROUND_ROBIN_MS * hz / 1000).max(1)
    }

    pub(super) fn is_urgent(self) -> bool {
        self.priority > 0
    }

    /// Handles a tick at which this task was running. Returns whether its slice is over.
    pub(super) fn tick(&mut self) -> bool {
        let Some(slice) = &mut self.slice else {
            return false;
        };
        *slice -= 1;
        *slice <= 0
    }

    /// Returns how many of the next ticks will change nothing but counters.
    pub(super) fn quiet_ticks(self) -> i64 {
        self.slice.map_or(i64::MAX, |slice| (slice - 1).max(0))
    }

    /// Handles `ticks` ticks that change nothing but counters.
    pub(super) fn pass(&mut self, ticks: i64) {
        if let Some(slice) = &mut self.slice {
            *slice -= ticks;
        }
    }
}

/// Runnable real-time tasks, by priority.
#[derive(Debug, Default)]
pub(super) struct RealTime {
    queues: BTreeMap<u8, VecDeque<TaskId>>,
    tasks: usize,
}

impl RealTime {
    /// Queues a task behind others of the same priority, or ahead of them if it was preempted
    /// before it used up its slice. `SCHED_FIFO` tasks never use up a slice.
    pub(super) fn put(&mut self, task: TaskId, urgency: &mut Urgency, preempted: bool, hz: i64) {
        let queue = self.queues.entry(urgency.priority).or_default();
        let expired = urgency.slice.is_some_and(|slice| slice <= 0);
        if expired {
            urgency.slice = Some(Urgency::full_slice(hz));
        }
        if preempted && !expired {
            queue.push_front(task);
        } else {
            queue.push_back(task);
        }
        self.tasks += 1;
    }

    /// Removes and returns the first task of the highest priority among those that `may` accepts,
    /// or `None` if it accepts none.
    pub(super) fn take(&mut self, may: &dyn Fn(TaskId) -> bool) -> Option<TaskId> {
        let found = self.queues.iter_mut().rev().find_map(|(_, queue)| {
            let place = queue.iter().position(|&task| may(task))?;
            queue.remove(place)
        })?;
        self.tasks -= 1;
        Some(found)
    }

    pub(super) fn len(&self) -> usize {
        self.tasks
    }
}
