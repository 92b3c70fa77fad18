//! Keeps the intervals in which something prevented a program's threads from running. They explain
//! late frames.

use std::collections::BTreeMap;

use ticktax_model::victim::{HoldUp, ThreadState};
use ticktax_model::{Cpu, Moment, Nanos, SourceId, Span};

use super::Outside;
use super::interruptions::Interruptions;
use crate::ledger::JudgedGap;
use crate::timeline::ThreadId;

/// An interval in which something prevented a thread from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) kind: HoldUp,
    /// Source that ran instead, if any.
    pub(crate) by: Option<SourceId>,
    /// Whether this is a wait that ended on another CPU.
    pub(crate) moved: bool,
    /// Time lost between `start` and `end`. `None` if that is all of the time.
    pub(crate) taken: Option<Nanos>,
    /// For a late timer, its CPU. For stolen time that the accounts contain as time in which the
    /// thread ran, the CPU on which it seemed to run.
    pub(crate) cpu: Option<Cpu>,
}

/// The losses of one process's threads, and the time that the hypervisor took from each CPU.
#[derive(Debug)]
pub(crate) struct Losses {
    pid: i32,
    threads: BTreeMap<i32, Vec<Loss>>,
    /// Stolen intervals, according to the rows.
    stolen: BTreeMap<Cpu, Vec<(Nanos, Nanos)>>,
    /// Empty gaps of the probe, which the hypervisor may have caused.
    empty: BTreeMap<Cpu, Vec<(Nanos, Nanos)>>,
    /// Total number of intervals kept.
    kept: usize,
    /// Earliest start of an interval that was dropped because there was no room. `None` if no
    /// interval was dropped.
    full_at: Option<Nanos>,
}

impl Losses {
    /// Maximum number of intervals kept, of 40 bytes each. Beyond that, the causes of late frames
    /// are unknown.
    const MAX: usize = 1 << 19;
    /// Minimum length of an interval that is kept. A shorter one does not make a frame late.
    const MIN: Nanos = Nanos::from_micros(10);
    /// Minimum length of a gap that the hypervisor may have caused. A shorter one may be kernel
    /// entry and exit.
    const MIN_GAP: Nanos = Nanos::from_micros(100);
    /// A gap is empty if at least this share of it has no named cause.
    const EMPTY: f64 = 0.9;

    pub(crate) fn new(pid: i32) -> Self {
        Self {
            pid,
            threads: BTreeMap::new(),
            stolen: BTreeMap::new(),
            empty: BTreeMap::new(),
            kept: 0,
            full_at: None,
        }
    }

    pub(super) fn is_of(&self, pid: i32) -> bool {
        self.pid == pid
    }

    /// Adds the losses in a thread's on-CPU period. These are its interruptions and, if the thread
    /// was handling a page fault or reclaiming memory, the period itself.
    pub(super) fn on_cpu(
        &mut self,
        thread: (i32, i32),
        span: &Span,
        state: ThreadState,
        interruptions: &Interruptions,
    ) {
        let kind = match state {
            ThreadState::PageFault => Some(HoldUp::PageFaults),
            ThreadState::Reclaim => Some(HoldUp::Reclaim),
            ThreadState::SystemCall => Some(HoldUp::SystemCall),
            _ => None,
        };
        if let Some(kind) = kind {
            let (start, end) = (span.start, span.end());
            let loss = Loss {
                start,
                end,
                kind,
                by: (kind == HoldUp::SystemCall).then_some(span.source),
                moved: false,
                taken: None,
                cpu: None,
            };
            self.add(thread, loss);
        }
        let windows = interruptions.windows().iter();
        for window in windows.filter(|window| window.time >= Self::MIN) {
            let loss = Loss {
                start: window.start,
                end: window.end,
                kind: HoldUp::Interrupts,
                by: Some(window.source),
                moved: false,
                taken: Some(window.time),
                cpu: None,
            };
            self.add(thread, loss);
        }
    }

    /// Adds an interval in which a thread waited for a CPU on which source `by` ran. `moved` is
    /// true if the thread then ran on another CPU.
    pub(super) fn waited(
        &mut self,
        thread: ThreadId,
        (start, end): (Nanos, Nanos),
        by: Option<SourceId>,
        moved: bool,
    ) {
        let loss = Loss {
            start,
            end,
            kind: HoldUp::Waiting,
            by,
            moved,
            taken: None,
            cpu: None,
        };
        self.add((thread.pid, thread.tid), loss);
    }

    /// Adds an interval in which a thread was blocked. `by` is the thread that it waited for, if it
    /// is known.
    pub(super) fn stalled(
        &mut self,
        thread: ThreadId,
        span: &Span,
        kind: HoldUp,
        by: Option<SourceId>,
    ) {
        let loss = Loss {
            start: span.start,
            end: span.end(),
            kind,
            by,
            moved: false,
            taken: None,
            cpu: (kind == HoldUp::LateTimer).then_some(span.cpu),
        };
        self.add((thread.pid, thread.tid), loss);
    }

    pub(super) fn stolen(&mut self, span: &Span) {
        if span.dur >= Self::MIN && self.reserve(span.start) {
            let stolen = self.stolen.entry(span.cpu).or_default();
            stolen.push((span.start, span.end()));
        }
    }

    /// Adds a probe's gap. If the gap is empty, the hypervisor may have caused it.
    pub(super) fn gap(&mut self, gap: &JudgedGap<'_>) {
        let span = &gap.span;
        let empty = gap.residual.share_of(span.dur) >= Self::EMPTY;
        if empty && span.dur >= Self::MIN_GAP && self.reserve(span.start) {
            let empty = self.empty.entry(span.cpu).or_default();
            empty.push((span.start, span.end()));
        }
    }

    pub(super) fn throttled(&mut self, thread: ThreadId, span: &Span) {
        let loss = Loss {
            start: span.start,
            end: span.end(),
            kind: HoldUp::Quota,
            by: None,
            moved: false,
            taken: None,
            cpu: None,
        };
        self.add((thread.pid, thread.tid), loss);
    }

    /// Adds a wait that was caused by a limit on real-time threads.
    pub(super) fn limited(&mut self, thread: ThreadId, span: &Span) {
        self.stalled(thread, span, HoldUp::RealTimeLimit, None);
    }

    fn add(&mut self, (pid, tid): (i32, i32), loss: Loss) {
        let counts = pid == self.pid && loss.end - loss.start >= Self::MIN;
        if counts && self.reserve(loss.start) {
            self.threads.entry(tid).or_default().push(loss);
        }
    }

    /// Reserves room for an interval that starts at `start`, and returns whether there was room. If
    /// there was none, notes that the interval is missing.
    fn reserve(&mut self, start: Nanos) -> bool {
        let has_room = self.kept < Self::MAX;
        if has_room {
            self.kept += 1;
        } else {
            let first = self.full_at.map_or(start, |at| at.min(start));
            self.full_at = Some(first);
        }
        has_room
    }

    pub(crate) fn full_at(&self) -> Option<Nanos> {
        self.full_at
    }

    /// Returns the losses of thread `tid`, sorted by start. They include the time that the
    /// hypervisor took, as far as `outside` and the rows show it.
    pub(crate) fn for_thread(&self, tid: i32, outside: &Outside) -> Vec<Loss> {
        let mut losses = self.threads.get(&tid).cloned().unwrap_or_default();
        if let Some(cpu) = outside.cpu {
            let on_cpu = |by_cpu: &BTreeMap<Cpu, Vec<(Nanos, Nanos)>>| {
                let times = by_cpu.get(&cpu).map_or(&[][..], |times| times);
                times.to_vec()
            };
            let mut times = on_cpu(&self.stolen);
            if let Some(unseen) = outside.unseen {
                let mut empty = on_cpu(&self.empty);
                // Assume the worst case: the unseen kernel entries caused the longest gaps.
                empty.sort_by_key(|&(start, end)| end - start);
                empty.truncate(empty.len().saturating_sub(unseen));
                times.append(&mut empty);
            }
            let times = times.into_iter();
            losses.extend(times.map(|(start, end)| stolen((start, end), None)));
        }
        let delayed_timer: Vec<Loss> = outside
            .stops
            .iter()
            .filter(|stop| losses.iter().any(|loss| is_timer_in(loss, stop)))
            .map(|stop| stolen((stop.at, stop.end()), None))
            .collect();
        losses.extend(delayed_timer);
        let running = outside.stops_while_running.iter();
        losses.extend(running.map(|stop| stolen((stop.at, stop.end()), Some(stop.cpu))));
        losses.sort_by_key(|loss| (loss.start, loss.end));
        losses
    }
}

fn stolen((start, end): (Nanos, Nanos), cpu: Option<Cpu>) -> Loss {
    Loss {
        start,
        end,
        kind: HoldUp::Steal,
        by: None,
        moved: false,
        taken: None,
        cpu,
    }
}

/// Returns whether a loss is the delay of a timer whose CPU was taken at that time.
fn is_timer_in(loss: &Loss, stop: &Moment) -> bool {
    loss.kind == HoldUp::LateTimer
        && loss.cpu == Some(stop.cpu)
        && loss.start < stop.end()
        && stop.at < loss.end
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Losses, Outside};
    use crate::timeline::ThreadId;

    #[test]
    fn the_earliest_dropped_interval_is_reported() {
        let mut losses = Losses::new(7);
        let thread = ThreadId { pid: 7, tid: 8 };
        let mut wait = |nth: usize| {
            let start = Nanos::from_micros(i64::try_from(nth).unwrap() * 100);
            let end = start + Nanos::from_micros(50);
            losses.waited(thread, (start, end), None, false);
            losses.full_at()
        };
        assert_eq!((1..=Losses::MAX).find_map(&mut wait), None);
        // The earliest dropped interval may arrive after a later one.
        let at = |nth: usize| Some(Nanos::from_micros(i64::try_from(nth).unwrap() * 100));
        assert_eq!(wait(Losses::MAX + 9), at(Losses::MAX + 9));
        assert_eq!(wait(Losses::MAX + 1), at(Losses::MAX + 1));
        assert_eq!(losses.for_thread(8, &Outside::default()).len(), Losses::MAX);
    }
}
