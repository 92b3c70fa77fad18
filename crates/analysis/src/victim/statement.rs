//! Builds the victim's statement from its threads' lives.

use std::collections::{BTreeMap, BTreeSet};

use ticktax_model::beats::BeatLine;
use ticktax_model::recording::{EndedEarly, Header};
use ticktax_model::sampled_code::SampledCode;
use ticktax_model::victim::{
    Delay, Episode, Interferer, Latency, LostTo, MOVED, ProgramFrames, StateAccount, Target,
    ThreadState, ThreadTimes, VictimHeader, VictimStatement,
};
use ticktax_model::{Cpu, CpuList, Kind, Nanos, SourceId, SourceTable};

use super::life::Life;
use super::processes::{busiest, short_lived};
use super::rhythm::{ThreadShare, link, period};
use super::stalls::{Finished, blame_limit, delay_place, is_of_all_threads, is_other_rhythm, rank};
use super::times::{Interval, Times};
use super::wakers::Wakers;
use super::worst::{Candidate, Episodes, Worst};
use super::{Victim, WaitsBehind};
use crate::Subject;
use crate::fast_map::FastMap;
use crate::ledger::tally::Tally;
use crate::names::{name, named, program, waker};
use crate::ran::Ran;
use crate::real_time::LimitedWaits;
use crate::sampled::{Samples, is_same};
use crate::waited::WaitCodes;

/// Results of other analyses that the victim's statement depends on.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    /// The recording's beats, or empty if they were not searched for.
    pub(crate) beats: &'a [BeatLine],
    /// Threads that ran while the victim waited.
    pub(crate) ran: &'a Ran,
    /// The frames of the victim's loop.
    pub(crate) frames: Option<ProgramFrames>,
    /// The samples of the code that kept threads waiting.
    pub(crate) samples: &'a Samples,
    /// The user code in which threads waited.
    pub(crate) codes: &'a WaitCodes,
}

pub(super) fn make(
    victim: Victim,
    about: &VictimHeader,
    header: &Header,
    sources: &SourceTable,
    evidence: Evidence<'_>,
) -> VictimStatement {
    let usage = about.after.zip(about.before);
    let quota = header.after.throttling.as_ref();
    let quota = quota.zip(header.before.throttling.as_ref());
    let throttling = quota.and_then(|(after, before)| after.since(before));
    let exceeded = throttling.as_ref().filter(|quota| quota.throttled > 0);
    let needed_burst = exceeded.and_then(|quota| victim.demand.burst(quota));
    let times = || threads(victim, about, header, sources, &evidence);
    let mut threads = about.followed.then(times);
    let Evidence {
        beats, ran, frames, ..
    } = evidence;
    let mut frames = frames;
    if let Some(late) = frames.as_mut().and_then(|frames| frames.late.as_mut()) {
        let behind = threads.as_ref().map_or(&[][..], |threads| &*threads.behind);
        link(late, behind, beats, |pid| ran.policy(pid, &header.policies));
    }
    if let Some(threads) = &mut threads {
        if about.memory_limit.is_some() {
            blame_limit(threads);
        }
        frames = frames.filter(|frames| !is_other_rhythm(threads, frames));
        rank(threads, frames.as_ref());
    }
    VictimStatement {
        needed_burst,
        target: about.target.clone(),
        name: program_name(about, header),
        pid: about.pid,
        exited: has_ended(about, header),
        threads,
        usage: usage.map(|(after, before)| after.since(&before)),
        throttling,
        frames: frames.map(Box::new),
        freezer: about.freezer.clone(),
        memory_limit: about.memory_limit.clone(),
        stolen: header.stolen(),
    }
}

/// Returns the name of the program. A cgroup has the name of its service, container or pod.
fn program_name(about: &VictimHeader, header: &Header) -> String {
    if let Target::Cgroup(folder) = &about.target
        && let Subject::Cgroup(path) = Subject::cgroup(folder)
        && let Some(name) = header.groups.known_name(&path)
    {
        return name;
    }
    about.name.clone()
}

fn has_ended(about: &VictimHeader, header: &Header) -> bool {
    let command = header
        .command
        .as_ref()
        .filter(|_| about.target == Target::Command);
    header.ended_early == Some(EndedEarly::ProgramExited)
        || command.is_some_and(|command| command.exit.is_some())
}

fn threads(
    mut victim: Victim,
    about: &VictimHeader,
    header: &Header,
    sources: &SourceTable,
    evidence: &Evidence<'_>,
) -> ThreadTimes {
    let may_miss_rows = about.incomplete.is_some() || header.coverage.events_lost() > 0;
    // If a thread was only ever throttled, its rows do not show whether it is the victim's, but its
    // process id does.
    let pids = victim.processes(Some(about));
    let is_reported = |tid: i32| about.only_thread.is_none_or(|only| only == tid);
    for (&tid, life) in &mut victim.threads {
        if pids.contains(&life.pid) && is_reported(tid) {
            life.follow(&mut victim.worst);
        }
    }
    for life in &mut victim.past_lives {
        if pids.contains(&life.pid) && about.only_thread.is_none() {
            life.follow(&mut victim.worst);
        }
    }
    let present = victim.threads.iter().map(|(&tid, life)| (tid, life));
    let before = victim.past_lives.iter().map(|life| (0, life));
    let lives: BTreeMap<(i32, usize), &Life> = present
        .chain(before)
        .filter(|(tid, life)| pids.contains(&life.pid) && is_reported(*tid) && !life.is_empty())
        .enumerate()
        .map(|(place, (tid, life))| ((tid, place), life))
        .collect();
    let mut times = ThreadTimes {
        processes: lives
            .values()
            .map(|life| life.pid)
            .collect::<BTreeSet<_>>()
            .len() as u64,
        threads: lives.len() as u64,
        migrations: victim.migrations,
        ..ThreadTimes::default()
    };
    let mut states: BTreeMap<ThreadState, Tally> = BTreeMap::new();
    let mut interrupted_by: BTreeMap<SourceId, Tally> = BTreeMap::new();
    for (&(tid, _), life) in &lives {
        times.elapsed += life.elapsed();
        for (&state, tally) in &life.states {
            states.entry(state).or_default().merge(tally);
        }
        for (&source, tally) in &life.interrupted_by {
            interrupted_by.entry(source).or_default().merge(tally);
        }
        let missing = life.elapsed() - life.accounted();
        if missing != Nanos::ZERO && (may_miss_rows || life.taken_over) {
            states
                .entry(ThreadState::Unseen)
                .or_default()
                .add(missing, missing);
        } else if missing != Nanos::ZERO {
            times.imbalances.push((tid, -missing));
        }
    }
    let by_id: Vec<(i32, &Life)> = lives.iter().map(|(&(tid, _), &life)| (tid, life)).collect();
    times.busiest = busiest(&by_id, sources);
    times.short_lived = short_lived(&by_id, sources, header.end());
    times.accounts = accounts(states);
    times.accounted = times.accounts.iter().map(|account| account.time).sum();
    times.latency = latency(&victim);
    times.latency_buckets = victim.latency.histogram.buckets().collect();
    let begin = header.begin().unwrap_or(about.begin);
    let rhythms = Rhythms {
        beats: evidence.beats,
        origin: begin,
        wakers: &victim.wakers,
    };
    let behind = victim.behind.iter().map(|(&key, waits)| (key, waits));
    let in_order: BTreeMap<_, _> = behind.collect();
    times.behind = interferers(in_order, sources, &rhythms, evidence.samples);
    times.waited_on = waited_on(&victim.behind_on, sources);
    complete(&mut times.behind, &pids, evidence.ran, header);
    times.interrupted_by = interruptions(interrupted_by, sources, rhythms, evidence.samples);
    let finished = victim.stalls.finish(sources, begin, &pids, &is_reported);
    add_stalls(&mut times, &mut victim.worst, finished);
    let limited = victim.limited;
    times.delays = longest(victim.worst, limited.as_ref(), begin, sources);
    let is_own = |pid, tid| pids.contains(&pid) && is_reported(tid);
    evidence.codes.add_to(&mut times, begin, sources, &is_own);
    if let Some(limited) = limited {
        times.real_time = limited.programs(sources, |pid| pids.contains(&pid));
    }
    times
}

/// Adds to each culprit whether it is one of the program's processes, `pids`, and its policy.
fn complete(culprits: &mut [Interferer], pids: &BTreeSet<i32>, ran: &Ran, header: &Header) {
    for culprit in culprits {
        let pid = culprit.pid;
        culprit.same_program = pid.is_some_and(|pid| pids.contains(&pid));
        culprit.policy = pid.and_then(|pid| ran.policy(pid, &header.policies));
    }
}

/// Adds the stalls that only the rows show. They compete for a place among the longest delays, for
/// example if the program's own work took unusually long.
fn add_stalls(times: &mut ThreadTimes, worst: &mut Worst, finished: Finished) {
    for work in &finished.work {
        worst.offer(Candidate::stalled(work.kind, &work.span, None, None));
    }
    times.blocked = finished.blocked;
    times.stalls = finished.stalls;
}

/// Lists what interrupted the victim. No periods are given, because the times were not kept.
fn interruptions(
    by_source: BTreeMap<SourceId, Tally>,
    sources: &SourceTable,
    rhythms: Rhythms<'_>,
    samples: &Samples,
) -> Vec<Interferer> {
    let times = Times::default;
    let untimed = by_source.into_iter();
    let untimed = untimed.map(|(id, sum)| {
        (
            id,
            WaitsBehind {
                sum,
                times: times(),
            },
        )
    });
    let untimed: Vec<(SourceId, WaitsBehind)> = untimed.collect();
    let not_moved = untimed.iter().map(|(id, sum)| ((*id, false), sum));
    let rhythms = Rhythms {
        beats: &[],
        ..rhythms
    };
    interferers(not_moved, sources, &rhythms, samples)
}

fn accounts(states: BTreeMap<ThreadState, Tally>) -> Vec<StateAccount> {
    let entered = states.into_iter().filter(|(_, tally)| !tally.is_empty());
    entered
        .map(|(state, tally)| StateAccount {
            state,
            time: tally.time,
            count: tally.count,
            max: tally.max(),
        })
        .collect()
}

fn latency(victim: &Victim) -> Option<Latency> {
    let intervals = victim.latency.intervals();
    Some(Latency {
        count: intervals.count,
        lengths: intervals.lengths()?,
    })
}

/// Waiting time caused by one interferer.
#[derive(Debug, Default)]
struct Share {
    program: Option<String>,
    threads: BTreeMap<i32, ThreadShare>,
    tally: Tally,
    /// The times at which the victim waited behind each source.
    waits: Vec<(SourceId, Vec<Interval>)>,
}

impl Share {
    /// Adds intervals in which the victim waited behind `source`. The rows of one thread can have
    /// several sources, such as its page faults.
    fn note_waits(&mut self, source: SourceId, intervals: &[Interval], sources: &SourceTable) {
        let mut waits = self.waits.iter_mut();
        match waits.find(|(other, _)| is_same(*other, source, sources)) {
            Some((_, known)) => known.extend(intervals),
            None => self.waits.push((source, intervals.to_vec())),
        }
    }

    /// Returns the code in which samples found the interferer during the victim's waits.
    fn code(&self, samples: &Samples, sources: &SourceTable) -> Option<SampledCode> {
        let of = |id| {
            let mut waits = self.waits.iter();
            waits.find(move |(source, _)| is_same(*source, id, sources))
        };
        let is_wait = |id, at| {
            let mut waits = of(id).into_iter().flat_map(|(_, intervals)| intervals);
            waits.any(|&(begin, end)| begin <= at && at < end)
        };
        let mut code = samples.code(|id| of(id).is_some(), is_wait)?;
        if let Some(walk) = &mut code.walk {
            let times = samples.times_in(&walk.function, |id| of(id).is_some());
            let intervals = self.waits.iter().flat_map(|(_, intervals)| intervals);
            let walked = intervals.filter(|&&(begin, end)| {
                let mut times = times.iter();
                times.any(|&at| begin <= at && at < end)
            });
            walk.longest = walked.map(|&(begin, end)| end - begin).max();
            let objects = walk.objects.and_then(|objects| i64::try_from(objects).ok());
            let objects = objects.filter(|&objects| objects > 0).zip(walk.longest);
            walk.per_object = objects.map(|(objects, longest)| Nanos(longest.0 / objects));
        }
        Some(code)
    }
}

/// A CPU is omitted if the victim spent less than this share of its waiting time there. Time during
/// which that CPU was idle does not count.
const LITTLE: f64 = 0.01;

/// Returns the CPUs that the victim waited for while they were busy.
fn waited_on(behind: &FastMap<(SourceId, Cpu), Nanos>, sources: &SourceTable) -> CpuList {
    let mut cpus: BTreeMap<Cpu, Nanos> = BTreeMap::new();
    for (&(id, cpu), &time) in behind {
        if sources.get(id).kind != Kind::Idle {
            *cpus.entry(cpu).or_default() += time;
        }
    }
    let all: Nanos = cpus.values().copied().sum();
    let relevant = cpus
        .into_iter()
        .filter(|(_, time)| time.share_of(all) >= LITTLE);
    relevant.map(|(cpu, _)| cpu).collect()
}

/// Beats, and the data needed to compare waiting times with them.
#[derive(Clone, Copy)]
struct Rhythms<'a> {
    beats: &'a [BeatLine],
    /// Reference time of the beats' phases.
    origin: Nanos,
    wakers: &'a Wakers,
}

/// Returns the interferers, largest total first. A key of `by_source` is a source, and whether the
/// wait ended on a different CPU from the one where the source ran. Keys must be in ascending
/// order.
fn interferers<'a>(
    by_source: impl IntoIterator<Item = ((SourceId, bool), &'a WaitsBehind)>,
    sources: &SourceTable,
    rhythms: &Rhythms<'_>,
    samples: &Samples,
) -> Vec<Interferer> {
    let phase = (rhythms.beats, rhythms.origin);
    let mut by_name: BTreeMap<(String, Option<i32>, Kind, bool), Share> = BTreeMap::new();
    for ((id, moved), WaitsBehind { sum, times }) in by_source {
        let source = sources.get(id);
        // A function within an interrupt is not a separate interruption.
        let part = matches!(source.kind, Kind::Irq | Kind::Softirq) && !source.detail.is_empty();
        let (mut name, pid) = name(id, sources);
        // Only idle time is a cost of the migration. If another source ran, the thread would also
        // have waited without migrating.
        let moved = moved && source.kind == Kind::Idle;
        if moved {
            name.push_str(MOVED);
        }
        let entry = by_name.entry((name, pid, source.kind, moved)).or_default();
        entry.program = program(id, sources);
        entry.note_waits(id, times.kept(), sources);
        if let Some(thread) = &source.thread {
            let share = entry.threads.entry(thread.tid).or_default();
            share.tally.merge(sum);
            share.times.extend(times.kept());
        }
        entry.tally.merge(&Tally {
            count: if part { 0 } else { sum.count },
            ..*sum
        });
    }
    let mut interferers: Vec<Interferer> = by_name
        .into_iter()
        .map(|((name, pid, kind, moved), share)| Interferer {
            period: pid.and_then(|pid| {
                let woken = |tid| rhythms.wakers.counted(tid);
                period(pid, &share.threads, phase, woken)
            }),
            code: share.code(samples, sources),
            name,
            kind,
            pid,
            program: share.program,
            threads: share.threads.len() as u64,
            same_program: false,
            time: share.tally.time,
            count: share.tally.count,
            max: share.tally.longest,
            migrated: moved,
            policy: None,
        })
        .collect();
    interferers.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    interferers
}

/// Returns the longest delays. If a limit held back a real-time thread, the delay names that limit.
fn longest(
    worst: Worst,
    limited: Option<&LimitedWaits>,
    begin: Nanos,
    sources: &SourceTable,
) -> Vec<Delay> {
    let mut delays: Vec<Candidate> = Vec::new();
    for delay in worst.into_longest() {
        // One freeze or stop of several threads is one delay.
        let is_same = |other: &Candidate| {
            let kind = delay.stall.filter(|kind| is_of_all_threads(*kind));
            kind.is_some_and(|kind| {
                other.stall == Some(kind)
                    && other.span.start < delay.span.end()
                    && delay.span.start < other.span.end()
            })
        };
        if !delays.iter().any(is_same) {
            delays.push(delay);
        }
    }
    let delays = delays.iter().map(|delay| Delay {
        limit: limited.and_then(|waits| waits.limit_of(delay.tid, delay.span.start)),
        ..delay_of(delay, begin, sources)
    });
    delays.collect()
}

fn delay_of(delay: &Candidate, begin: Nanos, sources: &SourceTable) -> Delay {
    let source = sources.get(delay.span.source);
    let start = delay.span.start;
    let episode = |episodes: &Episodes| {
        let (name, pid) = name(episodes.first.source, sources);
        Episode {
            at: episodes.first.start - start,
            length: episodes.time,
            count: episodes.count,
            name,
            kind: sources.get(episodes.first.source).kind,
            pid,
            program: program(episodes.first.source, sources),
        }
    };
    Delay {
        kind: delay.kind,
        thread: source.name.to_string(),
        tid: source.thread.as_ref().map_or(0, |thread| thread.tid),
        cpu: delay.span.cpu,
        waited_on: delay.waited_on,
        // A delay that was in progress when the recording started is listed at the recording's
        // start.
        at: (start - begin).max(Nanos::ZERO),
        length: delay.span.dur,
        timeline: delay.timeline.iter().map(episode).collect(),
        episodes_left_out: delay.more,
        woken_by: delay.woken.map(|(_, by)| waker(by, sources)),
        ran: lost_to(&delay.sums, sources),
        limit: None,
        stall: delay
            .stall
            .map(|kind| delay_place(kind, delay.span.source, sources)),
    }
}

/// Returns how much of a delay each source ran, largest time first. All threads of a program share
/// one entry.
fn lost_to(sums: &[Episodes], sources: &SourceTable) -> Vec<LostTo> {
    let mut by_name: BTreeMap<(String, Kind), LostTo> = BTreeMap::new();
    for sum in sums {
        let (name, kind, pid) = named(sum.first.source, sources);
        let new = || LostTo {
            name: name.clone(),
            kind,
            pids: Vec::new(),
            time: Nanos::ZERO,
            count: 0,
        };
        let lost = by_name.entry((name.clone(), kind)).or_insert_with(new);
        let pid = pid.filter(|pid| !lost.pids.contains(pid));
        lost.pids.extend(pid);
        lost.time += sum.time;
        lost.count += sum.count;
    }
    let mut all: Vec<LostTo> = by_name.into_values().collect();
    all.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    all
}
