//! What happens on one CPU: `NET_RX` is raised, runs, and wakes threads.

use std::collections::VecDeque;

use ticktax_model::{Kind, Nanos, SourceId, SourceTable, Span};

use super::Way;

/// `NET_RX` was raised.
#[derive(Clone, Copy, Debug)]
struct Raise {
    at: Nanos,
    by: SourceId,
    /// When the interrupt began that did, once its row has come.
    interrupt: Option<Nanos>,
}

/// What one CPU is in the middle of.
#[derive(Debug, Default)]
pub(super) struct CpuFrames {
    /// Since `NET_RX` last ran, in order; a few.
    raises: VecDeque<Raise>,
    /// Threads that were woken by a `NET_RX` whose row has not come.
    wakes: Vec<(Nanos, i32)>,
}

impl CpuFrames {
    /// The kernel reports the first until it runs, so that there are two at most: the others are of rows that were
    /// lost.
    const RAISES: usize = 4;
    /// No softirq wakes so many: its row was lost.
    const WAKES: usize = 1 << 16;

    pub(super) fn raised(&mut self, at: Nanos, by: SourceId) {
        if self.raises.len() == Self::RAISES {
            self.raises.pop_front();
        }
        self.raises.push_back(Raise {
            at,
            by,
            interrupt: None,
        });
    }

    pub(super) fn woke(&mut self, at: Nanos, tid: i32) {
        if self.wakes.len() < Self::WAKES {
            self.wakes.push((at, tid));
        }
    }

    /// An interrupt of this name ended: it may have raised what was raised meanwhile.
    pub(super) fn interrupt(&mut self, span: &Span, name: &str, sources: &SourceTable) {
        for raise in self.raises.iter_mut().rev() {
            if raise.at < span.start {
                return;
            }
            let by = sources.get(raise.by);
            let is_it = by.kind == Kind::Irq && &*by.name == name;
            if is_it && raise.at <= span.end() && raise.interrupt.is_none() {
                raise.interrupt = Some(span.start);
            }
        }
    }

    /// `NET_RX` ended on this CPU, which is in `slot`: hands out the ways to each thread that it woke, and returns
    /// those threads that were woken before it by one whose row is missing.
    pub(super) fn softirq(
        &mut self,
        span: &Span,
        slot: usize,
        found: &mut impl FnMut(Way),
    ) -> Vec<i32> {
        let mut raise = None;
        while let Some(first) = self.raises.pop_front_if(|raise| raise.at <= span.start) {
            raise = Some(first);
        }
        let mut missing = Vec::new();
        for (woke, tid) in self.wakes.drain(..) {
            if woke < span.start {
                missing.push(tid);
                continue;
            }
            found(Way {
                slot,
                cpu: span.cpu,
                interrupt: raise.and_then(|raise: Raise| raise.interrupt),
                raised: raise.map(|raise| (raise.at, raise.by)),
                began: span.start,
                woke,
                softirq: span.source,
                tid,
            });
        }
        missing
    }

    /// Threads that were woken by a `NET_RX` whose row never came.
    pub(super) fn rest(&mut self) -> impl Iterator<Item = i32> + use<> {
        let rest = std::mem::take(&mut self.wakes);
        rest.into_iter().map(|(_, tid)| tid)
    }
}
