//! A frame that began late: what its thread did from when it was due, and what ran while it had to wait.

use ticktax_model::incident::Incident;
use ticktax_model::recording::Effect;
use ticktax_model::{Cpu, Nanos, SourceTable, Span};

use super::own::Piece;
use super::{IncidentAnalysis, ROUNDED, is_thread};
use crate::victim::waker;

/// Runs within the delay that are gone through, the last ones: a loop that naps until its frame is due has very many. What
/// was before them counts as unseen.
const RUNS: usize = 256;

/// A time between two runs, the last of which is the frame.
struct Away {
    from: Nanos,
    to: Nanos,
    /// Where it ran before, where that was seen.
    left: Option<Cpu>,
    /// Where it ran then.
    came: Cpu,
    is_last: bool,
}

impl IncidentAnalysis {
    /// A frame began late. Its thread ran (the work before it took so long), was able to and did not, or slept.
    pub(super) fn began_late(&self, told: &mut Incident, sources: &SourceTable) {
        told.thread = self.thread_of_trigger(sources);
        let Some(cpu) = self.trigger.cpu else {
            return;
        };
        let (due, began, tid) = (self.trigger.begin(), self.trigger.time, self.trigger.tid);
        let own = |span: &&Span| is_thread(sources.get(span.source), tid) && span.start < began;
        let runs: Vec<&Span> = self.spans.iter().filter(own).collect();
        let before = runs.partition_point(|span| span.start < due).max(1) - 1;
        let runs = &runs[before.max(runs.len().saturating_sub(RUNS)).min(runs.len())..];
        let mut pieces: Vec<Piece> = Vec::new();
        for run in runs {
            let (start, end) = (run.start.max(due), run.end().min(began));
            if start < end {
                pieces.extend(self.own_times(run.cpu, start, end));
            }
        }
        let mut has_slept = false;
        for away in aways(runs, (self.window().0, began), cpu) {
            let woken = self.first_woken(tid, away.from, away.to);
            if !has_slept && (woken.is_some() || away.is_last) {
                has_slept = true;
                told.overran = (away.from - due).max(Nanos::ZERO);
            }
            // Where nothing woke it, it was preempted; but the frame begins with a wake-up.
            let able = woken.or((!away.is_last).then_some(away.from));
            let Some(able) = able.map(|able| able.max(due)) else {
                continue;
            };
            told.asleep += (able - away.from.max(due)).max(Nanos::ZERO);
            if able >= away.to {
                continue;
            }
            let (waited, waited_on) =
                self.waited_behind((able, away.to), away.came, away.left, sources);
            pieces.extend(waited);
            if away.is_last {
                told.waited_on = waited_on;
            }
        }
        let last = runs.last().map_or(due, |run| run.end());
        let woken = self.woken(tid, (last, began + ROUNDED), sources);
        told.woken_by = woken.map(|edge| waker(edge.by, sources));
        let ran: Nanos = pieces.iter().map(|piece| piece.own).sum();
        told.unseen = (self.trigger.lasted - told.asleep - ran).max(Nanos::ZERO);
        self.rank(told, &pieces, sources);
        // What made something run tells nothing about a sleep.
        if told.ran.first().is_none_or(|ran| ran.time < told.asleep) {
            told.chain.clear();
        }
    }

    /// The first wake-up of a thread within these times, whatever made it.
    fn first_woken(&self, tid: i32, from: Nanos, to: Nanos) -> Option<Nanos> {
        let after = self.edges.partition_point(|edge| edge.at < from);
        let mut later = self.edges[after..].iter().take_while(|edge| edge.at <= to);
        let woken = later.find(|edge| edge.effect == Effect::Woke(tid));
        woken.map(|edge| edge.at)
    }
}

/// The times after each of the runs, up to the frame's begin on `cpu`; of no run, that since `from`.
fn aways(runs: &[&Span], (from, began): (Nanos, Nanos), cpu: Cpu) -> Vec<Away> {
    let after = |number: usize, run: &&Span| {
        let next = runs.get(number + 1);
        Away {
            from: run.end(),
            to: next.map_or(began, |next| next.start),
            left: Some(run.cpu),
            came: next.map_or(cpu, |next| next.cpu),
            is_last: next.is_none(),
        }
    };
    let mut all: Vec<Away> = runs
        .iter()
        .enumerate()
        .map(|(number, run)| after(number, run))
        .collect();
    if all.is_empty() {
        all.push(Away {
            from,
            to: began,
            left: None,
            came: cpu,
            is_last: true,
        });
    }
    all
}
