//! Explains a frame that started late: what its thread did once the frame was due, and what ran
//! while the thread waited.

use ticktax_model::incident::Incident;
use ticktax_model::recording::Effect;
use ticktax_model::{Cpu, Interval, Nanos, SourceTable, Span};

use super::own::Piece;
use super::{IncidentAnalysis, ROUNDED, is_thread};
use crate::names::waker;
use crate::sampled::FunctionNames;

/// Maximum number of runs examined per delay. A loop that naps until its frame is due can have a
/// very large number of runs, so only the thread's last ones are examined. The time before them
/// counts as unseen.
const RUNS: usize = 256;

/// An interval in which the thread did not run: either between two runs, or between the last run
/// and the frame.
struct Absence {
    from: Nanos,
    to: Nanos,
    /// CPU of the earlier run, if there was one.
    cpu_before: Option<Cpu>,
    /// CPU of the later run, or of the frame.
    cpu_after: Cpu,
    is_last: bool,
}

impl IncidentAnalysis {
    /// Explains why a frame started late: its thread was still busy with earlier work, was runnable
    /// but did not run, or slept.
    pub(super) fn began_late(
        &self,
        incident: &mut Incident,
        names: &FunctionNames<'_>,
        sources: &SourceTable,
    ) {
        incident.thread = self.thread_of_trigger(sources);
        let Some(cpu) = self.trigger.cpu else {
            return;
        };
        let (due, began, tid) = (self.trigger.begin(), self.trigger.at, self.trigger.tid);
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
        for absence in absences(runs, self.window().start, began, cpu) {
            let woken = self.first_woken(tid, absence.from, absence.to);
            if !has_slept && (woken.is_some() || absence.is_last) {
                has_slept = true;
                incident.overrun = (absence.from - due).max(Nanos::ZERO);
            }
            // A thread that was not woken was preempted. The frame itself is an exception, because
            // it always starts with a wake-up.
            let runnable = woken.or((!absence.is_last).then_some(absence.from));
            let Some(runnable) = runnable.map(|runnable| runnable.max(due)) else {
                continue;
            };
            incident.asleep += (runnable - absence.from.max(due)).max(Nanos::ZERO);
            if runnable >= absence.to {
                continue;
            }
            let (waited, waited_on) = self.waited_behind(
                Interval::new(runnable, absence.to),
                absence.cpu_after,
                absence.cpu_before,
                sources,
            );
            pieces.extend(waited);
            if absence.is_last {
                incident.waited_on = waited_on;
            }
        }
        let last = runs.last().map_or(due, |run| run.end());
        let woken = self.woken(tid, Interval::new(last, began + ROUNDED), sources);
        incident.woken_by = woken.map(|edge| waker(edge.by, sources));
        let ran: Nanos = pieces.iter().map(|piece| piece.own).sum();
        incident.unseen = (self.trigger.lasted - incident.asleep - ran).max(Nanos::ZERO);
        self.rank(incident, &pieces, names, sources);
        // A chain of causes does not explain time spent asleep.
        if incident
            .ran
            .first()
            .is_none_or(|ran| ran.time < incident.asleep)
        {
            incident.chain.clear();
        }
    }

    /// Returns the first wake-up of thread `tid` between two times, regardless of whether its cause
    /// is known.
    fn first_woken(&self, tid: i32, from: Nanos, to: Nanos) -> Option<Nanos> {
        let after = self.edges.partition_point(|edge| edge.at < from);
        let mut later = self.edges[after..].iter().take_while(|edge| edge.at <= to);
        let woken = later.find(|edge| edge.effect == Effect::Woke(tid));
        woken.map(|edge| edge.at)
    }
}

/// Returns the absence after each run. The last one ends when the frame starts on `cpu` at `began`.
/// If there are no runs, returns a single absence that starts at `from`.
fn absences(runs: &[&Span], from: Nanos, began: Nanos, cpu: Cpu) -> Vec<Absence> {
    let after = |number: usize, run: &&Span| {
        let next = runs.get(number + 1);
        Absence {
            from: run.end(),
            to: next.map_or(began, |next| next.start),
            cpu_before: Some(run.cpu),
            cpu_after: next.map_or(cpu, |next| next.cpu),
            is_last: next.is_none(),
        }
    };
    let mut all: Vec<Absence> = runs
        .iter()
        .enumerate()
        .map(|(number, run)| after(number, run))
        .collect();
    if all.is_empty() {
        all.push(Absence {
            from,
            to: began,
            cpu_before: None,
            cpu_after: cpu,
            is_last: true,
        });
    }
    all
}
