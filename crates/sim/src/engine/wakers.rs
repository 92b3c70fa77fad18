//! Emits edges, which record what woke a task or raised a softirq, in the form in which a kernel
//! reports them to a tracer.

use std::sync::Arc;

use ticktax_model::recording::Effect;

use super::{Engine, Work};
use crate::task::TaskId;

/// The cause of a task's wake-up.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waker {
    /// The task is new, or was unthrottled. The kernel reports no wake-up for it.
    Unknown,
    /// An external event that interrupts the CPU with this index.
    Outside(usize),
    /// A handler running on the CPU with this index.
    Handler(usize, Work),
    /// A task running on the CPU with this index.
    Task(usize, TaskId),
}

impl Engine<'_> {
    /// Emits an edge for the wake-up of `task`.
    pub(super) fn emit_waking(&mut self, waker: Waker, task: TaskId) {
        let now = self.now;
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let (cpu, source) = match waker {
            Waker::Unknown => return,
            Waker::Outside(cpu) => (cpu, recorder.ids.idle),
            Waker::Handler(cpu, work) => (cpu, recorder.ids.of_work(work)),
            Waker::Task(cpu, task) => (cpu, recorder.ids.tasks[task.index()]),
        };
        if let Some(tid) = recorder.tid(task) {
            recorder.edge(cpu, now, source, Effect::Woke(tid));
        }
    }

    /// Emits an edge that records that the handler of interrupt `source` raised the source's
    /// softirq.
    pub(super) fn emit_raising(&mut self, cpu: usize, source: usize) {
        let now = self.now;
        if let Some(recorder) = &mut self.recorder {
            let softirq: Arc<str> = recorder.softirq_name(source);
            let by = recorder.ids.irqs[source];
            recorder.edge(cpu, now, by, Effect::Raised(softirq));
        }
    }
}
