//! What to do for the program that was asked for.

use std::collections::BTreeMap;

use ticktax_model::advice::{Advice, CrowdingProgram};
use ticktax_model::beats::BeatLine;
use ticktax_model::kernel_words::UNREPORTED;
use ticktax_model::statement::Statement;
use ticktax_model::victim::{
    HoldUp, Interferer, LateCause, PROBE, TOOL, ThreadState, ThreadTimes, VictimStatement,
};
use ticktax_model::{CpuList, Kind, Nanos};

use super::Processes;
use super::machine::stolen;
use crate::victim::{InRhythm, beat_of, in_rhythm, timer_of};

/// From this share of the time that it wanted on, waiting for a CPU is worth a word.
const MUCH_WAITING: f64 = 0.01;
/// For a loop whose frames were all in time, waiting is from this share on: it had time to spare.
const MUCH_IN_TIME: f64 = 0.05;
/// So is a single wait from this length on.
const LONG_WAIT: Nanos = Nanos::from_millis(10);
/// From this share of all waiting on, who had the CPU meanwhile is named.
const MUCH_OF_WAITING: f64 = 0.1;
/// From this share of the time that it wanted on, being throttled is worth a word.
const MUCH_THROTTLED: f64 = 0.005;
/// From this share of all waiting on, real-time threads waited because of what the kernel leaves them.
const MOSTLY_HELD: f64 = 0.5;
/// From this share on, interrupts are, and page faults.
const MUCH_INTERRUPTED: f64 = 0.05;

/// Who had the CPU while the program waited, all processes of one name together.
#[derive(Debug, Default)]
struct Crowd<'a> {
    pids: Vec<i32>,
    time: Nanos,
    /// Its threads, the costliest first.
    parts: Vec<&'a Interferer>,
}

/// Whose a crowd is: of a name alone that is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    /// The kernel's: one of its threads, or an interrupt.
    Kernel,
    /// The program's own.
    Own,
    Others,
}

/// The rules, the costliest first.
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
    found.extend(memory(threads, wanted));
    found.extend(stolen(statement));
    // What made frames late comes first: it is what people see.
    let late = victim
        .frames
        .as_ref()
        .and_then(|frames| frames.late.as_ref());
    let mut causes = late.iter().flat_map(|late| &late.causes);
    let worst = causes.find(|cause| !cause.kind.is_own());
    let leads = |advice: &Advice| worst.is_some_and(|cause| is_about(advice, cause));
    found.sort_by_key(|(time, advice)| (!leads(advice), std::cmp::Reverse(*time)));
    found.into_iter().map(|(_, advice)| advice).collect()
}

/// Whether a piece of advice is against what made frames late.
fn is_about(advice: &Advice, cause: &LateCause) -> bool {
    let name = cause.by.as_ref().map(|by| &*by.name);
    match (cause.kind, advice) {
        (HoldUp::Waiting, Advice::PeriodicProgram { program, .. }) => name == Some(program),
        (HoldUp::Waiting, Advice::CrowdingPrograms { programs, .. }) => {
            programs.iter().any(|it| name == Some(&it.program))
        }
        (HoldUp::Waiting, Advice::CrowdingKernelThread { name: thread, .. }) => {
            name == Some(thread)
        }
        (HoldUp::Interrupts, Advice::Interrupts { .. })
        | (HoldUp::Quota, Advice::Throttled { .. })
        | (HoldUp::PageFaults, Advice::PageFaults { .. })
        | (HoldUp::Reclaim, Advice::MemoryReclaim { .. }) => true,
        _ => false,
    }
}

fn wanted(threads: &ThreadTimes) -> Nanos {
    let wanted = threads.accounts.iter().filter(|a| a.state.is_wanted());
    wanted.map(|account| account.time).sum()
}

/// The time in a state, how often, and the longest.
fn of(threads: &ThreadTimes, state: ThreadState) -> (Nanos, u64, Nanos) {
    let mut accounts = threads.accounts.iter();
    let account = accounts.find(|account| account.state == state);
    account.map_or((Nanos::ZERO, 0, Nanos::ZERO), |account| {
        (account.time, account.count, account.max.unwrap_or_default())
    })
}

/// Who had the CPU that it waited for.
fn waiting(
    statement: &Statement,
    victim: &VictimStatement,
    threads: &ThreadTimes,
    processes: &Processes<'_>,
) -> Vec<(Nanos, Advice)> {
    let (in_line, _, longest) = of(threads, ThreadState::Waiting);
    // Whoever had the CPU while the kernel kept the program from it had it because of that.
    let held: Nanos = threads.real_time.iter().map(|held| held.time).sum();
    if held.share_of(in_line) > MOSTLY_HELD {
        return Vec::new();
    }
    let frames = victim.frames.as_ref();
    let much = if frames.is_some_and(|frames| frames.figures.untimely() == 0) {
        MUCH_IN_TIME
    } else {
        MUCH_WAITING
    };
    if in_line.share_of(wanted(threads)) < much && longest < LONG_WAIT {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut crowding: Vec<CrowdingProgram> = Vec::new();
    let mut own_time = Nanos::ZERO;
    for ((name, whose), crowd) in crowds(&threads.behind, victim.pid) {
        let share = crowd.time.share_of(in_line);
        let much = share >= MUCH_OF_WAITING;
        let rhythm = rhythm(&crowd, statement);
        let rhythm = rhythm.filter(|(rhythm, _)| much || rhythm.max >= LONG_WAIT);
        let advice = match (whose, &*crowd.pids, rhythm) {
            (Whose::Kernel, ..) if much => Advice::CrowdingKernelThread {
                name: name.to_owned(),
                time: crowd.time,
                share,
            },
            (Whose::Own, ..) => {
                own_time += crowd.time;
                continue;
            }
            (Whose::Others, &[pid], Some((rhythm, beat))) => Advice::PeriodicProgram {
                program: name.to_owned(),
                pid,
                period: rhythm.period,
                timer: timer_of(beat).cloned(),
                policy: crowd.parts.first().and_then(|part| part.policy),
                cpus: beat.cpus.clone(),
                other_cpus: other_cpus(statement, &threads.waited_on),
                time: rhythm.time,
                max: rhythm.max,
                ended: processes.has_ended(pid),
            },
            (Whose::Others, [_, ..], _) if much => {
                let whole = (name, crowd.pids, crowd.time);
                let own = match processes.followed {
                    [] => victim.pid.as_slice(),
                    followed => followed,
                };
                crowding.push(processes.crowding(whole, Some(own)));
                continue;
            }
            _ => continue,
        };
        found.push((crowd.time, advice));
    }
    let share = own_time.share_of(in_line);
    if share >= MUCH_OF_WAITING {
        let advice = Advice::OwnThreads {
            threads: threads.threads,
            time: own_time,
            share,
        };
        found.push((own_time, advice));
    }
    crowding.sort_by_key(|program| std::cmp::Reverse(program.time));
    if !crowding.is_empty() {
        let time: Nanos = crowding.iter().map(|program| program.time).sum();
        let advice = Advice::CrowdingPrograms {
            programs: crowding,
            time,
            share: time.share_of(in_line),
        };
        found.push((time, advice));
    }
    found
}

/// Its real-time threads were kept from a CPU on which nobody went before them.
fn held(threads: &ThreadTimes, wanted: Nanos) -> impl Iterator<Item = (Nanos, Advice)> {
    let all = threads.real_time.iter();
    let much = all.filter(move |held| held.time.share_of(wanted) >= MUCH_THROTTLED);
    much.map(|held| {
        let advice = Advice::RealTimeHeld {
            held: held.clone(),
            costly: false,
        };
        (held.time, advice)
    })
}

fn crowds(behind: &[Interferer], watched: Option<i32>) -> BTreeMap<(&str, Whose), Crowd<'_>> {
    let mut crowds: BTreeMap<(&str, Whose), Crowd<'_>> = BTreeMap::new();
    for interferer in behind.iter().filter(|one| is_somebody(one)) {
        let whose = match interferer.pid {
            None => Whose::Kernel,
            pid if interferer.own || pid == watched => Whose::Own,
            _ => Whose::Others,
        };
        let name = interferer.program.as_deref().unwrap_or(&interferer.name);
        let crowd = crowds.entry((name, whose)).or_default();
        crowd.time += interferer.time;
        crowd.parts.push(interferer);
        let pid = interferer.pid.filter(|pid| !crowd.pids.contains(pid));
        crowd.pids.extend(pid);
    }
    crowds
}

/// Whether it can be said whose time that was, and something be done about it. An idle CPU delays no program; of a
/// thread whose switch was not reported it is not known whose it was; what the hypervisor took, and what ticktax
/// itself costs, is told elsewhere.
fn is_somebody(one: &Interferer) -> bool {
    let by_name = one.pid.is_none() && matches!(&*one.name, TOOL | PROBE | UNREPORTED);
    !by_name && !matches!(one.kind, Kind::Idle | Kind::Steal)
}

/// In which period most of it ran, where it is one process and has one, and the beat that says so.
fn rhythm<'a>(crowd: &Crowd<'_>, statement: &'a Statement) -> Option<(InRhythm, &'a BeatLine)> {
    let [pid] = *crowd.pids else {
        return None;
    };
    let rhythm = in_rhythm(&crowd.parts)?;
    let beats = &statement.beats.as_ref()?.beats;
    Some((rhythm, beat_of(beats, pid, rhythm.period)?))
}

/// The CPUs on which the program did not wait, but for those that are set apart for something; `None` where there is
/// none, or it is not known where it waited.
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
    let (time, count, _) = of(threads, ThreadState::Throttled);
    if time.share_of(wanted) < MUCH_THROTTLED {
        return None;
    }
    // By its counters: a program may have moved its threads to another.
    let quota = victim.throttling.as_ref();
    let quota = quota.filter(|quota| quota.throttled > 0);
    let cgroup = quota.map(|quota| quota.cgroup.clone());
    let advice = Advice::Throttled {
        program: victim.name.clone(),
        pid: victim.pid,
        cgroup,
        time,
        count,
        ended: victim.ended,
    };
    Some((time, advice))
}

fn interrupted(threads: &ThreadTimes, wanted: Nanos) -> Option<(Nanos, Advice)> {
    let (time, ..) = of(threads, ThreadState::Interrupted);
    let share = time.share_of(wanted);
    let most = threads.interrupted_by.first()?;
    let all: Nanos = threads.interrupted_by.iter().map(|one| one.time).sum();
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

fn memory(threads: &ThreadTimes, wanted: Nanos) -> Vec<(Nanos, Advice)> {
    let mut found = Vec::new();
    let (time, count, _) = of(threads, ThreadState::PageFault);
    let share = time.share_of(wanted);
    if share >= MUCH_INTERRUPTED {
        found.push((time, Advice::PageFaults { time, count, share }));
    }
    let (time, ..) = of(threads, ThreadState::Reclaim);
    if time.share_of(wanted) >= MUCH_WAITING {
        found.push((time, Advice::MemoryReclaim { time }));
    }
    found
}
