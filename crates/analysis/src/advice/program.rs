//! Advice for the watched program.

use std::collections::BTreeMap;

use ticktax_model::advice::{Advice, CompetingProgram, NeededBudget};
use ticktax_model::beats::BeatLine;
use ticktax_model::kernel_words::UNREPORTED;
use ticktax_model::statement::{StartedProcesses, Statement};
use ticktax_model::victim::{
    DeadlineBudget, HoldUp, Interferer, LITTLE_DELAY, LONG_WAIT, LateCause, PROBE, ShortLived,
    Stall, TOOL, ThreadState, ThreadTimes, VictimStatement,
};
use ticktax_model::{CpuList, Kind, Nanos};

use super::machine::{processes_started, stolen};
use super::{Processes, confined};
use crate::victim::{InRhythm, beat_of, in_rhythm, timer_of};

/// Minimum waiting time to report, as a share of the time that the program needed a CPU.
const MUCH_WAITING: f64 = 0.01;
/// The value of [`MUCH_WAITING`] for a loop without late frames, which had time to spare.
const MUCH_IN_TIME: f64 = 0.05;
/// A program is reported if it caused at least this share of the waiting.
const MUCH_OF_WAITING: f64 = 0.1;
/// If the program's short-lived processes caused more than this share of its waiting behind its own
/// threads, it should start fewer of them.
const MOSTLY_OWN_PROCESSES: f64 = 0.5;
/// Minimum throttled time to report, as a share of the time that the program needed a CPU.
const MUCH_THROTTLED: f64 = 0.005;
/// If real-time throttling caused more than this share of the waiting, it is the only cause
/// reported.
const MOSTLY_HELD: f64 = 0.5;
/// Minimum time in interrupts or page faults to report, as a share of the time that the program
/// needed a CPU.
const MUCH_INTERRUPTED: f64 = 0.05;

/// Processes with the same name that ran while the watched program waited, and the CPU time that
/// they used.
#[derive(Debug, Default)]
struct Crowd<'a> {
    pids: Vec<i32>,
    time: Nanos,
    /// The threads that ran, longest time first.
    parts: Vec<&'a Interferer>,
}

/// Minimum share of the lost time that leads to advice. There are two exceptions: the cause of late
/// frames, and a cause whose longest interval is at least [`RARE`] of the longest stall.
const MUCH_OF_LOSS: f64 = 0.05;
/// See [`MUCH_OF_LOSS`].
const RARE: f64 = 0.5;
/// Minimum stalled time to report, as a share of the time that the program had work.
const MUCH_STALLED: f64 = 0.01;

/// Owner of a crowd. The crowd's name alone can be ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CrowdOwner {
    /// The kernel: a kernel thread or an interrupt.
    Kernel,
    /// The watched program.
    Own,
    Others,
}

pub(super) fn advise(
    statement: &Statement,
    victim: &VictimStatement,
    threads: &ThreadTimes,
    processes: &Processes<'_>,
) -> Vec<Advice> {
    let mut found: Vec<(Nanos, Advice)> = Vec::new();
    let wanted: Nanos = wanted(threads);
    found.extend(waiting(statement, victim, threads, processes));
    found.extend(held(threads, wanted));
    found.extend(throttled(victim, threads, wanted));
    found.extend(interrupted(threads, wanted));
    found.extend(memory(victim, threads, wanted));
    found.extend(stalled(victim, threads, processes, wanted));
    one_for_each_limit(&mut found);
    let lost = threads.stalled();
    let late = victim
        .frames
        .as_ref()
        .and_then(|frames| frames.late.as_ref());
    let frames = |about: &dyn Fn(&LateCause) -> bool| -> u64 {
        let causes = late.iter().flat_map(|late| &late.causes);
        let causes = causes.filter(|cause| about(cause));
        causes.map(|cause| cause.frames + cause.dropped).sum()
    };
    let all_frames = frames(&|_| true);
    let delayed = |advice: &Advice| {
        let its = frames(&|cause| advice.is_about(cause));
        its > 0 && its as f64 >= all_frames as f64 * MUCH_OF_LOSS
    };
    // Users notice late frames. Waits that made no frame late are not what delayed the program.
    let is_beside = |advice: &Advice| {
        all_frames > 0
            && concerns(advice, HoldUp::Waiting)
            && frames(&|cause| cause.kind == HoldUp::Waiting) == 0
    };
    let longest = threads.stalls.iter().map(|stall| stall.max).max();
    found.retain(|(time, advice)| {
        let is_much = || {
            lost == Nanos::ZERO
                || time.share_of(lost) >= MUCH_OF_LOSS
                || max_of(advice).share_of(longest.unwrap_or_default()) >= RARE
        };
        delayed(advice) || *time >= LITTLE_DELAY && is_much() && !is_beside(advice)
    });
    found.extend(stolen(statement));
    // Advice on the cause of late frames comes first, because users notice late frames.
    let is_unknown = |kind| kind == HoldUp::Unexplained;
    let costliest = threads.stalls.iter().find(|stall| !is_unknown(stall.kind));
    let causes = || late.iter().flat_map(|late| &late.causes);
    // If several programs made frames late, the one that did so most often comes first.
    let worst = causes().find(|cause| match costliest {
        Some(stall) => cause.kind == stall.kind,
        None => !is_unknown(cause.kind),
    });
    let leads = |advice: &Advice| {
        let is_costliest = costliest.is_some_and(|stall| concerns(advice, stall.kind));
        worst.map_or(is_costliest, |cause| advice.is_about(cause))
    };
    found.sort_by_key(|(time, advice)| (!leads(advice), std::cmp::Reverse(*time)));
    found.into_iter().map(|(_, advice)| advice).collect()
}

/// Returns whether a piece of advice is about this kind of stall.
fn concerns(advice: &Advice, kind: HoldUp) -> bool {
    match (kind, advice) {
        (
            HoldUp::Waiting,
            Advice::PeriodicProgram { .. }
            | Advice::CompetingPrograms { .. }
            | Advice::CompetingKernelThread { .. }
            | Advice::ConfinedToCpus { .. }
            | Advice::OwnThreads { .. }
            | Advice::ShortLivedProcesses { .. },
        )
        | (HoldUp::RealTimeLimit, Advice::RealTimeLimited { .. })
        | (HoldUp::Interrupts, Advice::Interrupts { .. })
        | (HoldUp::Quota, Advice::Throttled { .. })
        | (HoldUp::PageFaults, Advice::PageFaults { .. })
        | (HoldUp::Reclaim, Advice::MemoryReclaim { .. }) => true,
        (kind, Advice::Stalled { stall, .. }) => stall.kind == kind,
        _ => false,
    }
}

/// Returns the longest interval behind a piece of advice, or zero if it is unknown.
fn max_of(advice: &Advice) -> Nanos {
    match advice {
        Advice::PeriodicProgram { max, .. } => *max,
        Advice::Stalled { stall, .. } => stall.max,
        _ => Nanos::ZERO,
    }
}

/// Returns advice on stalls that are not waits for a CPU.
fn stalled(
    victim: &VictimStatement,
    threads: &ThreadTimes,
    processes: &Processes<'_>,
    wanted: Nanos,
) -> impl Iterator<Item = (Nanos, Advice)> {
    let lost = threads.stalled();
    let budget = processes
        .watched
        .and_then(|watched| needed_budget(victim, watched.deadline?));
    let much = move |stall: &&Stall| {
        let has_frames = stall.frames + stall.dropped > 0;
        // Work that made no frame late was done in time.
        let is_much = stall.time.share_of(wanted + stall.time) >= MUCH_STALLED;
        // Programs sleep when they have no work, so a sleep matters only if it makes frames late.
        let is_late_sleep = stall.kind == HoldUp::OwnSleep && has_frames;
        is_late_sleep
            || is_specific(stall.kind) && (has_frames || is_much || stall.max >= LONG_WAIT)
    };
    threads.stalls.iter().filter(much).map(move |stall| {
        let is_frozen = stall.kind == HoldUp::Frozen;
        let advice = Advice::Stalled {
            stall: stall.clone(),
            share: stall.time.share_of(lost),
            freezer: victim.freezer.clone().filter(|_| is_frozen),
            budget: budget.filter(|_| stall.kind == HoldUp::Deadline),
            memory_limit: victim
                .memory_limit
                .clone()
                .filter(|_| is_about_memory(stall.kind)),
        };
        (stall.time, advice)
    })
}

/// Returns the `SCHED_DEADLINE` budget that the longest frame needs. Returns `None` if no frames
/// were seen, if they fit into the current budget, or if the CPU cannot give them enough time.
fn needed_budget(victim: &VictimStatement, budget: DeadlineBudget) -> Option<NeededBudget> {
    /// Allowance for the time that the kernel takes to notice that a budget is used up and to
    /// switch.
    const SPARE: f64 = 1.1;
    const STEP: i64 = 100_000;
    let figures = &victim.frames.as_ref()?.figures;
    let work = figures.work.as_ref()?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a frame takes far less than 292 years"
    )]
    let with_spare = (work.max.0 as f64 * SPARE) as i64;
    let runtime = Nanos((with_spare + STEP - 1) / STEP * STEP);
    let fits = runtime <= budget.deadline;
    (work.max > budget.runtime && fits).then_some(NeededBudget {
        budget,
        used: work.max,
        frames: work.count,
        needed: runtime,
    })
}

/// If several pieces of advice suggest raising the same memory limit, keeps only the one that
/// accounts for the most time.
fn one_for_each_limit(found: &mut Vec<(Nanos, Advice)>) {
    let is_about_limit = |advice: &Advice| {
        matches!(
            advice,
            Advice::MemoryReclaim { limit: Some(_), .. }
                | Advice::Stalled {
                    memory_limit: Some(_),
                    ..
                }
        )
    };
    // Waits explain late frames, so they matter more than reclaim.
    let rank = |(time, advice): &(Nanos, Advice)| {
        let is_limit = matches!(advice, Advice::Stalled { stall, .. }
            if stall.kind == HoldUp::MemoryLimit);
        (is_limit, *time)
    };
    let about_limit = found.iter().filter(|(_, advice)| is_about_limit(advice));
    let Some(best) = about_limit.max_by_key(|found| rank(found)).cloned() else {
        return;
    };
    found.retain(|found| !is_about_limit(&found.1) || *found == best);
}

/// Returns whether this kind of stall becomes longer when a cgroup reaches its memory limit. The
/// kernel then also makes writers wait until the cgroup's dirty pages are on disk.
fn is_about_memory(kind: HoldUp) -> bool {
    matches!(
        kind,
        HoldUp::Memory | HoldUp::MemoryLimit | HoldUp::Writeback
    )
}

/// Returns whether no other advice covers this kind of stall.
fn is_specific(kind: HoldUp) -> bool {
    kind.is_blocked()
        || matches!(
            kind,
            HoldUp::Deadline | HoldUp::SystemCall | HoldUp::OwnWork
        )
}

fn wanted(threads: &ThreadTimes) -> Nanos {
    let wanted = threads.accounts.iter().filter(|a| a.state.is_wanted());
    wanted.map(|account| account.time).sum()
}

/// Returns the total time that threads spent in `state`, with the number of periods and the longest
/// one.
fn in_state(threads: &ThreadTimes, state: ThreadState) -> (Nanos, u64, Nanos) {
    let mut accounts = threads.accounts.iter();
    let account = accounts.find(|account| account.state == state);
    account.map_or((Nanos::ZERO, 0, Nanos::ZERO), |account| {
        (account.time, account.count, account.max.unwrap_or_default())
    })
}

/// Returns advice on the programs and kernel threads that the program waited for.
fn waiting(
    statement: &Statement,
    victim: &VictimStatement,
    threads: &ThreadTimes,
    processes: &Processes<'_>,
) -> Vec<(Nanos, Advice)> {
    let (waited, _, longest) = in_state(threads, ThreadState::Waiting);
    // If throttling kept the program from running, it is also why other programs ran in the
    // meantime.
    let held: Nanos = threads.real_time.iter().map(|held| held.time).sum();
    if held.share_of(waited + held) > MOSTLY_HELD {
        return Vec::new();
    }
    let frames = victim.frames.as_ref();
    let much = if frames.is_some_and(|frames| frames.figures.untimely() == 0) {
        MUCH_IN_TIME
    } else {
        MUCH_WAITING
    };
    if waited.share_of(wanted(threads)) < much && longest < LONG_WAIT {
        return Vec::new();
    }
    let mut found = Vec::new();
    found.extend(confined::advise(statement, processes.watched, waited));
    let mut crowding: Vec<CompetingProgram> = Vec::new();
    let mut own_crowds: Vec<(&str, Nanos)> = Vec::new();
    for ((name, owner), crowd) in crowds(&threads.behind, victim.pid) {
        let share = crowd.time.share_of(waited);
        let much = share >= MUCH_OF_WAITING;
        let rhythm = rhythm(&crowd, statement);
        let rhythm = rhythm.filter(|(rhythm, _)| much || rhythm.max >= LONG_WAIT);
        let advice = match (owner, &*crowd.pids, rhythm) {
            (CrowdOwner::Kernel, ..) if much => Advice::CompetingKernelThread {
                name: name.to_owned(),
                time: crowd.time,
                share,
            },
            (CrowdOwner::Own, ..) => {
                own_crowds.push((name, crowd.time));
                continue;
            }
            (CrowdOwner::Others, &[pid], Some((rhythm, beat))) => Advice::PeriodicProgram {
                program: name.to_owned(),
                pid,
                period: rhythm.period,
                timer: timer_of(beat).cloned(),
                policy: crowd.parts.first().and_then(|part| part.policy),
                cpus: beat.cpus.clone(),
                other_cpus: other_cpus(statement, &threads.waited_on),
                time: rhythm.time,
                max: rhythm.max,
                exited: processes.has_ended(pid),
            },
            (CrowdOwner::Others, [_, ..], _) if much => {
                let crowding_program = (name, crowd.pids, crowd.time);
                let own = match processes.followed {
                    [] => victim.pid.as_slice(),
                    followed => followed,
                };
                crowding.push(processes.crowding(crowding_program, Some(own)));
                continue;
            }
            _ => continue,
        };
        found.push((crowd.time, advice));
    }
    found.extend(own(statement, victim, threads, waited, &own_crowds));
    crowding.sort_by_key(|program| std::cmp::Reverse(program.time));
    if !crowding.is_empty() {
        let time: Nanos = crowding.iter().map(|program| program.time).sum();
        let advice = Advice::CompetingPrograms {
            programs: crowding,
            time,
            share: time.share_of(waited),
        };
        found.push((time, advice));
    }
    found
}

/// Returns advice on the time that the program `waited` behind its own threads and processes.
/// `crowds` contains their names and times.
fn own(
    statement: &Statement,
    victim: &VictimStatement,
    threads: &ThreadTimes,
    waited: Nanos,
    crowds: &[(&str, Nanos)],
) -> Option<(Nanos, Advice)> {
    let time: Nanos = crowds.iter().map(|(_, time)| *time).sum();
    let share = time.share_of(waited);
    if share < MUCH_OF_WAITING {
        return None;
    }
    let short_lived = crowds.iter().filter_map(|(name, time)| {
        let sum = threads.short_lived.iter().find(|sum| sum.name == *name)?;
        Some((*time, sum))
    });
    let most = short_lived.max_by_key(|(time, _)| *time);
    let most = most.filter(|(of_most, _)| of_most.share_of(time) > MOSTLY_OWN_PROCESSES);
    let advice = most.and_then(|(of_most, sum)| {
        own_short_lived(statement, victim, sum, of_most.share_of(waited))
    });
    let advice = advice.unwrap_or(Advice::OwnThreads {
        threads: threads.threads,
        time,
        share,
    });
    Some((time, advice))
}

/// Returns advice to start fewer short-lived processes. `waits_share` is their share of the
/// program's waiting.
fn own_short_lived(
    statement: &Statement,
    victim: &VictimStatement,
    most: &ShortLived,
    waits_share: f64,
) -> Option<Advice> {
    let started = StartedProcesses {
        name: most.name.clone(),
        count: most.count,
        time: most.time,
        started_by: victim.name.clone(),
        started_by_pid: victim.pid?,
    };
    processes_started(statement, started, Some(waits_share))
}

/// Returns advice on the program's real-time threads if they were throttled.
fn held(threads: &ThreadTimes, wanted: Nanos) -> impl Iterator<Item = (Nanos, Advice)> {
    let all = threads.real_time.iter();
    let much = all.filter(move |held| held.time.share_of(wanted) >= MUCH_THROTTLED);
    much.map(|held| {
        let advice = Advice::RealTimeLimited {
            held: held.clone(),
            costly: false,
        };
        (held.time, advice)
    })
}

fn crowds(behind: &[Interferer], watched: Option<i32>) -> BTreeMap<(&str, CrowdOwner), Crowd<'_>> {
    let mut crowds: BTreeMap<(&str, CrowdOwner), Crowd<'_>> = BTreeMap::new();
    for interferer in behind
        .iter()
        .filter(|interferer| has_known_owner(interferer))
    {
        let owner = match interferer.pid {
            None => CrowdOwner::Kernel,
            pid if interferer.same_program || pid == watched => CrowdOwner::Own,
            _ => CrowdOwner::Others,
        };
        let name = interferer.program.as_deref().unwrap_or(&interferer.name);
        let crowd = crowds.entry((name, owner)).or_default();
        crowd.time += interferer.time;
        crowd.parts.push(interferer);
        let pid = interferer.pid.filter(|pid| !crowd.pids.contains(pid));
        crowd.pids.extend(pid);
    }
    crowds
}

/// Returns whether advice can name the owner of this time. An idle CPU delays nobody, and the owner
/// of an unreported thread is unknown. Stolen time and ticktax's own cost are reported elsewhere.
fn has_known_owner(interferer: &Interferer) -> bool {
    let by_name =
        interferer.pid.is_none() && matches!(&*interferer.name, TOOL | PROBE | UNREPORTED);
    !by_name && !matches!(interferer.kind, Kind::Idle | Kind::Steal)
}

/// Returns the rhythm in which a crowd used most of its CPU time, and the beat that shows it.
/// Returns `None` unless the crowd is a single process with such a beat.
fn rhythm<'a>(crowd: &Crowd<'_>, statement: &'a Statement) -> Option<(InRhythm, &'a BeatLine)> {
    let [pid] = *crowd.pids else {
        return None;
    };
    let rhythm = in_rhythm(&crowd.parts)?;
    let beats = &statement.beats.as_ref()?.beats;
    Some((rhythm, beat_of(beats, pid, rhythm.period)?))
}

/// Returns the online CPUs on which the program did not wait, except isolated ones. Returns `None`
/// if that leaves no CPU, or if it is unknown where the program waited.
fn other_cpus(statement: &Statement, waited_on: &CpuList) -> Option<CpuList> {
    let apart = statement.machine.configured.set_apart();
    let others = statement.machine.online.iter();
    let others = others.filter(|cpu| !waited_on.contains(*cpu) && !apart.contains(*cpu));
    let others: CpuList = others.collect();
    (!others.is_empty() && !waited_on.is_empty()).then_some(others)
}

fn throttled(
    victim: &VictimStatement,
    threads: &ThreadTimes,
    wanted: Nanos,
) -> Option<(Nanos, Advice)> {
    let (time, count, _) = in_state(threads, ThreadState::Throttled);
    if time.share_of(wanted) < MUCH_THROTTLED {
        return None;
    }
    // Name the cgroup whose counters show throttling, because the program may have moved its
    // threads to another cgroup since then.
    let quota = victim.throttling.as_ref();
    let quota = quota.filter(|quota| quota.throttled > 0);
    let cgroup = quota.map(|quota| quota.cgroup.clone());
    let on_cpu = [
        ThreadState::Running,
        ThreadState::SystemCall,
        ThreadState::PageFault,
        ThreadState::Reclaim,
    ];
    let ran: Nanos = on_cpu.map(|state| in_state(threads, state).0).iter().sum();
    let busiest = threads.busiest.first();
    let busiest = busiest.filter(|thread| threads.threads > 1 && thread.time.share_of(ran) > 0.5);
    let advice = Advice::Throttled {
        program: victim.name.clone(),
        pid: victim.pid,
        burst: victim.needed_burst.filter(|_| cgroup.is_some()),
        cgroup,
        time,
        count,
        exited: victim.exited,
        busiest_share: busiest.map_or(0.0, |thread| thread.time.share_of(ran)),
        busiest: busiest.cloned(),
    };
    Some((time, advice))
}

fn interrupted(threads: &ThreadTimes, wanted: Nanos) -> Option<(Nanos, Advice)> {
    let (time, ..) = in_state(threads, ThreadState::Interrupted);
    let share = time.share_of(wanted);
    let most = threads.interrupted_by.first()?;
    let all: Nanos = threads
        .interrupted_by
        .iter()
        .map(|interferer| interferer.time)
        .sum();
    (share >= MUCH_INTERRUPTED).then(|| {
        let advice = Advice::Interrupts {
            name: most.name.clone(),
            time: most.time,
            largest_share: most.time.share_of(all),
            share,
        };
        (time, advice)
    })
}

fn memory(victim: &VictimStatement, threads: &ThreadTimes, wanted: Nanos) -> Vec<(Nanos, Advice)> {
    let mut found = Vec::new();
    let (time, count, _) = in_state(threads, ThreadState::PageFault);
    let share = time.share_of(wanted);
    if share >= MUCH_INTERRUPTED {
        found.push((time, Advice::PageFaults { time, count, share }));
    }
    let (time, ..) = in_state(threads, ThreadState::Reclaim);
    if time.share_of(wanted) >= MUCH_WAITING {
        let limit = victim.memory_limit.clone();
        found.push((time, Advice::MemoryReclaim { time, limit }));
    }
    found
}
