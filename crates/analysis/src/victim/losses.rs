//! What kept the threads of a program from running, piece by piece, for the frames that it delayed.

use std::collections::BTreeMap;

use ticktax_model::victim::{HoldUp, OffCpuReason, ThreadState};
use ticktax_model::{Cpu, Nanos, SourceId, Span};

use super::interruptions::Interruptions;
use crate::ledger::JudgedGap;
use crate::pace::lateness::Outside;
use crate::timeline::ThreadId;

/// Something that kept a thread from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) kind: HoldUp,
    /// Who had the CPU meanwhile, where somebody had.
    pub(crate) by: Option<SourceId>,
    /// Of a wait: whether it ended on another CPU.
    pub(crate) moved: bool,
}

/// The losses of the threads of one process, and what the hypervisor took from each CPU.
#[derive(Debug)]
pub(crate) struct Losses {
    pid: i32,
    threads: BTreeMap<i32, Vec<Loss>>,
    /// What rows say that it took.
    stolen: BTreeMap<Cpu, Vec<(Nanos, Nanos)>>,
    /// The probe's gaps that may be its.
    empty: BTreeMap<Cpu, Vec<(Nanos, Nanos)>>,
    kept: usize,
    /// The begin of the first for which there was no room.
    full_at: Option<Nanos>,
}

impl Losses {
    /// Losses that are kept, 40 bytes each. What delayed frames after that is not known.
    const MAX: usize = 1 << 19;
    /// What is shorter makes no frame late.
    const MIN: Nanos = Nanos::from_micros(10);
    /// Gaps that are shorter may be entry and exit.
    const MIN_GAP: Nanos = Nanos::from_micros(100);
    /// The share of a gap that nothing named may have, for it to be empty.
    const EMPTY: f64 = 0.9;

    /// Nothing yet of process `pid`.
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

    /// Whether they are those of a process.
    pub(super) fn is_of(&self, pid: i32) -> bool {
        self.pid == pid
    }

    /// The thread was on a CPU during `span`, and this interrupted it.
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
            _ => None,
        };
        if let Some(kind) = kind {
            let (start, end) = (span.start, span.end());
            let loss = Loss {
                start,
                end,
                kind,
                by: None,
                moved: false,
            };
            self.add(thread, loss);
        }
        for piece in interruptions.stretches().iter().flat_map(|it| &it.pieces) {
            let loss = Loss {
                start: piece.start,
                end: piece.end,
                kind: HoldUp::Interrupts,
                by: Some(piece.source),
                moved: false,
            };
            self.add(thread, loss);
        }
    }

    /// It waited for a CPU that somebody had, and then ran there or, where it `moved`, on another.
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
        };
        self.add((thread.pid, thread.tid), loss);
    }

    /// It was off its CPU, and not asleep.
    pub(super) fn off(&mut self, thread: ThreadId, span: &Span, reason: OffCpuReason) {
        let kind = match reason {
            OffCpuReason::Disk => HoldUp::Disk,
            OffCpuReason::Lock => HoldUp::Lock,
            OffCpuReason::Stopped => HoldUp::Stopped,
            _ => return,
        };
        let loss = Loss {
            start: span.start,
            end: span.end(),
            kind,
            by: None,
            moved: false,
        };
        self.add((thread.pid, thread.tid), loss);
    }

    /// The hypervisor had the CPU of `span`.
    pub(super) fn stolen(&mut self, span: &Span) {
        if span.dur >= Self::MIN && self.has_room(span.start) {
            let stolen = self.stolen.entry(span.cpu).or_default();
            stolen.push((span.start, span.end()));
        }
    }

    /// Takes a gap: an empty one may be the hypervisor's.
    pub(super) fn gap(&mut self, gap: &JudgedGap<'_>) {
        let span = &gap.span;
        let empty = gap.residual.share_of(span.dur) >= Self::EMPTY;
        if empty && span.dur >= Self::MIN_GAP && self.has_room(span.start) {
            let empty = self.empty.entry(span.cpu).or_default();
            empty.push((span.start, span.end()));
        }
    }

    /// Its quota was used up.
    pub(super) fn throttled(&mut self, thread: ThreadId, span: &Span) {
        let loss = Loss {
            start: span.start,
            end: span.end(),
            kind: HoldUp::Quota,
            by: None,
            moved: false,
        };
        self.add((thread.pid, thread.tid), loss);
    }

    fn add(&mut self, (pid, tid): (i32, i32), loss: Loss) {
        let counts = pid == self.pid && loss.end - loss.start >= Self::MIN;
        if counts && self.has_room(loss.start) {
            self.threads.entry(tid).or_default().push(loss);
        }
    }

    /// Takes the room for one more that began at `start`, where there is some.
    fn has_room(&mut self, start: Nanos) -> bool {
        let has_room = self.kept < Self::MAX;
        if has_room {
            self.kept += 1;
        } else {
            let first = self.full_at.map_or(start, |at| at.min(start));
            self.full_at = Some(first);
        }
        has_room
    }

    /// From when on some are missing, because there were too many.
    pub(crate) fn full_at(&self) -> Option<Nanos> {
        self.full_at
    }

    /// Those of thread `tid`, by their begin; what the hypervisor took from its CPU as far as `outside`
    /// says that it is known.
    pub(crate) fn of(&self, tid: i32, outside: &Outside) -> Vec<Loss> {
        let mut losses = self.threads.get(&tid).cloned().unwrap_or_default();
        if let Some(cpu) = outside.cpu {
            let of = |all: &BTreeMap<Cpu, Vec<(Nanos, Nanos)>>| {
                let times = all.get(&cpu).map_or(&[][..], |times| times);
                times.to_vec()
            };
            let mut times = of(&self.stolen);
            if let Some(unseen) = outside.unseen {
                let mut empty = of(&self.empty);
                // The longest are taken for what was not seen.
                empty.sort_by_key(|&(start, end)| end - start);
                empty.truncate(empty.len().saturating_sub(unseen));
                times.append(&mut empty);
            }
            losses.extend(times.into_iter().map(|(start, end)| Loss {
                start,
                end,
                kind: HoldUp::Steal,
                by: None,
                moved: false,
            }));
        }
        losses.sort_by_key(|loss| (loss.start, loss.end));
        losses
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::Losses;
    use crate::pace::lateness::Outside;
    use crate::timeline::ThreadId;

    #[test]
    fn what_there_is_no_room_for_is_told() {
        let mut losses = Losses::new(7);
        let thread = ThreadId { pid: 7, tid: 8 };
        let mut wait = |nth: usize| {
            let start = Nanos::from_micros(i64::try_from(nth).unwrap() * 100);
            let end = start + Nanos::from_micros(50);
            losses.waited(thread, (start, end), None, false);
            losses.full_at()
        };
        assert_eq!((1..=Losses::MAX).find_map(&mut wait), None);
        // The first that is missing may come after a later one.
        let at = |nth: usize| Some(Nanos::from_micros(i64::try_from(nth).unwrap() * 100));
        assert_eq!(wait(Losses::MAX + 9), at(Losses::MAX + 9));
        assert_eq!(wait(Losses::MAX + 1), at(Losses::MAX + 1));
        assert_eq!(losses.of(8, &Outside::default()).len(), Losses::MAX);
    }
}
