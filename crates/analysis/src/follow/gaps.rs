//! What a thread did between two runs, from its wake-ups and from what its CPU did meanwhile.

use ticktax_model::recording::Header;
use ticktax_model::victim::{MOVED, OffCpuReason};
use ticktax_model::{Cpu, Nanos, SourceId, Span};

/// Longest idle time that a wait for a CPU may contain: it takes that long at most to wake a CPU,
/// or to move the thread to it.
const MAX_IDLE: Nanos = Nanos::from_millis(1);

/// A thread had a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: Nanos,
    pub(super) end: Nanos,
    pub(super) cpu: Cpu,
}

/// A thread was off its CPU, for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) start: Nanos,
    pub(super) end: Nanos,
    pub(super) reason: OffCpuReason,
    /// Whether the thread went on on another CPU.
    pub(super) moved: bool,
    /// The CPU of the run that follows.
    pub(super) cpu: Cpu,
    /// When that run began.
    pub(super) until: Nanos,
}

impl Gap {
    /// The detail of its source, as the tracer writes it.
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
            // The own time of a wait is its throttled part, which is not known.
            self_time: dur,
            source,
        }
    }
}

/// What the machine did that decides whether a wait without a wake-up is believed.
#[derive(Debug)]
pub(super) struct Machine {
    /// No event was lost, and every CPU was watched: a thread that has no wake-up was not woken.
    is_complete: bool,
    /// Long idle periods by CPU, in order.
    idle: Vec<Vec<(Nanos, Nanos)>>,
    /// Runs of threads whose switch events are missing, on any CPU, in order, overlaps merged.
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

    /// A CPU idled. Idle periods that are shorter than [`MAX_IDLE`] do not matter, even several in
    /// a wait: the CPU was busy in between.
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

    /// All rows have come.
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

    /// Why a thread was off its CPU, before and between its `runs`. Both lists are in order. The
    /// idle time of a CPU does not count against the waits of a real-time thread, which the kernel
    /// may keep from an idle CPU.
    pub(super) fn gaps(&self, runs: &[Run], wakes: &[Nanos], is_real_time: bool) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut before: Option<Run> = None;
        for run in runs {
            let left = before.map(|run| run.end);
            // A row that overlaps another is damaged, or its thread number was given to a new
            // thread.
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
                // A thread that waits is not woken again: it ran in between.
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

    /// Whether a thread without a wake-up between two runs waited for a CPU all the time.
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

/// Whether one of these intervals, which are in order and apart, has more than `least` in common
/// with `from..to`.
fn overlaps(intervals: &[(Nanos, Nanos)], from: Nanos, to: Nanos, least: Nanos) -> bool {
    let first = intervals.partition_point(|&(_, end)| end <= from);
    let mut common = intervals[first..].iter();
    common
        .by_ref()
        .take_while(|&&(start, _)| start < to)
        .any(|&(start, end)| end.min(to) - start.max(from) > least)
}
