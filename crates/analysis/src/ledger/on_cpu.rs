//! For how long, and how often, each process was on a CPU, by its rows.

use std::collections::BTreeMap;

use ticktax_model::recording::Sum;
use ticktax_model::{Nanos, SourceId, SourceTable, Span};

use crate::ran::Ran;

/// Rows' lengths with what interrupted them, as the scheduler counts at most: a kernel that keeps no
/// account of its interrupts charges them to the thread.
#[derive(Debug, Default)]
pub(super) struct OnCpuTimes {
    by_source: Vec<Times>,
    /// Interrupts that are summed. They may have interrupted any thread.
    summed_interrupts: Nanos,
}

/// What the rows of a source add up to.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    time: Nanos,
    /// How often a thread was switched to, at most.
    runs: u64,
}

impl OnCpuTimes {
    /// Takes a row of a thread, which was switched to as it began or goes on.
    #[inline]
    pub(super) fn add(&mut self, span: &Span, continues: bool) {
        self.note(span.source, span.dur, u64::from(!continues));
    }

    /// Takes a window's worth of such rows, of which only the own time is known.
    pub(super) fn add_sum(&mut self, sum: &Sum) {
        self.note(sum.span.source, sum.span.self_time, sum.count);
    }

    /// Takes a window's worth of rows of what interrupts threads.
    pub(super) fn add_interrupts(&mut self, sum: &Sum) {
        self.summed_interrupts += sum.span.self_time;
    }

    #[inline]
    fn note(&mut self, source: SourceId, time: Nanos, runs: u64) {
        let index = source.0 as usize;
        if index >= self.by_source.len() {
            self.by_source.resize(index + 1, Times::default());
        }
        self.by_source[index].time += time;
        self.by_source[index].runs += runs;
    }

    /// By how much the times by process may fall short.
    pub(super) fn shortfall(&self) -> Nanos {
        self.summed_interrupts
    }

    /// By thread.
    pub(super) fn by_thread(&self, sources: &SourceTable) -> Ran {
        let mut ran = Ran::default();
        for (id, source) in sources.iter() {
            let times = self.by_source.get(id.0 as usize);
            if let Some(times) = times.filter(|times| times.time > Nanos::ZERO) {
                ran.add(source, times.time);
            }
        }
        ran
    }

    /// By process.
    pub(super) fn by_process(&self, sources: &SourceTable) -> BTreeMap<i32, ProcessRows> {
        let mut processes: BTreeMap<i32, ProcessRows> = BTreeMap::new();
        for (id, source) in sources.iter() {
            let Some(thread) = &source.thread else {
                continue;
            };
            let Some(&Times { time, runs }) = self.by_source.get(id.0 as usize) else {
                continue;
            };
            if time > Nanos::ZERO {
                let rows = processes.entry(thread.pid).or_default();
                rows.time += time;
                rows.runs += runs;
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
    /// How often one of them was switched to, at most.
    pub(super) runs: u64,
    /// Which had a row, in order.
    pub(super) threads: Vec<i32>,
}
