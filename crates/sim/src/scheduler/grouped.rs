//! EEVDF with groups (`CONFIG_FAIR_GROUP_SCHED`). A CPU's queue contains tasks and groups, and each
//! group has its own queue on each CPU. The only groups are those that the kernel creates for
//! sessions (`CONFIG_SCHED_AUTOGROUP`, `kernel/sched/autogroup.c`). Control groups are not
//! modelled.
//!
//! A group's weight is divided among the CPUs in proportion to the weight of its runnable tasks on
//! each CPU (`calc_group_shares`). The kernel uses averages over about 32 ms, whereas this model
//! uses the current weights.

use ticktax_model::Nanos;
use ticktax_model::autogroup::Autogroup;

use super::eevdf::{Eevdf, Request};
use super::weights::weight;
use super::{Arrival, RunQueue};
use crate::task::{Attributes, TaskId};

/// A group's minimum weight on a CPU (`MIN_SHARES`).
const MIN: i64 = 2;

/// The indexes of the groups' entities. Each group has one entity per CPU. The entities are
/// numbered after the tasks.
#[derive(Clone, Debug)]
pub(super) struct Places {
    tasks: usize,
    cpus: usize,
    groups: Vec<Autogroup>,
}

impl Places {
    pub(super) fn new(tasks: &[Attributes], cpus: usize) -> Self {
        let mut groups: Vec<Autogroup> = Vec::new();
        for group in tasks.iter().filter_map(|task| task.autogroup) {
            if groups.iter().all(|known| known.number != group.number) {
                groups.push(group);
            }
        }
        Self {
            tasks: tasks.len(),
            cpus,
            groups,
        }
    }

    /// Returns the attributes of the tasks, followed by those of each group's entity on each CPU.
    pub(super) fn with_groups(&self, tasks: &[Attributes]) -> Vec<Attributes> {
        let entities = self.groups.len() * self.cpus;
        let groups = std::iter::repeat_n(Attributes::default(), entities);
        tasks.iter().copied().chain(groups).collect()
    }

    fn entity(&self, group: usize, cpu: usize) -> TaskId {
        let place = self.tasks + group * self.cpus + cpu;
        TaskId(u32::try_from(place).unwrap_or(u32::MAX))
    }

    fn group_of(&self, tasks: &[Request], task: TaskId) -> Option<usize> {
        let number = tasks[task.index()].autogroup?.number;
        self.groups.iter().position(|group| group.number == number)
    }
}

/// The run queue of one CPU.
#[derive(Debug)]
pub(super) struct Grouped {
    places: Places,
    cpu: usize,
    /// Queue of the groups, and of tasks that do not belong to a group.
    root: Eevdf,
    inner: Vec<Eevdf>,
}

impl Grouped {
    pub(super) fn new(places: Places, cpu: usize, queue: impl Fn() -> Eevdf) -> Self {
        Self {
            inner: places.groups.iter().map(|_| queue()).collect(),
            root: queue(),
            places,
            cpu,
        }
    }

    /// Returns the entity that represents `task` in the CPU's top-level queue: that of the task's
    /// group, or the task itself if it has no group.
    fn outer(&self, tasks: &[Request], task: TaskId) -> TaskId {
        let group = self.places.group_of(tasks, task);
        group.map_or(task, |group| self.places.entity(group, self.cpu))
    }

    /// Recomputes the part of the group's weight that applies on this CPU.
    fn share(&self, tasks: &mut [Request], group: usize) {
        let entity = self.places.entity(group, self.cpu);
        let inside = |cpu| tasks[self.places.entity(group, cpu).index()].inside;
        let all: i64 = (0..self.places.cpus).map(inside).sum();
        let here = inside(self.cpu);
        if here > 0 {
            let group_weight = weight(self.places.groups[group].nice);
            let share = (group_weight * here / all).max(MIN);
            self.root.reweight(tasks, entity, share);
        }
    }

    /// Adds `weight`, which may be negative, to the total weight of the group's runnable tasks on
    /// this CPU.
    fn add(&self, tasks: &mut [Request], group: usize, weight: i64) {
        let entity = self.places.entity(group, self.cpu);
        tasks[entity.index()].inside += weight;
    }
}

impl RunQueue for Grouped {
    type Entity = Request;

    fn entity(&self, attributes: &Attributes) -> Request {
        self.root.entity(attributes)
    }

    fn put(&mut self, tasks: &mut [Request], task: TaskId, why: Arrival) {
        let Some(group) = self.places.group_of(tasks, task) else {
            return self.root.put(tasks, task, why);
        };
        let ran = self.inner[group].holds(task);
        self.inner[group].put(tasks, task, why);
        let entity = self.places.entity(group, self.cpu);
        if ran {
            self.root.put(tasks, entity, Arrival::Preempted);
        } else {
            let weight = tasks[task.index()].weight();
            self.add(tasks, group, weight);
            if !self.root.holds(entity) {
                self.root.put(tasks, entity, why);
            }
        }
        self.share(tasks, group);
    }

    fn take(&mut self, tasks: &mut [Request], cpu: usize, prev: Option<TaskId>) -> Option<TaskId> {
        let outer = prev.map(|prev| self.outer(tasks, prev));
        let entity = self.root.take(tasks, cpu, outer)?;
        match entity.index().checked_sub(self.places.tasks) {
            None => Some(entity),
            Some(place) => self.inner[place / self.places.cpus].take(tasks, cpu, prev),
        }
    }

    fn leave(&mut self, tasks: &mut [Request], task: TaskId) {
        let Some(group) = self.places.group_of(tasks, task) else {
            return self.root.leave(tasks, task);
        };
        self.inner[group].leave(tasks, task);
        let weight = tasks[task.index()].weight();
        self.add(tasks, group, -weight);
        let entity = self.places.entity(group, self.cpu);
        if self.inner[group].is_empty() {
            self.root.leave(tasks, entity);
        } else {
            self.root.put(tasks, entity, Arrival::Preempted);
            self.share(tasks, group);
        }
    }

    fn steal(&mut self, tasks: &mut [Request], movable: &dyn Fn(TaskId) -> bool) -> Option<TaskId> {
        let is_task = |task: TaskId| task.index() < self.places.tasks && movable(task);
        if let Some(task) = self.root.steal(tasks, &is_task) {
            return Some(task);
        }
        for group in 0..self.inner.len() {
            let Some(task) = self.inner[group].steal(tasks, movable) else {
                continue;
            };
            let weight = tasks[task.index()].weight();
            self.add(tasks, group, -weight);
            if self.inner[group].is_empty() && !self.inner[group].is_running() {
                let entity = self.places.entity(group, self.cpu);
                self.root.remove(tasks, entity);
            }
            return Some(task);
        }
        None
    }

    fn len(&self) -> usize {
        let waiting: usize = self.inner.iter().map(RunQueue::len).sum();
        waiting + self.root.tasks_below(self.places.tasks)
    }

    fn charge(&mut self, tasks: &mut [Request], task: TaskId, ran: Nanos) {
        let outer = self.outer(tasks, task);
        self.root.charge(tasks, outer, ran);
        if outer != task {
            self.root.charge(tasks, task, ran);
        }
    }

    fn tick(&mut self, tasks: &mut [Request], task: TaskId) -> bool {
        let Some(group) = self.places.group_of(tasks, task) else {
            return self.root.tick(tasks, task);
        };
        let inside = self.inner[group].tick(tasks, task);
        let entity = self.places.entity(group, self.cpu);
        let outside = self.root.tick(tasks, entity);
        self.share(tasks, group);
        inside || outside
    }

    fn preempts(&self, tasks: &[Request], running: TaskId, woken: TaskId) -> bool {
        let (a, b) = (self.outer(tasks, running), self.outer(tasks, woken));
        match self.places.group_of(tasks, running) {
            Some(group) if a == b => self.inner[group].preempts(tasks, running, woken),
            _ => self.root.preempts(tasks, a, b),
        }
    }

    fn alarm(&self, tasks: &[Request], task: TaskId) -> Option<Nanos> {
        let outer = self.root.alarm(tasks, self.outer(tasks, task));
        let group = self.places.group_of(tasks, task);
        let inner = group.and_then(|group| self.inner[group].alarm(tasks, task));
        outer.into_iter().chain(inner).min()
    }

    fn detach(&mut self, tasks: &mut [Request], task: TaskId) {
        self.root.detach(tasks, task);
    }
}
