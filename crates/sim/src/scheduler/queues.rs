//! Combines run queues into a machine's scheduler, and migrates tasks between them.

use ticktax_model::Nanos;

use super::realtime::{RealTime, Urgency};
use super::{Arrival, RunQueue, Scheduler};
use crate::task::{Attributes, TaskId};

pub(crate) struct Queues<Q: RunQueue> {
    /// Queues of normal tasks: one per CPU, or a single one for all CPUs.
    lines: Vec<Q>,
    /// Real-time tasks of each queue in `lines`, which run before the queue's normal tasks.
    urgent: Vec<RealTime>,
    cpus: usize,
    hz: i64,
    tasks: Vec<Q::Entity>,
    urgency: Vec<Urgency>,
    pinned: Vec<Option<usize>>,
    /// For each task, the index of the queue it was in most recently.
    home: Vec<usize>,
    /// Number of queued tasks that may migrate. If it is 0, idle CPUs do not look for a task to
    /// pull.
    movable: usize,
    queued: usize,
}

impl<Q: RunQueue> Queues<Q> {
    pub(crate) fn shared(cpus: usize, hz: i64, tasks: &[Attributes], queue: Q) -> Self {
        Self::new(cpus, hz, tasks, vec![queue])
    }

    /// Creates a scheduler with one queue per CPU. An idle CPU pulls tasks from the longest queue.
    pub(crate) fn per_cpu(
        cpus: usize,
        hz: i64,
        tasks: &[Attributes],
        queue: impl Fn() -> Q,
    ) -> Self {
        Self::new(cpus, hz, tasks, (0..cpus).map(|_| queue()).collect())
    }

    fn new(cpus: usize, hz: i64, tasks: &[Attributes], queues: Vec<Q>) -> Self {
        Self {
            urgent: queues.iter().map(|_| RealTime::default()).collect(),
            urgency: tasks.iter().map(|task| Urgency::new(task, hz)).collect(),
            hz,
            tasks: tasks.iter().map(|task| queues[0].entity(task)).collect(),
            pinned: tasks.iter().map(|task| task.cpu).collect(),
            home: vec![0; tasks.len()],
            lines: queues,
            cpus,
            movable: 0,
            queued: 0,
        }
    }

    fn queue_of(&self, cpu: usize) -> usize {
        if self.lines.len() == 1 { 0 } else { cpu }
    }

    fn put(&mut self, queue: usize, task: TaskId, why: Arrival) {
        self.queued += 1;
        self.movable += usize::from(self.pinned[task.index()].is_none());
        let urgency = &mut self.urgency[task.index()];
        if urgency.is_urgent() {
            let preempted = why == Arrival::Preempted;
            self.urgent[queue].put(task, urgency, preempted, self.hz);
        } else {
            self.lines[queue].put(&mut self.tasks, task, why);
        }
    }

    fn take(&mut self, queue: usize, cpu: usize, prev: Option<TaskId>) -> Option<TaskId> {
        let mut task = None;
        if self.urgent[queue].len() > 0 {
            let pinned = &self.pinned;
            task = self.urgent[queue].take(&|task| pinned[task.index()].is_none_or(|to| to == cpu));
        }
        let prev = prev.filter(|&prev| !self.is_urgent(prev));
        let task = task.or_else(|| self.lines[queue].take(&mut self.tasks, cpu, prev))?;
        self.queued -= 1;
        self.movable -= usize::from(self.pinned[task.index()].is_none());
        Some(task)
    }

    fn is_urgent(&self, task: TaskId) -> bool {
        self.urgency[task.index()].is_urgent()
    }

    fn waiting(&self, queue: usize) -> usize {
        self.lines[queue].len() + self.urgent[queue].len()
    }

    /// Removes a task from the longest other queue, so that the idle CPU that owns `queue` can run
    /// it; `None` if no task can be pulled.
    fn pull(&mut self, queue: usize) -> Option<TaskId> {
        if self.movable == 0 || self.lines.len() == 1 {
            return None;
        }
        let mut others: Vec<usize> = (0..self.lines.len())
            .filter(|&other| other != queue && self.waiting(other) > 0)
            .collect();
        others.sort_by_key(|&other| std::cmp::Reverse(self.waiting(other)));
        let pinned = &self.pinned;
        let movable = |task: TaskId| pinned[task.index()].is_none();
        let (from, task) = others.into_iter().find_map(|other| {
            let urgent = self.urgent[other].take(&movable);
            let task = urgent.or_else(|| self.lines[other].steal(&mut self.tasks, &movable))?;
            Some((other, task))
        })?;
        self.queued -= 1;
        self.movable -= 1;
        self.rehome(task, from, queue);
        self.put(queue, task, Arrival::Moved);
        self.take(queue, queue, None)
    }

    fn rehome(&mut self, task: TaskId, from: usize, to: usize) {
        if from != to {
            self.lines[from].detach(&mut self.tasks, task);
            self.lines[to].attach(&mut self.tasks, task);
            self.home[task.index()] = to;
        }
    }
}

impl<Q: RunQueue> Scheduler for Queues<Q> {
    fn place(&self, task: TaskId, last: usize, running: &dyn Fn(usize) -> Option<TaskId>) -> usize {
        if let Some(cpu) = self.pinned[task.index()] {
            return cpu;
        }
        let idle = |cpu: usize| running(cpu).is_none() && self.waiting(self.queue_of(cpu)) == 0;
        if idle(last) {
            return last;
        }
        (0..self.cpus).find(|&cpu| idle(cpu)).unwrap_or(last)
    }

    fn wake(&mut self, cpu: usize, task: TaskId, slept: Nanos) {
        let queue = self.queue_of(cpu);
        self.rehome(task, self.home[task.index()], queue);
        self.put(queue, task, Arrival::Woken(slept));
    }

    fn switch(
        &mut self,
        cpu: usize,
        prev: Option<TaskId>,
        back: Option<Arrival>,
    ) -> Option<TaskId> {
        let queue = self.queue_of(cpu);
        if let Some(task) = prev {
            match back {
                Some(why) => self.put(queue, task, why),
                None if self.is_urgent(task) => {}
                None => self.lines[queue].leave(&mut self.tasks, task),
            }
        }
        self.take(queue, cpu, prev).or_else(|| self.pull(queue))
    }

    fn charge(&mut self, cpu: usize, task: TaskId, ran: Nanos) {
        let queue = self.queue_of(cpu);
        if !self.is_urgent(task) {
            self.lines[queue].charge(&mut self.tasks, task, ran);
        }
    }

    fn tick(&mut self, cpu: usize, task: TaskId) -> bool {
        let queue = self.queue_of(cpu);
        if self.is_urgent(task) {
            self.urgency[task.index()].tick()
        } else {
            self.lines[queue].tick(&mut self.tasks, task)
        }
    }

    fn quiet_ticks(&self, cpu: usize, task: TaskId) -> i64 {
        if self.is_urgent(task) {
            self.urgency[task.index()].quiet_ticks()
        } else {
            self.lines[self.queue_of(cpu)].quiet_ticks(&self.tasks, task)
        }
    }

    fn pass(&mut self, cpu: usize, task: TaskId, ticks: i64) {
        let queue = self.queue_of(cpu);
        if self.is_urgent(task) {
            self.urgency[task.index()].pass(ticks);
        } else {
            self.lines[queue].pass(&mut self.tasks, task, ticks);
        }
    }

    fn preempts(&self, cpu: usize, running: TaskId, woken: TaskId) -> bool {
        let priority = |task: TaskId| self.urgency[task.index()].priority;
        match priority(running).max(priority(woken)) {
            0 => self.lines[self.queue_of(cpu)].preempts(&self.tasks, running, woken),
            max => max > priority(running),
        }
    }

    fn alarm(&self, cpu: usize, task: TaskId) -> Option<Nanos> {
        if self.is_urgent(task) {
            return None;
        }
        self.lines[self.queue_of(cpu)].alarm(&self.tasks, task)
    }

    fn queued(&self, cpu: usize) -> usize {
        self.waiting(self.queue_of(cpu))
    }
}
