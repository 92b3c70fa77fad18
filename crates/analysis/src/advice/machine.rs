//! What to do for a machine as a whole.

use std::cmp::Reverse;

use ticktax_model::Nanos;
use ticktax_model::advice::Advice;
use ticktax_model::beats::{BeatKind, BeatLine};
use ticktax_model::statement::{Account, CpuBooks, Holder, Statement};
use ticktax_model::waits::WaitingProgram;

use super::{Processes, programs, whole};
use crate::victim::timer_of;

/// From this share of all CPUs' time on, what the hypervisor took is worth a word.
const MUCH_STOLEN: f64 = 0.01;
/// From this share on, one piece of the kernel's work is.
const MUCH_KERNEL_WORK: f64 = 0.03;
/// With less of their time to spare, CPUs are full.
const SPARE: f64 = 0.03;
/// From this part of the CPUs' time on by which threads wanted more than there is, there are too many.
const OVERBOOKED: f64 = 0.1;
/// With more of its time to spare a CPU had room for those who waited, which were kept to others. Less is no proof:
/// where CPU time is shared by session, a probe has half of a CPU beside one other session.
const ROOM: f64 = 0.6;
/// With fewer samples than these it is not known how many threads wanted a CPU.
const SAMPLES: u64 = 20;
/// From this share of the audit on, waiting behind a process that goes first is worth a word.
const MUCH_BEHIND: f64 = 0.01;
/// From this share of the audit on, being throttled is worth a word.
const MUCH_THROTTLED: f64 = 0.01;

/// The rules, the costliest first.
pub(super) fn advise(statement: &Statement, processes: &Processes<'_>) -> Vec<Advice> {
    let mut found: Vec<(Nanos, Advice)> = Vec::new();
    found.extend(throttled(statement, processes));
    let first: Vec<_> = real_time_first(statement, processes).collect();
    found.extend(held(statement, &first));
    found.extend(first);
    found.extend(stolen(statement));
    found.extend(kernel_work(statement));
    let overbooked = overbooked(statement, processes);
    // Full CPUs for which nobody waited may be intended, so that they come last.
    let full = match overbooked {
        None => full(statement, processes),
        Some(_) => None,
    };
    found.extend(overbooked);
    found.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    found.extend(full);
    found.into_iter().map(|(_, advice)| advice).collect()
}

fn throttled(
    statement: &Statement,
    processes: &Processes<'_>,
) -> impl Iterator<Item = (Nanos, Advice)> {
    let longest = statement.cpus.iter().map(|cpu| cpu.elapsed).max();
    let wall = longest.unwrap_or_default();
    let much = statement
        .throttled
        .iter()
        .filter(move |held| held.time.share_of(wall) >= MUCH_THROTTLED);
    much.map(|held| {
        let ended = held.pid.is_some_and(|pid| processes.has_ended(pid));
        let advice = Advice::Throttled {
            program: held.name.clone(),
            pid: held.pid,
            cgroup: None,
            time: held.time,
            count: held.intervals.count,
            ended,
        };
        (held.time, advice)
    })
}

/// Processes for which others waited because they go before every ordinary thread.
fn real_time_first(
    statement: &Statement,
    processes: &Processes<'_>,
) -> impl Iterator<Item = (Nanos, Advice)> {
    let wall = statement.cpus.iter().map(|cpu| cpu.elapsed).max();
    let wall = wall.unwrap_or_default();
    let waits = statement.waits.iter();
    waits.flat_map(move |waits| {
        let much = waits.behind.iter();
        let much = much.filter(move |one| one.time.share_of(wall) >= MUCH_BEHIND);
        much.filter_map(move |one| {
            let [pid] = *one.pids else {
                return None;
            };
            let policy = processes.goes_first(pid)?;
            let behind = |program: &&WaitingProgram| {
                let its = program.behind.iter().filter(|it| it.pids.contains(&pid));
                its.map(|it| it.time).sum::<Nanos>()
            };
            // Of each program only those are known that it waited longest for.
            let named = waits.programs.iter().filter(|it| behind(it) > Nanos::ZERO);
            let waiter = named.max_by_key(behind)?;
            let there = |pid: &&i32| !waiter.ended.contains(pid);
            let beat = timed_beat(statement, pid);
            let advice = Advice::RealTimeFirst {
                program: one.name.clone(),
                pid,
                policy,
                period: beat.map(|beat| beat.rhythm.period),
                timer: beat.and_then(timer_of).cloned(),
                time: one.time,
                waiter: waiter.name.clone(),
                waiter_pid: waiter.pids.iter().find(there).copied(),
                ended: processes.has_ended(pid),
            };
            Some((one.time, advice))
        })
    })
}

/// The costliest beat of a process' threads that something was seen to cause.
fn timed_beat(statement: &Statement, pid: i32) -> Option<&BeatLine> {
    let mut beats = statement.beats.iter().flat_map(|beats| &beats.beats);
    beats.find(|beat| {
        beat.pid == Some(pid) && beat.kind == BeatKind::Thread && timer_of(beat).is_some()
    })
}

/// Real-time threads that were kept from their CPUs; `first` are those for which others waited.
fn held(statement: &Statement, first: &[(Nanos, Advice)]) -> impl Iterator<Item = (Nanos, Advice)> {
    let wall = statement.cpus.iter().map(|cpu| cpu.elapsed).max();
    let wall = wall.unwrap_or_default();
    let all = statement.waits.iter().flat_map(|waits| &waits.real_time);
    let much = all.filter(move |held| held.time.share_of(wall) >= MUCH_THROTTLED);
    much.map(|held| {
        let costly = first.iter().any(|(time, advice)| match advice {
            Advice::RealTimeFirst { pid, .. } => held.pids.contains(pid) && *time > held.time,
            _ => false,
        });
        let held = held.clone();
        (held.time, Advice::RealTimeHeld { held, costly })
    })
}

/// What the hypervisor took, by its own clock or by the proof that nothing else ran, whichever is more: without a
/// probe nothing is seen of it.
pub(super) fn stolen(statement: &Statement) -> Option<(Nanos, Advice)> {
    let seen = statement.time_of(|class| class.holder() == Holder::Hypervisor);
    let time = seen.max(statement.stolen.unwrap_or_default());
    let share = time.share_of(whole(statement));
    let virtual_machine = statement.machine.hypervisor.is_some();
    (virtual_machine && share >= MUCH_STOLEN).then_some((time, Advice::Stolen { time, share }))
}

fn kernel_work(statement: &Statement) -> impl Iterator<Item = (Nanos, Advice)> {
    let all = whole(statement);
    let much = statement.accounts.iter().filter(move |account| {
        account.class.is_kernel_work() && account.time.share_of(all) >= MUCH_KERNEL_WORK
    });
    much.map(move |account: &Account| {
        let part = account.parts.first();
        let part = part.filter(|part| part.name != account.name);
        let advice = Advice::KernelWork {
            name: account.name.clone(),
            part: part.map(|part| part.name.clone()),
            largest_share: part.map_or(0.0, |part| part.time.share_of(account.time)),
            time: account.time,
            share: account.time.share_of(all),
        };
        (account.time, advice)
    })
}

/// More threads than CPUs, and who wanted most: who waited wanted a CPU as well as who had it. Where waits
/// are not known, the threads that ran or waited were counted now and then, on the whole machine: that tells of the
/// CPUs that were watched only where they all were. What a probe's loop had and nobody else is no matter: where CPU
/// time is shared by session, it has a share of CPUs that are full.
fn overbooked(statement: &Statement, processes: &Processes<'_>) -> Option<(Nanos, Advice)> {
    let all = whole(statement);
    let cpus = statement.cpus.len() as u64;
    let had = all - statement.time_of(|class| class.holder() == Holder::Nothing);
    let waits = statement.waits.as_ref();
    let whole_machine = statement.machine.online.len() as u64 <= cpus;
    let wanted_cores = match (waits, &statement.run_queue) {
        (Some(waits), _) => (had + waits.time).share_of(all) * cpus as f64,
        (None, Some(queue)) if queue.samples >= SAMPLES && whole_machine => {
            queue.threads as f64 / queue.samples as f64
        }
        _ => return None,
    };
    let had_room = |cpu: &CpuBooks| {
        let spare = cpu.of_all(|class| class.holder() == Holder::Nothing);
        spare.share_of(cpu.elapsed) > ROOM
    };
    let enough = wanted_cores < cpus as f64 * (1.0 + OVERBOOKED);
    if cpus == 0 || enough || statement.cpus.iter().any(had_room) {
        return None;
    }
    let waiting = |name: &str| {
        let mut programs = waits.into_iter().flat_map(|waits| &waits.programs);
        let program = programs.find(|program| program.name == name);
        program.map_or(Nanos::ZERO, |program| program.time)
    };
    let ran = programs(&statement.accounts).into_iter();
    let wanted = ran.map(|(name, pids, time)| (time + waiting(name), name, pids));
    let (time, program, pids) = wanted.max_by_key(|&(time, name, _)| (time, Reverse(name)))?;
    let wanted = had + waits.map_or(Nanos::ZERO, |waits| waits.time);
    let waiter = waiter(statement, program, processes);
    let advice = Advice::Overbooked {
        cpus,
        wanted_cores,
        most: processes.crowding(
            (program, pids, time),
            waiter.as_ref().map(std::slice::from_ref),
        ),
        share: time.share_of(wanted),
        sampled: waits.is_none(),
    };
    // What it costs is that others wait; where that is not known, the time that is wanted says nothing beside it.
    let weight = waits.map_or(Nanos::ZERO, |waits| waits.time);
    Some((weight, advice))
}

/// A process of the program that waited most besides `program`, and whose group by session is known.
fn waiter(statement: &Statement, program: &str, processes: &Processes<'_>) -> Option<i32> {
    let waits = statement.waits.as_ref()?;
    let others = waits.programs.iter().filter(|it| it.name != program);
    let mut pids = others.flat_map(|it| &it.pids).copied();
    pids.find(|&pid| processes.group(pid).is_some())
}

/// CPUs without time to spare, and who used most of it. A probe's loop is spare time.
fn full(statement: &Statement, processes: &Processes<'_>) -> Option<(Nanos, Advice)> {
    let all = whole(statement);
    let spare = statement.time_of(|class| class.holder() == Holder::Nothing);
    let spare = spare.share_of(all);
    if all == Nanos::ZERO || spare >= SPARE {
        return None;
    }
    let (program, pids, time) = programs(&statement.accounts).into_iter().next()?;
    let advice = Advice::CpusFull {
        busy_share: 1.0 - spare,
        most: processes.crowding((program, pids, time), None),
        share: time.share_of(all),
    };
    Some((time, advice))
}
