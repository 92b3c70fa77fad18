//! Sums over the packets that were followed: how long each step took, what delayed them, and the
//! longest delays.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ticktax_model::kernel_words::OTHERS;
use ticktax_model::packet_path::{
    NotFollowed, PacketCpu, PacketDelay, PacketPathGroup, PacketPaths, PacketRan, PacketStep,
    PacketThread, ReceivedIn, Step, StepLength, StepTime,
};
use ticktax_model::recording::Header;
use ticktax_model::{Cpu, Kind, Nanos, SourceId, SourceTable};

use super::asking::Followed;
use crate::ledger::tally::LengthTally;
use crate::names::named;

/// Maximum number of threads reported.
const THREADS: usize = 20;
/// Maximum number of path types reported.
const WAYS: usize = 20;
/// Maximum number of path types kept per process.
const WAYS_KEPT: usize = 256;
/// Maximum number of culprits reported per step.
const HOLDERS: usize = 6;
/// Maximum number of long delays reported.
const LONGEST: usize = 10;

/// Source that raised `NET_RX`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Raiser {
    kind: Kind,
    name: Arc<str>,
    /// Function that the source ran, or an empty string.
    function: Arc<str>,
}

impl fmt::Display for Raiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.function.is_empty() {
            return Ok(());
        }
        write!(f, " {}", self.function)
    }
}

/// Sums for each process, by process ID.
#[derive(Debug, Default)]
pub(super) struct Sums(BTreeMap<Option<i32>, Process>);

#[derive(Debug, Default)]
struct Process {
    threads: BTreeMap<i32, Thread>,
    ways: BTreeMap<(Option<Raiser>, ReceivedIn), LengthTally>,
    steps: [LongDelays; Step::ALL.len()],
    /// The longest delays, longest first.
    longest: Vec<Followed>,
    not_followed: NotFollowed,
}

/// Long delays in one step: how many there were, and how long each source was on the CPU during
/// them.
#[derive(Debug, Default)]
struct LongDelays {
    count: u64,
    by: BTreeMap<SourceId, Nanos>,
}

#[derive(Debug)]
struct Thread {
    source: SourceId,
    cpus: BTreeSet<Cpu>,
    lengths: Lengths,
}

/// Durations of paths, in total and for each step.
#[derive(Debug, Default)]
struct Lengths {
    total: LengthTally,
    steps: [LengthTally; Step::ALL.len()],
}

impl Lengths {
    fn merge(&mut self, other: &Self) {
        self.total.merge(&other.total);
        for (step, more) in self.steps.iter_mut().zip(&other.steps) {
            step.merge(more);
        }
    }

    fn to_steps(&self) -> Vec<StepLength> {
        let steps = Step::ALL.into_iter().zip(&self.steps);
        let steps = steps.filter(|(_, tally)| tally.tally.count > 0);
        let lengths = steps.map(|(step, tally)| StepLength {
            step,
            length: tally.intervals(),
        });
        lengths.collect()
    }
}

fn add(tally: &mut LengthTally, time: Nanos) {
    tally.add(time, time);
}

impl Sums {
    /// Counts a packet whose thread was never seen running.
    pub(super) fn not_run(&mut self, pid: Option<i32>) {
        self.0.entry(pid).or_default().not_followed.not_run += 1;
    }

    /// Counts a packet whose `NET_RX` row is missing.
    pub(super) fn no_softirq(&mut self, pid: Option<i32>) {
        self.0.entry(pid).or_default().not_followed.no_softirq += 1;
    }

    pub(super) fn add(&mut self, followed: Followed, sources: &SourceTable) {
        let arrival = &followed.arrival;
        let process = self.0.entry(Some(arrival.pid)).or_default();
        let thread = process.threads.entry(arrival.path.tid);
        let thread = thread.or_insert_with(|| Thread {
            source: arrival.source,
            cpus: BTreeSet::new(),
            lengths: Lengths::default(),
        });
        thread.cpus.insert(arrival.ran_on);
        add(&mut thread.lengths.total, arrival.length());
        for (step, time) in arrival.steps() {
            add(&mut thread.lengths.steps[step as usize], time);
        }
        let raiser = arrival.path.raised.map(|(_, by)| raiser(by, sources));
        let mut path = (raiser, followed.received_in);
        if process.ways.len() >= WAYS_KEPT && !process.ways.contains_key(&path) {
            path.0 = Some(Raiser {
                kind: Kind::Task,
                name: OTHERS.into(),
                function: "".into(),
            });
        }
        add(process.ways.entry(path).or_default(), arrival.length());
        let (step, time) = arrival.longest();
        if time >= PacketPaths::LOOKED_AT {
            let slow = &mut process.steps[step as usize];
            slow.count += 1;
            for &(by, time) in &followed.by {
                *slow.by.entry(by).or_default() += time;
            }
        }
        keep(&mut process.longest, followed);
    }

    /// Returns the statement about the `wanted` processes, or `None` if it would be empty.
    /// `refused` is the number of packets that woke threads that could not be tracked.
    pub(super) fn finish(
        self,
        header: &Header,
        sources: &SourceTable,
        refused: u64,
        wanted: &impl Fn(Option<i32>) -> bool,
    ) -> Option<PacketPaths> {
        let mut all = Process::default();
        let mut lengths = Lengths::default();
        let (mut threads, mut pids) = (Vec::new(), BTreeMap::new());
        let processes = self.0.into_iter().filter(|&(pid, _)| wanted(pid));
        for (pid, process) in processes {
            for (tid, thread) in process.threads {
                lengths.merge(&thread.lengths);
                pids.insert(tid, pid.unwrap_or_default());
                threads.push((tid, thread));
            }
            for (path, tally) in process.ways {
                all.ways.entry(path).or_default().merge(&tally);
            }
            for (sum, slow) in all.steps.iter_mut().zip(process.steps) {
                sum.count += slow.count;
                for (by, time) in slow.by {
                    *sum.by.entry(by).or_default() += time;
                }
            }
            process
                .longest
                .into_iter()
                .for_each(|followed| keep(&mut all.longest, followed));
            all.not_followed.not_run += process.not_followed.not_run;
            all.not_followed.no_softirq += process.not_followed.no_softirq;
        }
        // It is unknown which processes the refused packets were for, so report them only if no
        // process is watched.
        all.not_followed.no_room = if header.victim.is_none() { refused } else { 0 };
        let cpus = cpus(header);
        let followed = lengths.total.tally.count;
        let NotFollowed {
            not_run,
            no_softirq,
            no_room,
        } = all.not_followed;
        let wakeups = followed + not_run + no_softirq + no_room;
        let counted = cpus.iter().any(|cpu| cpu.dropped + cpu.squeezed > 0);
        if wakeups == 0 && !counted {
            return None;
        }
        let (ways, ways_left_out) = ways(all.ways);
        let (threads, threads_left_out) = self::threads(threads, &pids, sources);
        let begin = header.begin().unwrap_or_default();
        let longest = all
            .longest
            .iter()
            .map(|followed| delay(followed, begin, sources));
        Some(PacketPaths {
            wakeups,
            followed,
            not_followed: all.not_followed,
            delay: lengths.total.intervals(),
            steps: steps(&lengths, all.steps, sources),
            groups: ways,
            groups_left_out: ways_left_out,
            threads,
            threads_left_out,
            longest: longest.collect(),
            cpus,
        })
    }
}

/// Adds a packet if its path is among the longest. If paths are equally long, the earlier comes
/// first.
fn keep(longest: &mut Vec<Followed>, followed: Followed) {
    let length = followed.arrival.length();
    let place = longest.partition_point(|other| other.arrival.length() >= length);
    if place < LONGEST {
        longest.insert(place, followed);
        longest.truncate(LONGEST);
    }
}

/// Returns the source that raised `NET_RX`. All threads in a program count as one source.
fn raiser(by: SourceId, sources: &SourceTable) -> Raiser {
    let source = sources.get(by);
    match &source.thread {
        Some(thread) => Raiser {
            kind: source.kind,
            name: thread.program.clone(),
            function: "".into(),
        },
        None => Raiser {
            kind: source.kind,
            name: source.name.clone(),
            function: source.detail.clone(),
        },
    }
}

/// Returns the path types, most frequent first, and the number omitted.
fn ways(all: BTreeMap<(Option<Raiser>, ReceivedIn), LengthTally>) -> (Vec<PacketPathGroup>, u64) {
    let ways = all
        .into_iter()
        .map(|((raiser, received_in), tally)| PacketPathGroup {
            kind: raiser.as_ref().map(|raiser| raiser.kind),
            raised_by: raiser.as_ref().map(Raiser::to_string),
            received_in,
            delay: tally.intervals(),
        });
    let mut ways: Vec<PacketPathGroup> = ways.collect();
    ways.sort_by_key(|path| Reverse(path.delay.count));
    let left_out = ways.len().saturating_sub(WAYS) as u64;
    ways.truncate(WAYS);
    (ways, left_out)
}

/// Returns the threads, longest delay first, and the number omitted.
fn threads(
    threads: Vec<(i32, Thread)>,
    pids: &BTreeMap<i32, i32>,
    sources: &SourceTable,
) -> (Vec<PacketThread>, u64) {
    let reported = threads.into_iter().map(|(tid, thread)| {
        let source = sources.get(thread.source);
        let program = source.thread.as_ref().map(|thread| &thread.program);
        PacketThread {
            name: source.name.to_string(),
            program: program.unwrap_or(&source.name).to_string(),
            pid: pids.get(&tid).copied().unwrap_or_default(),
            tid,
            cpus: thread.cpus.iter().copied().collect(),
            delay: thread.lengths.total.intervals(),
            steps: thread.lengths.to_steps(),
        }
    });
    let mut reported: Vec<PacketThread> = reported.collect();
    reported.sort_by_key(|thread| (Reverse(thread.delay.max), thread.tid));
    let left_out = reported.len().saturating_sub(THREADS) as u64;
    reported.truncate(THREADS);
    (reported, left_out)
}

/// Adds up how long each program was on the CPU. The longest comes first.
fn holders(
    by: impl IntoIterator<Item = (SourceId, Nanos)>,
    sources: &SourceTable,
) -> Vec<PacketRan> {
    let mut sums: BTreeMap<(String, Kind, Option<i32>), Nanos> = BTreeMap::new();
    for (source, time) in by {
        *sums.entry(named(source, sources)).or_default() += time;
    }
    let holders = sums.into_iter().map(|((name, kind, pid), time)| PacketRan {
        name,
        kind,
        pid,
        time,
    });
    let mut holders: Vec<PacketRan> = holders.collect();
    holders.sort_by_key(|holder| Reverse(holder.time));
    holders.truncate(HOLDERS);
    holders
}

fn steps(
    lengths: &Lengths,
    slow: [LongDelays; Step::ALL.len()],
    sources: &SourceTable,
) -> Vec<PacketStep> {
    let all = lengths.to_steps().into_iter();
    let mut slow: Vec<Option<LongDelays>> = slow.into_iter().map(Some).collect();
    let steps = all.map(|StepLength { step, length }| {
        let slow = slow[step as usize].take().unwrap_or_default();
        PacketStep {
            step,
            length,
            slow_count: slow.count,
            ran: holders(slow.by, sources),
        }
    });
    steps.collect()
}

fn delay(followed: &Followed, begin: Nanos, sources: &SourceTable) -> PacketDelay {
    let arrival = &followed.arrival;
    let raised = arrival.path.raised;
    PacketDelay {
        thread: sources.get(arrival.source).name.to_string(),
        pid: arrival.pid,
        tid: arrival.path.tid,
        at: arrival.begin() - begin,
        length: arrival.length(),
        cpu: arrival.path.cpu,
        ran_on: arrival.ran_on,
        raised_by: raised.map(|(_, by)| raiser(by, sources).to_string()),
        received_in: followed.received_in,
        steps: arrival
            .steps()
            .map(|(step, time)| StepTime { step, time })
            .collect(),
        longest: arrival.longest().0,
        ran: holders(followed.by.iter().copied(), sources),
    }
}

/// Returns the kernel's counters for the CPUs that received packets.
fn cpus(header: &Header) -> Vec<PacketCpu> {
    let counted = header.after.softnet.iter().filter_map(|(cpu, after)| {
        let since = after.since(header.before.softnet.get(cpu)?);
        Some((Cpu(*cpu), since))
    });
    counted
        .filter(|(_, since)| since.processed > 0)
        .map(|(cpu, since)| PacketCpu {
            cpu,
            processed: since.processed,
            dropped: since.dropped,
            squeezed: since.squeezed,
        })
        .collect()
}
