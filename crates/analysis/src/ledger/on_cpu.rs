//! For how long each process was on a CPU, by its rows.

use std::collections::BTreeMap;

use ticktax_model::recording::Sum;
use ticktax_model::{Nanos, SourceId, SourceTable, Span};

/// Rows' lengths with what interrupted them, as the scheduler counts at most: a kernel that keeps no
/// account of its interrupts charges them to the thread.
#[derive(Debug, Default)]
pub(super) struct OnCpuTimes {
    by_source: Vec<Nanos>,
    /// Interrupts that are summed. They may have interrupted any thread.
    summed_interrupts: Nanos,
}

impl OnCpuTimes {
    /// Takes a row of a thread.
    #[inline]
    pub(super) fn add(&mut self, span: &Span) {
        self.note(span.source, span.dur);
    }

    /// Takes a window's worth of such rows, of which only the own time is known.
    pub(super) fn add_sum(&mut self, sum: &Sum) {
        self.note(sum.span.source, sum.span.self_time);
    }

    /// Takes a window's worth of rows of what interrupts threads.
    pub(super) fn add_interrupts(&mut self, sum: &Sum) {
        self.summed_interrupts += sum.span.self_time;
    }

    #[inline]
    fn note(&mut self, source: SourceId, time: Nanos) {
        let index = source.0 as usize;
        if index >= self.by_source.len() {
            self.by_source.resize(index + 1, Nanos::ZERO);
        }
        self.by_source[index] += time;
    }

    /// By how much the times by process may fall short.
    pub(super) fn shortfall(&self) -> Nanos {
        self.summed_interrupts
    }

    /// By process: the time, and of how many threads.
    pub(super) fn by_process(&self, sources: &SourceTable) -> BTreeMap<i32, ProcessRows> {
        let mut processes: BTreeMap<i32, ProcessRows> = BTreeMap::new();
        for (id, source) in sources.iter() {
            let Some(thread) = &source.thread else {
                continue;
            };
            let Some(&time) = self.by_source.get(id.0 as usize) else {
                continue;
            };
            if time > Nanos::ZERO {
                let rows = processes.entry(thread.pid).or_default();
                rows.time += time;
                rows.threads.push(thread.tid);
            }
        }
        for rows in processes.values_mut() {
            rows.threads.sort_unstable();
            rows.threads.dedup();
        }
        processes
    }
}

/// What the rows say of one process.
#[derive(Debug, Default)]
pub(super) struct ProcessRows {
    /// For how long its threads were on CPUs.
    pub(super) time: Nanos,
    /// Which had a row, in order.
    pub(super) threads: Vec<i32>,
}
