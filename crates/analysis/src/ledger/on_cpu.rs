//! CPU time and number of on-CPU periods of each process, computed from its rows.

use std::collections::BTreeMap;

use ticktax_model::recording::Sum;
use ticktax_model::{Nanos, SourceId, SourceTable, Span};

use crate::ran::Ran;

/// On-CPU time of each source, computed from the lengths of its rows, which include interruptions.
/// The scheduler cannot count more than this: even a kernel without interrupt accounting only
/// charges interrupts to the thread.
#[derive(Debug, Default)]
pub(super) struct OnCpuTimes {
    by_source: Vec<Times>,
    /// Time in interrupts recorded only as sums. They can have interrupted any thread.
    summed_interrupts: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    time: Nanos,
    /// Upper bound on the number of switches to the thread.
    runs: u64,
}

impl OnCpuTimes {
    /// Adds a thread's row. `continues` is true if the thread was already running before the row.
    #[inline]
    pub(super) fn add(&mut self, span: &Span, continues: bool) {
        self.note(span.source, span.dur, u64::from(!continues));
    }

    /// Adds the sum of a thread's rows over a window. A sum contains only the rows' self time.
    pub(super) fn add_sum(&mut self, sum: &Sum) {
        self.note(sum.span.source, sum.span.self_time, sum.count);
    }

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

    /// Returns an upper bound on the time missing from the processes' totals.
    pub(super) fn shortfall(&self) -> Nanos {
        self.summed_interrupts
    }

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

/// Totals over a process's rows.
#[derive(Debug, Default)]
pub(super) struct ProcessRows {
    /// Time that the process's threads spent on a CPU.
    pub(super) time: Nanos,
    /// Upper bound on the number of switches to the process's threads.
    pub(super) runs: u64,
    /// IDs of the threads that have at least one row, sorted.
    pub(super) threads: Vec<i32>,
}
