//! What kept the threads of a program from running, piece by piece, for the frames that it delayed.

use std::collections::BTreeMap;

use ticktax_model::victim::{HoldUp, ThreadState};
use ticktax_model::{Nanos, SourceId, Span};

use super::interruptions::Interruptions;
use crate::timeline::ThreadId;

/// Something that kept a thread from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) kind: HoldUp,
    /// Who had the CPU meanwhile, where somebody had.
    pub(crate) by: Option<SourceId>,
}

/// The losses of the threads of one process.
#[derive(Debug)]
pub(crate) struct Losses {
    pid: i32,
    threads: BTreeMap<i32, Vec<Loss>>,
    kept: usize,
}

impl Losses {
    /// Losses that are kept, 40 bytes each. What comes later is the frames' own, as far as is known.
    const MOST: usize = 1 << 19;
    /// What is shorter makes no frame late.
    const LEAST: Nanos = Nanos::from_micros(10);

    /// Nothing yet of process `pid`.
    pub(crate) fn new(pid: i32) -> Self {
        Self {
            pid,
            threads: BTreeMap::new(),
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
            let by = None;
            self.add(
                thread,
                Loss {
                    start,
                    end,
                    kind,
                    by,
                },
            );
        }
        for piece in interruptions.stretches().iter().flat_map(|it| &it.pieces) {
            let loss = Loss {
                start: piece.start,
                end: piece.end,
                kind: HoldUp::Interrupts,
                by: Some(piece.source),
            };
            self.add(thread, loss);
        }
    }

    /// It waited for a CPU that somebody had.
    pub(super) fn waited(
        &mut self,
        thread: ThreadId,
        start: Nanos,
        end: Nanos,
        by: Option<SourceId>,
    ) {
        let kind = HoldUp::Waiting;
        self.add(
            (thread.pid, thread.tid),
            Loss {
                start,
                end,
                kind,
                by,
            },
        );
    }

    /// Its quota was used up.
    pub(super) fn throttled(&mut self, thread: ThreadId, span: &Span) {
        let loss = Loss {
            start: span.start,
            end: span.end(),
            kind: HoldUp::Quota,
            by: None,
        };
        self.add((thread.pid, thread.tid), loss);
    }

    fn add(&mut self, (pid, tid): (i32, i32), loss: Loss) {
        if pid == self.pid && loss.end - loss.start >= Self::LEAST && self.kept < Self::MOST {
            self.kept += 1;
            self.threads.entry(tid).or_default().push(loss);
        }
    }

    /// Those of thread `tid`, by their begin.
    pub(crate) fn of(&self, tid: i32) -> Vec<Loss> {
        let mut losses = self.threads.get(&tid).cloned().unwrap_or_default();
        losses.sort_by_key(|loss| (loss.start, loss.end));
        losses
    }
}
