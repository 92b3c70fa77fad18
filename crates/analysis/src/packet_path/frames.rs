//! Events on one CPU before a thread runs: `NET_RX` is raised, runs, and wakes threads.

use std::collections::VecDeque;

use ticktax_model::{Kind, Nanos, SourceId, SourceTable, Span};

use super::Path;

/// An event that raised `NET_RX`.
#[derive(Clone, Copy, Debug)]
struct Raise {
    at: Nanos,
    by: SourceId,
    /// Start of the interrupt that raised `NET_RX`. `None` until the interrupt's row arrives.
    interrupt: Option<Nanos>,
}

/// Events on one CPU that lead to a `NET_RX` that has not ended yet.
#[derive(Debug, Default)]
pub(super) struct CpuFrames {
    /// Raises since `NET_RX` last ran, in order. There are only a few.
    raises: VecDeque<Raise>,
    /// Threads woken by a `NET_RX` whose row has not arrived yet.
    wakes: Vec<(Nanos, i32)>,
}

impl CpuFrames {
    /// Maximum number of raises kept. The kernel reports only the first raise before the softirq
    /// runs, so there should be at most two. More than that means that rows were lost.
    const RAISES: usize = 4;
    /// Maximum number of wake-ups kept. No softirq wakes this many threads, so if there are more,
    /// the softirq's row must have been lost.
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

    /// Adds an interrupt called `name` that has ended. It may have raised the softirq.
    pub(super) fn interrupt(&mut self, span: &Span, name: &str, sources: &SourceTable) {
        for raise in self.raises.iter_mut().rev() {
            if raise.at < span.start {
                return;
            }
            let by = sources.get(raise.by);
            let is_raiser = by.kind == Kind::Irq && &*by.name == name;
            if is_raiser && raise.at <= span.end() && raise.interrupt.is_none() {
                raise.interrupt = Some(span.start);
            }
        }
    }

    /// Adds a `NET_RX` that has ended on CPU `slot`. Passes the path to each thread that it woke to
    /// `found`. Returns the threads woken by an earlier `NET_RX` whose row is missing.
    pub(super) fn softirq(
        &mut self,
        span: &Span,
        slot: usize,
        found: &mut impl FnMut(Path),
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
            found(Path {
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

    /// Returns the threads woken by a `NET_RX` whose row never arrived.
    pub(super) fn rest(&mut self) -> impl Iterator<Item = i32> + use<> {
        let rest = std::mem::take(&mut self.wakes);
        rest.into_iter().map(|(_, tid)| tid)
    }
}
