//! Determines what a thread did between two runs, from its wake-ups and from its CPU's activity in
//! between.

use ticktax_model::recording::Header;
use ticktax_model::victim::{MOVED, OffCpuReason};
use ticktax_model::{Cpu, Nanos, SourceId, Span};

use crate::waits::exceeds_part;

/// Longest idle time that can be part of a wait for a CPU. Waking a CPU, or moving the thread to
/// it, takes no longer.
const MAX_IDLE: Nanos = Nanos::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuRun {
    pub(super) start: Nanos,
    pub(super) end: Nanos,
    pub(super) cpu: Cpu,
}

/// An interval during which a thread was off its CPU for a single reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) start: Nanos,
    pub(super) end: Nanos,
    pub(super) reason: OffCpuReason,
    /// Whether the thread resumed on another CPU.
    pub(super) moved: bool,
    /// CPU of the run that follows the gap.
    pub(super) cpu: Cpu,
    /// Start of the run that follows the gap.
    pub(super) until: Nanos,
}

impl Gap {
    /// Returns the detail of the gap's source, in the format that the tracer uses.
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
            // In a wait row, the self time is the throttled part. Here, that part is unknown, which
            // a self time equal to the length indicates.
            self_time: dur,
            source,
        }
    }
}

/// Machine-wide activity, which decides whether a wait without a wake-up is believed.
#[derive(Debug)]
pub(super) struct Machine {
    /// Whether no event was lost and every CPU was watched. If so, a thread without a wake-up event
    /// was not woken.
    is_complete: bool,
    /// Long idle periods in order, indexed by CPU number.
    idle: Vec<Vec<(Nanos, Nanos)>>,
    /// Periods during which any CPU ran a thread whose switch event is missing. They are in order,
    /// and overlapping ones are merged.
    unreported: Vec<(Nanos, Nanos)>,
}

impl Machine {
    pub(super) fn new(header: &Header) -> Self {
        let online = header.machine.online.iter().count();
        Self {
            is_complete: header.coverage.events_lost() == 0 && online <= header.cpus.len(),
            idle: Vec::new(),
            unreported: Vec::new(),
        }
    }

    /// Adds an idle period. Periods of up to [`MAX_IDLE`] are ignored, even if a wait contains
    /// several, because the CPU was busy in between.
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

    /// Sorts the periods. Must be called after the last row.
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

    /// Determines why a thread was off its CPU before its first run and between its `runs`. Runs
    /// and wake-ups must be in order. For a real-time thread, idle time does not disprove a wait,
    /// because the kernel can keep such a thread from running even if the CPU is idle.
    pub(super) fn gaps(&self, runs: &[CpuRun], wakes: &[Nanos], is_real_time: bool) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut before: Option<CpuRun> = None;
        for run in runs {
            let left = before.map(|run| run.end);
            // Overlapping runs have no gap between them. Either a row is damaged, or the thread id
            // was reused.
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
        before: Option<CpuRun>,
        run: CpuRun,
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
                // A waiting thread cannot be woken again, so it must have run in between.
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

    /// Returns whether a thread that was not woken between two runs waited for a CPU all that time.
    fn is_preempted(&self, before: CpuRun, run: CpuRun, is_real_time: bool) -> bool {
        let (from, to) = (before.end, run.start);
        let was_busy = |cpu: Cpu| !overlaps(self.idle_of(cpu), from, to, MAX_IDLE);
        self.is_complete
            && !exceeds_part(common(&self.unreported, from, to), to - from)
            && (is_real_time || was_busy(before.cpu) || was_busy(run.cpu))
    }

    fn idle_of(&self, cpu: Cpu) -> &[(Nanos, Nanos)] {
        self.idle.get(cpu.index()).map_or(&[], |idle| idle)
    }
}

/// Returns whether one of `intervals` shares more than `least` with `from..to`. Intervals must be
/// in order and disjoint.
fn overlaps(intervals: &[(Nanos, Nanos)], from: Nanos, to: Nanos, least: Nanos) -> bool {
    common(intervals, from, to).any(|shared| shared > least)
}

/// Returns the time that each of `intervals` shares with `from..to`, if they overlap. Intervals
/// must be in order and disjoint.
fn common(
    intervals: &[(Nanos, Nanos)],
    from: Nanos,
    to: Nanos,
) -> impl Iterator<Item = Nanos> + '_ {
    let first = intervals.partition_point(|&(_, end)| end <= from);
    let overlapping = intervals[first..].iter();
    overlapping
        .take_while(move |&&(start, _)| start < to)
        .map(move |&(start, end)| end.min(to) - start.max(from))
}
