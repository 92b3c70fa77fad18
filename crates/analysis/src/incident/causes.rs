//! Determines why a source ran, by following the edges that led to it back to the root cause.

use ticktax_model::recording::Effect;
use ticktax_model::{Cpu, Interval, Kind, Nanos, SourceId, SourceTable, Span};

use super::own::Piece;
use super::{IncidentAnalysis, ObservedEdge, ROUNDED, is_thread};
use crate::names::waker;

/// Maximum number of causes reported in a chain.
const STEPS: usize = 4;

impl IncidentAnalysis {
    /// Returns the last wake-up of thread `tid` within `during` or at its end, if its cause is
    /// known.
    pub(super) fn woken(
        &self,
        tid: i32,
        during: Interval,
        sources: &SourceTable,
    ) -> Option<&ObservedEdge> {
        self.last_edge(during, sources, |edge| edge.effect == Effect::Woke(tid))
    }

    /// Returns the last edge within `during` or at its end that satisfies `fits`. Returns `None` if
    /// that edge's CPU was idle, because the edge then came from an interrupt that no hook watches.
    fn last_edge(
        &self,
        during: Interval,
        sources: &SourceTable,
        fits: impl Fn(&ObservedEdge) -> bool,
    ) -> Option<&ObservedEdge> {
        let mut before = self
            .edges
            .iter()
            .rev()
            .skip_while(|edge| edge.at > during.end);
        let found = before
            .by_ref()
            .take_while(|edge| edge.at >= during.start)
            .find(|edge| fits(edge))?;
        (sources.get(found.by).kind != Kind::Idle).then_some(found)
    }

    /// Returns the chain of causes of an edge, from the root cause to the edge's own source. The
    /// chain is empty if only that source is known.
    pub(super) fn chain(&self, edge: &ObservedEdge, sources: &SourceTable) -> Vec<String> {
        self.steps(edge.by, edge.cpu, edge.at, sources)
    }

    /// Returns the chain of causes of a piece, from the root cause to the piece's source. The chain
    /// is empty if no cause is known.
    pub(super) fn chain_of_piece(&self, piece: &Piece, sources: &SourceTable) -> Vec<String> {
        self.steps(piece.source, piece.cpu, piece.row_start, sources)
    }

    /// Returns the chain of causes that made `source` run on `cpu` at time `at`, from the root
    /// cause to the source itself. The chain is empty if no cause is known.
    fn steps(
        &self,
        mut source: SourceId,
        mut cpu: Cpu,
        mut at: Nanos,
        sources: &SourceTable,
    ) -> Vec<String> {
        let mut chain = vec![waker(source, sources)];
        for _ in 0..STEPS {
            let Some(edge) = self.cause(source, cpu, at, sources) else {
                break;
            };
            // If two sources wake each other, list each of them only once.
            let name = waker(edge.by, sources);
            if chain.contains(&name) {
                break;
            }
            chain.push(name);
            (source, cpu, at) = (edge.by, edge.cpu, edge.at);
        }
        if chain.len() == 1 {
            return Vec::new();
        }
        chain.reverse();
        chain
    }

    /// Returns the edge that made source `id` run on `cpu` at time `at`.
    fn cause(
        &self,
        id: SourceId,
        cpu: Cpu,
        at: Nanos,
        sources: &SourceTable,
    ) -> Option<&ObservedEdge> {
        let source = sources.get(id);
        match (source.kind, &source.thread) {
            (Kind::Task, Some(thread)) => {
                let work = &*source.detail;
                let queued = |edge: &ObservedEdge| {
                    let Effect::Queued(function) = &edge.effect else {
                        return false;
                    };
                    **function == *work
                };
                let begin = self.run_start(thread.tid, cpu, at, sources);
                let before = Interval::new(self.window().start, at);
                if !work.is_empty()
                    && let Some(edge) = self.last_edge(before, sources, queued)
                {
                    return Some(edge);
                }
                let left = self.left_before(thread.tid, begin, sources);
                let since = left.unwrap_or(self.window().start);
                let off_cpu = Interval::new(since, begin + ROUNDED);
                self.woken(thread.tid, off_cpu, sources)
            }
            (Kind::Softirq, _) => {
                let begin = self.softirq_start(&source.name, cpu, at, sources);
                let raised = |edge: &ObservedEdge| {
                    edge.cpu == cpu
                        && matches!(&edge.effect, Effect::Raised(name) if **name == *source.name)
                };
                let before = |span: &&Span| {
                    let other = sources.get(span.source);
                    span.cpu == cpu && other.name == source.name && other.kind == Kind::Softirq
                };
                // The softirq's previous run handled everything raised before it, so only later
                // raises count.
                let last = self.spans.iter().filter(before).map(|span| span.start);
                let since = last.filter(|&start| start < begin).max();
                let since = since.unwrap_or(self.window().start);
                self.last_edge(Interval::new(since, begin), sources, raised)
            }
            _ => None,
        }
    }

    /// Returns the start of the thread's on-CPU period on `cpu` that contains time `at`. A period
    /// consists of contiguous rows.
    fn run_start(&self, tid: i32, cpu: Cpu, at: Nanos, sources: &SourceTable) -> Nanos {
        let mut begin = at;
        let own = |span: &&Span| span.cpu == cpu && is_thread(sources.get(span.source), tid);
        for span in self.spans.iter().rev().filter(own) {
            if span.start <= begin && span.end() >= begin {
                begin = span.start;
            }
        }
        begin
    }

    /// Returns when the thread last left a CPU before the on-CPU period that starts at `begin`.
    fn left_before(&self, tid: i32, begin: Nanos, sources: &SourceTable) -> Option<Nanos> {
        let own = self
            .spans
            .iter()
            .filter(|span| is_thread(sources.get(span.source), tid));
        own.filter(|span| span.start < begin).map(Span::end).max()
    }

    /// Returns when the thread that started to run at `begin` became runnable: when it was woken
    /// or, if it was not, when it was preempted.
    pub(super) fn runnable_since(
        &self,
        tid: i32,
        begin: Nanos,
        sources: &SourceTable,
    ) -> Option<Nanos> {
        let left = self.left_before(tid, begin, sources);
        let mut woken = self.edges.iter().rev();
        let woken = woken.find(|edge| edge.at <= begin && edge.effect == Effect::Woke(tid));
        match (woken.map(|edge| edge.at), left) {
            (Some(at), left) if left.is_none_or(|left| at >= left) => Some(at),
            (_, left) => left,
        }
    }

    fn softirq_start(&self, name: &str, cpu: Cpu, at: Nanos, sources: &SourceTable) -> Nanos {
        let mut frames = self.spans.iter().rev().filter(|span| {
            let source = sources.get(span.source);
            span.cpu == cpu && source.kind == Kind::Softirq && &*source.name == name
        });
        let found = frames.find(|span| {
            span.start <= at && span.end() >= at && { sources.get(span.source).detail.is_empty() }
        });
        found.map_or(at, |span| span.start)
    }
}
