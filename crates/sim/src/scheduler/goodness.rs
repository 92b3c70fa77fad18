//! Linux 2.4: the runnable task with the highest `goodness()` runs (`kernel/sched.c`, 2.4.4 to
//! 2.4.20).
//!
//! Each task has a counter of remaining ticks. A tick decrements the running task's counter, and at
//! 0 the task must yield. When the counters of all runnable tasks are 0, every task on the machine,
//! including sleeping ones, gets `counter / 2 + slice`. Counters therefore stay below twice the
//! slice.
//!
//! If all else is equal, the task with the largest counter runs. If two CPU hogs compete, the one
//! that was running at the last tick thus has the smaller counter. Whenever a third task runs in
//! between, the hogs therefore alternate at every tick.
//!
//! The `slices` option implements a proposal made on the kernel mailing list in November 2001. It
//! collects ticks in `timer_ticks` and subtracts them from the counter at the end of the slice, so
//! that an interrupted hog keeps its goodness.

use super::{Arrival, RunQueue};
use crate::task::{Attributes, TaskId};

/// Bonus for staying on the same CPU (`PROC_CHANGE_PENALTY` on i386).
const SAME_CPU: i64 = 15;

/// The state that the scheduler keeps for a task.
#[derive(Clone, Debug)]
pub struct Merit {
    nice: i64,
    mm: u32,
    pinned: Option<usize>,
    /// Number of ticks that the task may still run: at least 0, and less than twice the slice.
    counter: i64,
    /// Number of ticks of the current slice used so far. Always 0 without the `slices` option.
    timer_ticks: i64,
    processor: usize,
    has_cpu: bool,
    yielded: bool,
}

/// A run queue with all runnable tasks, including running ones, in the order of the kernel's list.
#[derive(Debug)]
pub struct Goodness {
    hz: i64,
    smp: bool,
    slices: bool,
    list: Vec<TaskId>,
    running: usize,
    /// Memory map of the task that ran last (`prev->active_mm`).
    last_mm: u32,
}

/// Returns the length of the slice at `nice` (-20 to 19), in ticks (`NICE_TO_TICKS`). At nice 0, it
/// takes 60 ms at 100 Hz and 40 ms at 1024 Hz.
pub fn nice_to_ticks(nice: i64, hz: i64) -> i64 {
    let priority = 20 - nice;
    let scaled = match hz {
        ..200 => priority >> 2,
        200..400 => priority >> 1,
        400..800 => priority,
        800..1600 => priority << 1,
        _ => priority << 2,
    };
    scaled + 1
}

impl Goodness {
    /// Creates an empty queue. `slices` enables the `timer_ticks` proposal from 2001.
    pub fn new(hz: i64, smp: bool, slices: bool) -> Self {
        Self {
            hz,
            smp,
            slices,
            list: Vec::new(),
            running: 0,
            last_mm: 0,
        }
    }

    /// Returns the goodness of `task` on `cpu`. `mm` is the memory map of the task that ran there
    /// before.
    fn goodness(&self, task: &Merit, cpu: usize, mm: u32) -> i64 {
        if task.yielded {
            return -1;
        }
        if task.counter == 0 {
            return 0;
        }
        let here = i64::from(self.smp && task.processor == cpu) * SAME_CPU;
        task.counter + here + i64::from(task.mm == mm) + 20 - task.nice
    }

    fn slice(&self, task: &Merit) -> i64 {
        nice_to_ticks(task.nice, self.hz)
    }
}

impl RunQueue for Goodness {
    type Entity = Merit;

    fn entity(&self, attributes: &Attributes) -> Merit {
        let nice = i64::from(attributes.nice);
        Merit {
            nice,
            mm: attributes.process,
            pinned: attributes.cpu,
            counter: nice_to_ticks(nice, self.hz),
            timer_ticks: 0,
            processor: 0,
            has_cpu: false,
            yielded: false,
        }
    }

    fn put(&mut self, tasks: &mut [Merit], task: TaskId, why: Arrival) {
        let notes = &mut tasks[task.index()];
        if notes.has_cpu {
            // The task is still in the list, so only change its flags.
            notes.has_cpu = false;
            self.running -= 1;
            notes.yielded = why == Arrival::Yielded;
        } else {
            self.list.insert(0, task);
        }
    }

    fn take(&mut self, tasks: &mut [Merit], cpu: usize, prev: Option<TaskId>) -> Option<TaskId> {
        if let Some(prev) = prev {
            self.last_mm = tasks[prev.index()].mm;
        }
        let best = loop {
            let mut best = None;
            let mut weight = -1000;
            // Consider the previous task first, so that it keeps running unless another task has a
            // higher goodness.
            let stays = prev.filter(|prev| self.list.contains(prev));
            for &task in stays.iter().chain(&self.list) {
                let notes = &tasks[task.index()];
                if notes.has_cpu || notes.pinned.is_some_and(|pinned| pinned != cpu) {
                    continue;
                }
                let goodness = self.goodness(notes, cpu, self.last_mm);
                if goodness > weight {
                    (best, weight) = (Some(task), goodness);
                }
            }
            if weight != 0 {
                break best?;
            }
            for notes in tasks.iter_mut() {
                notes.counter = (notes.counter >> 1) + nice_to_ticks(notes.nice, self.hz);
            }
        };
        if let Some(prev) = prev {
            tasks[prev.index()].yielded = false;
        }
        let notes = &mut tasks[best.index()];
        notes.has_cpu = true;
        notes.processor = cpu;
        notes.yielded = false;
        self.running += 1;
        Some(best)
    }

    fn leave(&mut self, tasks: &mut [Merit], task: TaskId) {
        let notes = &mut tasks[task.index()];
        notes.has_cpu = false;
        notes.counter -= notes.timer_ticks;
        notes.timer_ticks = 0;
        self.running -= 1;
        self.list.retain(|&other| other != task);
    }

    fn steal(&mut self, tasks: &mut [Merit], movable: &dyn Fn(TaskId) -> bool) -> Option<TaskId> {
        let free = |task: &TaskId| !tasks[task.index()].has_cpu && movable(*task);
        let place = self.list.iter().position(free)?;
        Some(self.list.remove(place))
    }

    fn len(&self) -> usize {
        self.list.len() - self.running
    }

    fn tick(&mut self, tasks: &mut [Merit], task: TaskId) -> bool {
        let notes = &mut tasks[task.index()];
        if self.slices {
            notes.timer_ticks += 1;
            if notes.timer_ticks < notes.counter {
                return false;
            }
            notes.timer_ticks = 0;
            notes.counter = 0;
            return true;
        }
        notes.counter = (notes.counter - 1).max(0);
        debug_assert!(notes.counter <= 2 * self.slice(&tasks[task.index()]));
        tasks[task.index()].counter == 0
    }

    fn quiet_ticks(&self, tasks: &[Merit], task: TaskId) -> i64 {
        let notes = &tasks[task.index()];
        (notes.counter - notes.timer_ticks - 1).max(0)
    }

    fn pass(&mut self, tasks: &mut [Merit], task: TaskId, ticks: i64) {
        let notes = &mut tasks[task.index()];
        if self.slices {
            notes.timer_ticks += ticks;
        } else {
            notes.counter -= ticks;
        }
    }

    fn preempts(&self, tasks: &[Merit], running: TaskId, woken: TaskId) -> bool {
        let (running, woken) = (&tasks[running.index()], &tasks[woken.index()]);
        let goodness = |task| self.goodness(task, running.processor, running.mm);
        // This is the condition in `reschedule_idle`, which required a difference above 1 up to
        // 2.4.3.
        goodness(woken) - goodness(running) > 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Arrival, Attributes, Goodness, Merit, RunQueue, TaskId, nice_to_ticks};

    proptest! {
        #[test]
        fn counters_stay_within_two_slices(
            slices in any::<bool>(), nices in prop::collection::vec(-20_i8..20, 1..5),
            deeds in prop::collection::vec((0_u8..4, 0_usize..5), 1..400)
        ) {
            let mut queue = Goodness::new(100, false, slices);
            let mut tasks: Vec<Merit> = nices
                .iter()
                .map(|&nice| queue.entity(&Attributes { nice, ..Attributes::default() }))
                .collect();
            let mut running = None;
            for (event, which) in deeds {
                let task = TaskId(u32::try_from(which % nices.len()).unwrap());
                match (event, running) {
                    (0, _) if running != Some(task) && !queue.list.contains(&task) => {
                        queue.put(&mut tasks, task, Arrival::Woken(ticktax_model::Nanos(0)));
                    }
                    (1, Some(task)) => {
                        queue.tick(&mut tasks, task);
                    }
                    (2, Some(task)) => {
                        queue.leave(&mut tasks, task);
                        running = queue.take(&mut tasks, 0, Some(task));
                    }
                    (3, prev) => {
                        if let Some(prev) = prev {
                            queue.put(&mut tasks, prev, Arrival::Preempted);
                        }
                        running = queue.take(&mut tasks, 0, prev);
                    }
                    _ => {}
                }
                for merit in &tasks {
                    let max = 2 * nice_to_ticks(merit.nice, 100);
                    prop_assert!((0..=max).contains(&merit.counter), "{merit:?}");
                    prop_assert!((0..=max).contains(&merit.timer_ticks), "{merit:?}");
                }
            }
        }
    }

    #[test]
    fn slices_are_the_kernels() {
        assert_eq!(nice_to_ticks(0, 100), 6);
        assert_eq!(nice_to_ticks(0, 1024), 41);
        assert_eq!(nice_to_ticks(19, 100), 1);
        assert_eq!(nice_to_ticks(-20, 100), 11);
    }
}
