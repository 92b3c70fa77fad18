//! Determines what a thread did between two runs, from its wake-ups and from what its CPU did in
//! the meantime.

use ticktax_model::recording::Header;
use ticktax_model::victim::{MOVED, OffCpuReason};
use ticktax_model::{Cpu, Nanos, SourceId, Span};

/// Maximum idle time within a wait for a CPU: waking a CPU, or moving the thread to it, does not
/// take longer.
const MAX_IDLE: Nanos = Nanos::from_millis(1);

/// An on-CPU period of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: Nanos,
    pub(super) end: Nanos,
    pub(super) cpu: Cpu,
}

/// A period that a thread was off its CPU for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) start: Nanos,
    pub(super) end: Nanos,
    pub(super) reason: OffCpuReason,
    /// Whether the thread continued on another CPU.
    pub(super) moved: bool,
    /// The CPU of the run that follows.
    pub(super) cpu: Cpu,
    /// Start of that run.
    pub(super) until: Nanos,
}

impl Gap {
    /// The detail of the gap's source, in the form that the tracer writes.
    pub(super) fn detail(&self) -> String {
        let moved = if self.moved { MOVED } else { "" };
        format!("{}{moved}", self.reason.name())
    }

    pub(super) fn span(&self, source: SourceId) -> Span {
        let dur = self.end - self.start;
        Span {
            cpu: self.cpu,
            start: self.start,
            dur,
            // The self time of a wait is its throttled part, which is unknown here.
            self_time: dur,
            source,
        }
    }
}

/// Machine-wide activity that decides whether a wait without a wake-up is believed.
#[derive(Debug)]
pub(super) struct Machine {
    /// Whether no event was lost and every CPU was watched. If so, a thread without a wake-up was
    /// not woken.
    is_complete: bool,
    /// Long idle periods of each CPU, in order.
    idle: Vec<Vec<(Nanos, Nanos)>>,
    /// Periods in which a thread whose switch event is missing ran on any CPU. They are in order,
    /// and overlaps are merged.
    unreported: Vec<(Nanos, Nanos)>,
}

impl Machine {
    pub(super) fn new(header: &Header) -> Self {
        let online = header.machine.online.iter().count();
        Self {
            is_complete: header.coverage.events_lost() == 0 && online <= header.books.len(),
            idle: Vec::new(),
            unreported: Vec::new(),
        }
    }

    /// Adds an idle period. Periods shorter than [`MAX_IDLE`] do not matter, even if there are
    /// several in a wait, because the CPU was busy in between.
    pub(super) fn idled(&mut self, span: &Span) {
        if span.dur <= MAX_IDLE {
            return;
        }
        let slot = span.cpu.index();
        if slot >= self.idle.len() {
            self.idle.resize_with(slot + 1, Vec::new);
        }
        self.idle[slot].push((span.start, span.end()));
    }

    pub(super) fn ran_unreported(&mut self, span: &Span) {
        self.unreported.push((span.start, span.end()));
    }

    /// Sorts the periods. Call it after the last row.
    pub(super) fn settle(&mut self) {
        for of_cpu in &mut self.idle {
            of_cpu.sort_unstable();
        }
        self.unreported.sort_unstable();
        self.unreported.dedup_by(|next, last| {
            let overlaps = next.0 <= last.1;
            if overlaps {
                last.1 = last.1.max(next.1);
            }
            overlaps
        });
    }

    /// Determines why a thread was off its CPU before and between its `runs`. Both lists must be in
    /// order. For a real-time thread, idle time does not disprove a wait, because the kernel can
    /// keep such a thread from running even on an idle CPU.
    pub(super) fn gaps(&self, runs: &[Run], wakes: &[Nanos], is_real_time: bool) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut before: Option<Run> = None;
        for run in runs {
            let left = before.map(|run| run.end);
            // If a row overlaps another, it is damaged, or its thread id was reused.
            if left.is_none_or(|left| left < run.start) {
                self.gap(&mut gaps, before, *run, wakes, is_real_time);
            }
            before = Some(*run);
        }
        gaps
    }

    fn gap(
        &self,
        gaps: &mut Vec<Gap>,
        before: Option<Run>,
        run: Run,
        wakes: &[Nanos],
        is_real_time: bool,
    ) {
        let moved = before.is_some_and(|before| before.cpu != run.cpu);
        let mut add = |start: Nanos, end: Nanos, reason: OffCpuReason| {
            let runnable = matches!(reason, OffCpuReason::Woken | OffCpuReason::Preempted);
            if start < end {
                gaps.push(Gap {
                    start,
                    end,
                    reason,
                    moved: moved && runnable,
                    cpu: run.cpu,
                    until: run.start,
                });
            }
        };
        let first = before.map_or(0, |before| wakes.partition_point(|&at| at <= before.end));
        let past = wakes.partition_point(|&at| at <= run.start);
        let wakes = &wakes[first.min(past)..past];
        match (before, wakes.first().zip(wakes.last())) {
            (Some(before), Some((&first, &last))) => {
                add(before.end, first, OffCpuReason::Sleeping);
                // A waiting thread is not woken again, so it ran in between.
                add(first, last, OffCpuReason::Missed);
                add(last, run.start, OffCpuReason::Woken);
            }
            (None, Some((_, &last))) => add(last, run.start, OffCpuReason::Woken),
            (Some(before), None) => {
                let reason = if self.is_preempted(before, run, is_real_time) {
                    OffCpuReason::Preempted
                } else {
                    OffCpuReason::Missed
                };
                add(before.end, run.start, reason);
            }
            (None, None) => {}
        }
    }

    /// Whether a thread without a wake-up between two runs waited for a CPU throughout.
    fn is_preempted(&self, before: Run, run: Run, is_real_time: bool) -> bool {
        let (from, to) = (before.end, run.start);
        let was_busy = |cpu: Cpu| !overlaps(self.idle_of(cpu), from, to, MAX_IDLE);
        self.is_complete
            && !overlaps(&self.unreported, from, to, Nanos::ZERO)
            && (is_real_time || was_busy(before.cpu) || was_busy(run.cpu))
    }

    fn idle_of(&self, cpu: Cpu) -> &[(Nanos, Nanos)] {
        self.idle.get(cpu.index()).map_or(&[], |idle| idle)
    }
}

/// Whether one of `intervals` has more than `least` in common with `from..to`. Intervals must be in
/// order and disjoint.
fn overlaps(intervals: &[(Nanos, Nanos)], from: Nanos, to: Nanos, least: Nanos) -> bool {
    let first = intervals.partition_point(|&(_, end)| end <= from);
    let mut common = intervals[first..].iter();
    common
        .by_ref()
        .take_while(|&&(start, _)| start < to)
        .any(|&(start, end)| end.min(to) - start.max(from) > least)
}
