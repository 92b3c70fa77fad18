//! Threads: when each worked, when it waited, and which are too small to be kept apart.

use std::collections::BTreeMap;

use ticktax_model::workload::{Burst, ThreadLoad};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source};

use super::SMALL;
use super::interrupts::by_timer;
use crate::pace::watch::{Piece, Run, runs_between};

/// A thread that is kept apart has worked this often.
const FEWEST: usize = 4;
/// The most threads that are kept apart.
const MOST_APART: usize = 256;
/// Nobody waits longer for a CPU than this, by assumption.
const LONGEST_WAIT: Nanos = Nanos::from_millis(500);

/// The rows of one thread.
#[derive(Debug, Default)]
pub(super) struct ThreadRows {
    pub(super) name: String,
    pub(super) program: String,
    pub(super) pid: i32,
    pub(super) kernel: bool,
    /// Whether its waits are rows.
    pub(super) followed: bool,
    /// When it was on a CPU, in order once [`settle`](Self::settle)d.
    pub(super) on: Vec<Piece>,
    /// When it had nothing to do.
    pub(super) off: Vec<(Nanos, Nanos)>,
}

impl ThreadRows {
    /// Takes the name of its last row on a CPU, or else of its first.
    pub(super) fn named(&mut self, source: &Source) {
        let Some(thread) = &source.thread else { return };
        if self.name.is_empty() || source.kind == Kind::Task {
            if *self.name != *source.name {
                self.name = source.name.to_string();
                self.program = thread.program.to_string();
            }
            self.pid = thread.pid;
            self.kernel = source.owner == Owner::Kernel;
        }
    }

    /// Its time on CPUs, without interrupts.
    pub(super) fn ran(&self) -> Nanos {
        self.on.iter().map(|piece| piece.own).sum()
    }

    /// The CPU that it ran on, if it was a single one.
    pub(super) fn cpu(&self) -> Option<Cpu> {
        let first = self.on.first()?.cpu;
        self.on
            .iter()
            .all(|piece| piece.cpu == first)
            .then_some(first)
    }

    /// What it did between its waits.
    pub(super) fn runs(&self) -> Vec<Run> {
        runs_between(&self.on, &self.off)
    }

    /// Puts its rows in order, and finds its waits where they were not seen: between two times on a
    /// CPU where that CPU idled in between. `idle` is by CPU, in order.
    pub(super) fn settle(&mut self, begin: Nanos, end: Nanos, idle: &[&[(Nanos, Nanos)]]) {
        self.on.sort_by_key(|piece| piece.start);
        if !self.followed {
            let waits = self.on.windows(2).filter_map(|pair| {
                let (from, to) = (pair[0].end, pair[1].start);
                let of_cpu = idle.get(pair[1].cpu.index())?;
                let after = of_cpu.partition_point(|idle| idle.1 <= from);
                let idled = of_cpu.get(after).is_some_and(|idle| idle.0 < to);
                (idled && to > from || to - from > LONGEST_WAIT).then_some((from, to))
            });
            self.off = waits.collect();
        }
        self.off.sort_unstable();
        let (Some(first), Some(last)) = (self.on.first(), self.on.last()) else {
            return;
        };
        // Before it first ran and after it last did, nothing else is known of it.
        if self.off.first().is_none_or(|off| off.0 > first.start) {
            self.off.insert(0, (begin.min(first.start), first.start));
        }
        if self.off.last().is_none_or(|off| off.1 < last.end) {
            self.off.push((last.end, end.max(last.end)));
        }
    }
}

/// All threads but `taken` and those of no account, which are put together, one a CPU.
pub(super) fn loads(
    threads: &BTreeMap<i32, ThreadRows>,
    taken: Option<i32>,
    (begin, end): (Nanos, Nanos),
    timers: &[&[(Nanos, Nanos)]],
) -> Vec<ThreadLoad> {
    let mut others: Vec<(&ThreadRows, Nanos)> = threads
        .iter()
        .filter(|(tid, _)| Some(**tid) != taken)
        .map(|(_, rows)| (rows, rows.ran()))
        .collect();
    others.sort_by_key(|(_, ran)| std::cmp::Reverse(*ran));
    let mut loads = Vec::new();
    let mut small: BTreeMap<Cpu, Vec<Piece>> = BTreeMap::new();
    for (rows, ran) in others {
        let runs = rows.runs();
        let is_small = ran.share_of(end - begin) < SMALL || runs.len() < FEWEST;
        // One that works through is as large as can be.
        let works_through = ran.share_of(end - begin) > 0.1;
        if loads.len() >= MOST_APART || is_small && !works_through {
            for piece in &rows.on {
                small.entry(piece.cpu).or_default().push(*piece);
            }
            continue;
        }
        loads.push(ThreadLoad {
            name: rows.name.clone(),
            kernel: rows.kernel,
            cpu: rows.cpu(),
            bursts: bursts(&runs, begin, timers),
        });
    }
    loads.extend(
        small
            .into_iter()
            .map(|(cpu, pieces)| rest(cpu, pieces, begin)),
    );
    loads
}

fn bursts(runs: &[Run], begin: Nanos, timers: &[&[(Nanos, Nanos)]]) -> Vec<Burst> {
    let mut before = begin;
    runs.iter()
        .map(|run| {
            let away = (run.woken - before).max(Nanos::ZERO);
            before = run.ended;
            let wakes = timers.get(run.on.index()).copied().unwrap_or_default();
            Burst {
                away,
                by_timer: by_timer(wakes, run.woken),
                work: run.cpu,
            }
        })
        .collect()
}

/// The threads of no account on one CPU, as one.
fn rest(cpu: Cpu, mut pieces: Vec<Piece>, begin: Nanos) -> ThreadLoad {
    pieces.sort_by_key(|piece| piece.start);
    let mut before = begin;
    let bursts = pieces.iter().map(|piece| {
        let away = (piece.start - before).max(Nanos::ZERO);
        before = piece.end;
        Burst {
            away,
            by_timer: false,
            work: piece.own,
        }
    });
    ThreadLoad {
        name: format!("rest of CPU {cpu}"),
        kernel: false,
        cpu: Some(cpu),
        bursts: bursts.collect(),
    }
}
