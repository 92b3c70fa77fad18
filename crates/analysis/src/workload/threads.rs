//! Determines when each thread worked and waited, and merges threads that are too small to be
//! listed separately.

use std::collections::BTreeMap;

use ticktax_model::autogroup::Autogroup;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::workload::{Burst, ThreadLoad};
use ticktax_model::{Cpu, Interval, Kind, Nanos, Owner, Source};

use super::SMALL;
use super::interrupts::by_timer;
use crate::pace::watch::{Piece, ThreadRun, runs_between};

/// A thread with at least this many bursts is listed separately.
const FEWEST: usize = 4;
/// Maximum number of threads listed separately.
const MAX_APART: usize = 256;
/// Longest off-CPU time that can be a wait. A longer absence is assumed to be sleep.
const LONGEST_WAIT: Nanos = Nanos::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct ThreadRows {
    pub(super) name: String,
    pub(super) program: String,
    pub(super) pid: i32,
    pub(super) kernel: bool,
    /// Whether the thread's waits were recorded as rows.
    pub(super) followed: bool,
    /// The thread's on-CPU periods, sorted by [`settle`](Self::settle).
    pub(super) on: Vec<Piece>,
    /// Intervals in which the thread had no work.
    pub(super) off: Vec<(Nanos, Nanos)>,
    /// Wake-up times, in any order.
    pub(super) woken: Vec<Nanos>,
    /// Scheduling policy, or `None` if it is the default.
    pub(super) policy: Option<SpecialPolicy>,
    /// Autogroup: the kernel's scheduling group for a session.
    pub(super) autogroup: Option<Autogroup>,
}

impl ThreadRows {
    /// Sets the names of the thread and its program. They come from the thread's latest on-CPU row
    /// or, until there is one, from its first row of any kind.
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

    /// Returns the CPU time, excluding interrupts.
    pub(super) fn ran(&self) -> Nanos {
        self.on.iter().map(|piece| piece.own).sum()
    }

    /// Returns the CPU that the thread ran on, or `None` if there was more than one.
    pub(super) fn cpu(&self) -> Option<Cpu> {
        let first = self.on.first()?.cpu;
        self.on
            .iter()
            .all(|piece| piece.cpu == first)
            .then_some(first)
    }

    pub(super) fn runs(&self) -> Vec<ThreadRun> {
        runs_between(&self.on, &self.off)
    }

    /// Sorts the rows. If the thread's waits were not recorded, works them out: between on-CPU
    /// periods, the thread slept if something woke it. `edges` is false if no wake-ups were
    /// recorded. In that case, the thread slept if the CPU was idle in between. `idle` contains
    /// each CPU's idle intervals, in order.
    pub(super) fn settle(&mut self, recording: Interval, edges: bool, idle: &[&[(Nanos, Nanos)]]) {
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
                let cpu_idle = idle.get(pair[1].cpu.index())?;
                let after = cpu_idle.partition_point(|idle| idle.1 <= from);
                let idled = cpu_idle.get(after).is_some_and(|idle| idle.0 < to);
                (idled && to > from || to - from > LONGEST_WAIT).then_some((from, to))
            });
            self.off = waits.collect();
        }
        self.off.sort_unstable();
        let (Some(first), Some(last)) = (self.on.first(), self.on.last()) else {
            return;
        };
        // Nothing is known about the time before the first on-CPU period or after the last one, so
        // assume that the thread slept.
        if self.off.first().is_none_or(|off| off.0 > first.start) {
            let begin = recording.start.min(first.start);
            self.off.insert(0, (begin, first.start));
        }
        if self.off.last().is_none_or(|off| off.1 < last.end) {
            self.off.push((last.end, recording.end.max(last.end)));
        }
    }
}

/// Returns the loads of all threads except thread `taken`. Small threads are merged, separately for
/// each CPU.
pub(super) fn loads(
    threads: &BTreeMap<i32, ThreadRows>,
    taken: Option<i32>,
    recording: Interval,
    timers: &[&[(Nanos, Nanos)]],
) -> Vec<ThreadLoad> {
    let (begin, elapsed) = (recording.start, recording.length());
    let mut others: Vec<(&ThreadRows, Nanos)> = threads
        .iter()
        .filter(|(tid, _)| Some(**tid) != taken)
        .map(|(_, rows)| (rows, rows.ran()))
        .collect();
    others.sort_by_key(|(_, ran)| std::cmp::Reverse(*ran));
    let mut loads = Vec::new();
    let mut small: BTreeMap<Cpu, Vec<Piece>> = BTreeMap::new();
    let mut brief: Vec<(&ThreadRows, Vec<ThreadRun>)> = Vec::new();
    for (rows, ran) in others {
        let runs = rows.runs();
        // A thread that runs almost continuously matters even if it has very few runs.
        let is_busy = ran.share_of(elapsed) > 0.1;
        if runs.len() < FEWEST && !is_busy && !rows.kernel {
            brief.push((rows, runs));
            continue;
        }
        let is_small = ran.share_of(elapsed) < SMALL;
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
    loads.extend(lanes(brief, recording));
    loads.extend(
        small
            .into_iter()
            .map(|(cpu, pieces)| rest(cpu, pieces, begin)),
    );
    loads
}

fn bursts(runs: &[ThreadRun], begin: Nanos, timers: &[&[(Nanos, Nanos)]]) -> Vec<Burst> {
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

/// Merges short-lived threads, such as a compiler's, into lanes. The number of lanes is the largest
/// number of these threads alive at any one time. A new thread takes over the lane of one that has
/// exited. Merging the threads per CPU instead would make them compete less than they really did.
fn lanes(mut brief: Vec<(&ThreadRows, Vec<ThreadRun>)>, recording: Interval) -> Vec<ThreadLoad> {
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
                until: recording.start,
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
            // A model repeats the bursts, so the lane must include the idle time at its end.
            lane.bursts.push(Burst {
                away: (recording.end - lane.until).max(Nanos::ZERO),
                by_timer: false,
                work: Nanos(1),
            });
            let cpu = lane.members[0].cpu();
            let policy = &lane.members[0].policy;
            let same_policy = |member: &&ThreadRows| member.policy == *policy;
            let group = lane.members[0].autogroup;
            let same_group = lane.members.iter().all(|member| member.autogroup == group);
            ThreadLoad {
                name: match *lane.members {
                    [single] => single.name.clone(),
                    ref all => format!("{} and {} more in turn", all[0].name, all.len() - 1),
                },
                kernel: false,
                cpu: cpu.filter(|_| lane.members.iter().all(|member| member.cpu() == cpu)),
                policy: policy.filter(|_| lane.members.iter().all(same_policy)),
                autogroup: group.filter(|_| same_group),
                bursts: lane.bursts,
            }
        })
        .collect()
}

/// Merges the small threads on one CPU.
fn rest(cpu: Cpu, mut pieces: Vec<Piece>, begin: Nanos) -> ThreadLoad {
    pieces.sort_by_key(|piece| piece.start);
    let mut before = begin;
    let bursts = pieces.iter().map(|piece| {
        let away = (piece.start - before).max(Nanos::ZERO);
        before = piece.end;
        Burst {
            away,
            by_timer: false,
            // The row's self time is negative if an interrupt outlasts the row.
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

    use ticktax_model::{Cpu, Interval, Nanos};

    use super::{ThreadRows, loads};
    use crate::pace::watch::Piece;

    const MS: i64 = 1_000_000;

    /// Builds a thread that ran on `cpu` during these intervals (in ms).
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

    const RECORDING: Interval = Interval::new(Nanos(0), Nanos(1_000 * MS));

    /// The CPU is never idle. The thread sleeps until it is woken at 50 ms, and is preempted at 70
    /// ms.
    #[test]
    fn a_thread_sleeps_until_it_is_woken() {
        let mut rows = thread("x", 0, &[(10, 20), (60, 70), (90, 95)]);
        rows.woken = vec![Nanos(50 * MS), Nanos(5 * MS)];
        rows.settle(RECORDING, true, &[]);
        assert!(
            rows.off.contains(&(Nanos(20 * MS), Nanos(50 * MS))),
            "{:?}",
            rows.off
        );
        let worked: Vec<i64> = rows.runs().iter().map(|run| run.cpu.0 / MS).collect();
        assert_eq!(worked, [10, 15]);
    }

    /// Three compilers become two tasks, because no more than two of them run at the same time.
    #[test]
    fn short_lived_threads_become_as_many_tasks_as_ran_at_the_same_time() {
        let lives = [(0, 80), (0, 90), (100, 180)];
        let mut threads: BTreeMap<i32, ThreadRows> = BTreeMap::new();
        for (tid, life) in (1..).zip(lives) {
            let mut rows = thread("cc1", 0, &[life]);
            rows.settle(RECORDING, true, &[]);
            threads.insert(tid, rows);
        }
        let loads = loads(&threads, None, RECORDING, &[]);
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
            assert!(
                (all - RECORDING.end.0).abs() < 10,
                "the lane covers the whole recording: {load:?}"
            );
        }
        assert_eq!(loads[0].cpu, Some(Cpu(0)));
    }
}
