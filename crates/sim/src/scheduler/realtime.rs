//! `SCHED_FIFO` and `SCHED_RR`, above whatever schedules the rest (`kernel/sched/rt.c`; in 2.4 the
//! same by a goodness of 1000 and more).

use std::collections::{BTreeMap, VecDeque};

use crate::task::{Attributes, Class, TaskId};

/// The slice of `SCHED_RR`, in ms (`RR_TIMESLICE`).
const ROUND_ROBIN_MS: i64 = 100;

/// What is noted of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Urgency {
    /// 0 for a task that is not real-time.
    pub(super) priority: u8,
    /// Ticks left to a `SCHED_RR` task; `None` for others.
    slice: Option<i64>,
}

impl Urgency {
    /// The notes on a new task, at a tick rate of `hz`.
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
                slice: Some(Self::whole(hz)),
            },
        }
    }

    fn whole(hz: i64) -> i64 {
        (ROUND_ROBIN_MS * hz / 1000).max(1)
    }

    /// Whether it belongs here at all.
    pub(super) fn is_urgent(self) -> bool {
        self.priority > 0
    }

    /// A tick while it ran; whether its slice is over.
    pub(super) fn tick(&mut self) -> bool {
        let Some(slice) = &mut self.slice else {
            return false;
        };
        *slice -= 1;
        *slice <= 0
    }

    /// Ticks that only count.
    pub(super) fn quiet_ticks(self) -> i64 {
        self.slice.map_or(i64::MAX, |slice| (slice - 1).max(0))
    }

    /// That many of them passed.
    pub(super) fn pass(&mut self, ticks: i64) {
        if let Some(slice) = &mut self.slice {
            *slice -= ticks;
        }
    }
}

/// The real-time tasks that wait for a CPU, by priority.
#[derive(Debug, Default)]
pub(super) struct RealTime {
    queues: BTreeMap<u8, VecDeque<TaskId>>,
    tasks: usize,
}

impl RealTime {
    /// Takes a task in: behind its equals, unless it was preempted in the middle of its slice.
    pub(super) fn put(&mut self, task: TaskId, urgency: &mut Urgency, preempted: bool, hz: i64) {
        let queue = self.queues.entry(urgency.priority).or_default();
        let expired = urgency.slice.is_some_and(|slice| slice <= 0);
        if expired {
            urgency.slice = Some(Urgency::whole(hz));
        }
        if preempted && !expired {
            queue.push_front(task);
        } else {
            queue.push_back(task);
        }
        self.tasks += 1;
    }

    /// Takes out the first of the most urgent that `may` run here.
    pub(super) fn take(&mut self, may: &dyn Fn(TaskId) -> bool) -> Option<TaskId> {
        let found = self.queues.iter_mut().rev().find_map(|(_, queue)| {
            let place = queue.iter().position(|&task| may(task))?;
            queue.remove(place)
        })?;
        self.tasks -= 1;
        Some(found)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.tasks
    }
}
