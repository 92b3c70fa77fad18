//! What kept the threads of a program from running, piece by piece, for the frames that it delayed.

use std::collections::BTreeMap;

use ticktax_model::victim::{HoldUp, ThreadState};
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
}

impl Losses {
    /// Losses that are kept, 40 bytes each. What comes later is the frames' own, as far as is known.
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
        }
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

    /// The hypervisor had the CPU of `span`.
    pub(super) fn stolen(&mut self, span: &Span) {
        if self.kept < Self::MAX && span.dur >= Self::MIN {
            self.kept += 1;
            let stolen = self.stolen.entry(span.cpu).or_default();
            stolen.push((span.start, span.end()));
        }
    }

    /// Takes a gap: an empty one may be the hypervisor's.
    pub(super) fn gap(&mut self, gap: &JudgedGap<'_>) {
        let span = &gap.span;
        let empty = gap.residual.share_of(span.dur) >= Self::EMPTY;
        if empty && span.dur >= Self::MIN_GAP && self.kept < Self::MAX {
            self.kept += 1;
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
        if pid == self.pid && loss.end - loss.start >= Self::MIN && self.kept < Self::MAX {
            self.kept += 1;
            self.threads.entry(tid).or_default().push(loss);
        }
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
