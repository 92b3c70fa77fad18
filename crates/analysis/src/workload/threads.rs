//! Threads: when each worked, when it waited, and which are too small to be kept apart.

use std::collections::BTreeMap;

use ticktax_model::autogroup::Autogroup;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::workload::{Burst, ThreadLoad};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source};

use super::SMALL;
use super::interrupts::by_timer;
use crate::pace::watch::{Piece, Run, runs_between};

/// A thread that is kept apart has worked this often.
const FEWEST: usize = 4;
/// The most threads that are kept apart.
const MAX_APART: usize = 256;
/// The longest wait for a CPU, by assumption.
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
    /// When it was woken, in any order.
    pub(super) woken: Vec<Nanos>,
    /// How it was scheduled, where that was not by the ordinary rules.
    pub(super) policy: Option<SpecialPolicy>,
    /// The kernel's group by session that it was in.
    pub(super) autogroup: Option<Autogroup>,
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
    /// CPU where something woke it in between. Where wake-ups were not recorded at all (`edges`), where
    /// that CPU idled in between; `idle` is by CPU, in order.
    pub(super) fn settle(
        &mut self,
        (begin, end): (Nanos, Nanos),
        edges: bool,
        idle: &[&[(Nanos, Nanos)]],
    ) {
        self.on.sort_by_key(|piece| piece.start);
        self.woken.sort_unstable();
        if !self.followed {
            let waits = self.on.windows(2).filter_map(|pair| {
                let (from, to) = (pair[0].end, pair[1].start);
                if edges {
                    let before = self.woken.partition_point(|&woken| woken <= to);
                    let woken = *self.woken[..before].last()?;
                    return (woken > from).then_some((from, woken));
                }
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
    let mut brief: Vec<(&ThreadRows, Vec<Run>)> = Vec::new();
    for (rows, ran) in others {
        let runs = rows.runs();
        // One that works through is as large as can be.
        let works_through = ran.share_of(end - begin) > 0.1;
        if runs.len() < FEWEST && !works_through && !rows.kernel {
            brief.push((rows, runs));
            continue;
        }
        let is_small = ran.share_of(end - begin) < SMALL;
        if loads.len() >= MAX_APART || is_small {
            for piece in &rows.on {
                small.entry(piece.cpu).or_default().push(*piece);
            }
            continue;
        }
        loads.push(ThreadLoad {
            name: rows.name.clone(),
            kernel: rows.kernel,
            cpu: rows.cpu(),
            policy: rows.policy,
            autogroup: rows.autogroup,
            bursts: bursts(&runs, begin, timers),
        });
    }
    loads.extend(lanes(brief, (begin, end)));
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

/// Threads that came and went, such as a compiler's: as many as were there at the same time are kept
/// apart, and whoever comes after one has ended takes its place. One after the other on each CPU, they
/// would make less of a crowd than they were.
fn lanes(mut brief: Vec<(&ThreadRows, Vec<Run>)>, (begin, end): (Nanos, Nanos)) -> Vec<ThreadLoad> {
    struct Lane<'a> {
        until: Nanos,
        members: Vec<&'a ThreadRows>,
        bursts: Vec<Burst>,
    }
    brief.retain(|(_, runs)| !runs.is_empty());
    brief.sort_by_key(|(_, runs)| runs[0].woken);
    let mut lanes: Vec<Lane<'_>> = Vec::new();
    for (rows, runs) in brief {
        let first = runs[0].woken;
        let free = lanes.iter().position(|lane| lane.until <= first);
        let place = free.unwrap_or_else(|| {
            lanes.push(Lane {
                until: begin,
                members: Vec::new(),
                bursts: Vec::new(),
            });
            lanes.len() - 1
        });
        let lane = &mut lanes[place];
        for run in &runs {
            lane.bursts.push(Burst {
                away: (run.woken - lane.until).max(Nanos::ZERO),
                by_timer: false,
                work: run.cpu,
            });
            lane.until = lane.until.max(run.ended);
        }
        lane.members.push(rows);
    }
    lanes
        .into_iter()
        .map(|mut lane| {
            // Drawn again and again, it is to be as rare as it was.
            lane.bursts.push(Burst {
                away: (end - lane.until).max(Nanos::ZERO),
                by_timer: false,
                work: Nanos(1),
            });
            let cpu = lane.members[0].cpu();
            let policy = &lane.members[0].policy;
            let alike = |one: &&ThreadRows| one.policy == *policy;
            let group = lane.members[0].autogroup;
            let together = lane.members.iter().all(|one| one.autogroup == group);
            ThreadLoad {
                name: match *lane.members {
                    [one] => one.name.clone(),
                    ref all => format!("{} and {} more in turn", all[0].name, all.len() - 1),
                },
                kernel: false,
                cpu: cpu.filter(|_| lane.members.iter().all(|one| one.cpu() == cpu)),
                policy: policy.filter(|_| lane.members.iter().all(alike)),
                autogroup: group.filter(|_| together),
                bursts: lane.bursts,
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
            // Of a row that an interrupt outlasts, less than nothing is left.
            work: piece.own.max(Nanos::ZERO),
        }
    });
    ThreadLoad {
        name: format!("rest of CPU {cpu}"),
        kernel: false,
        cpu: Some(cpu),
        policy: None,
        autogroup: None,
        bursts: bursts.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ticktax_model::{Cpu, Nanos};

    use super::{ThreadRows, loads};
    use crate::pace::watch::Piece;

    const MS: i64 = 1_000_000;

    /// A thread that ran from one time to another, in ms.
    fn thread(name: &str, cpu: u32, ran: &[(i64, i64)]) -> ThreadRows {
        let piece = |&(start, end): &(i64, i64)| Piece {
            cpu: Cpu(cpu),
            start: Nanos(start * MS),
            end: Nanos(end * MS),
            own: Nanos((end - start) * MS),
            after_idle: false,
        };
        ThreadRows {
            name: name.to_owned(),
            on: ran.iter().map(piece).collect(),
            ..ThreadRows::default()
        }
    }

    const WHOLE: (Nanos, Nanos) = (Nanos(0), Nanos(1_000 * MS));

    /// On a CPU that never idles: it slept until it was woken at 50 ms, and was preempted at 70.
    #[test]
    fn a_thread_slept_until_it_was_woken() {
        let mut rows = thread("x", 0, &[(10, 20), (60, 70), (90, 95)]);
        rows.woken = vec![Nanos(50 * MS), Nanos(5 * MS)];
        rows.settle(WHOLE, true, &[]);
        assert!(
            rows.off.contains(&(Nanos(20 * MS), Nanos(50 * MS))),
            "{:?}",
            rows.off
        );
        let worked: Vec<i64> = rows.runs().iter().map(|run| run.cpu.0 / MS).collect();
        assert_eq!(worked, [10, 15]);
    }

    /// Three compilers, two at a time: two tasks compete, and not one, nor three.
    #[test]
    fn threads_that_come_and_go_are_as_many_as_there_were() {
        let lives = [(0, 80), (0, 90), (100, 180)];
        let mut threads: BTreeMap<i32, ThreadRows> = BTreeMap::new();
        for (tid, life) in (1..).zip(lives) {
            let mut rows = thread("cc1", 0, &[life]);
            rows.settle(WHOLE, true, &[]);
            threads.insert(tid, rows);
        }
        let loads = loads(&threads, None, WHOLE, &[]);
        assert_eq!(loads.len(), 2, "{loads:?}");
        let work: Nanos = loads
            .iter()
            .map(ticktax_model::workload::ThreadLoad::work)
            .sum();
        assert!((work - Nanos(250 * MS)).0.abs() < 10, "{work}");
        for load in &loads {
            let all: i64 = load
                .bursts
                .iter()
                .map(|burst| (burst.away + burst.work).0)
                .sum();
            assert!((all - WHOLE.1.0).abs() < 10, "as rare as it was: {load:?}");
        }
        assert_eq!(loads[0].cpu, Some(Cpu(0)));
    }
}
