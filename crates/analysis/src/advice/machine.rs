//! Advice for the machine as a whole.

use std::cmp::Reverse;

use ticktax_model::Nanos;
use ticktax_model::advice::Advice;
use ticktax_model::beats::{BeatKind, BeatLine};
use ticktax_model::statement::{Account, CpuAccounts, Holder, StartedProcesses, Statement};
use ticktax_model::waits::WaitingProgram;

use super::{Processes, programs, total_time};
use crate::victim::timer_of;

/// Minimum stolen time to report, as a share of all CPUs' time.
const MUCH_STOLEN: f64 = 0.01;
/// Minimum time of one kind of kernel work to report, as a share of all CPUs' time.
const MUCH_KERNEL_WORK: f64 = 0.03;
/// The CPUs count as full if less than this share of their time is spare.
const SPARE: f64 = 0.03;
/// A machine is overbooked if its threads need more CPU time than it has by at least this fraction.
const OVERBOOKED: f64 = 0.1;
/// A CPU with more than this share of spare time had room for the waiting threads, so they must
/// have been confined to other CPUs. Less spare time proves nothing: with autogroups, a probe gets
/// half of a CPU that it shares with one other session.
const ROOM: f64 = 0.6;
/// Minimum number of run-queue samples. With fewer, the number of runnable threads counts as
/// unknown.
const SAMPLES: u64 = 20;
/// Minimum time spent waiting behind a real-time process to report, as a share of the audit.
const MUCH_BEHIND: f64 = 0.01;
/// Minimum CPU time of short-lived processes to report, as a share of all CPUs' time.
const MUCH_STARTED: f64 = 0.1;
/// Minimum number of short-lived processes per second to report.
const MANY_STARTED: f64 = 10.0;
/// Minimum throttled time to report, as a share of the audit.
const MUCH_THROTTLED: f64 = 0.01;

pub(super) fn advise(statement: &Statement, processes: &Processes<'_>) -> Vec<Advice> {
    let mut found: Vec<(Nanos, Advice)> = Vec::new();
    found.extend(throttled(statement, processes));
    let first: Vec<_> = real_time_first(statement, processes).collect();
    found.extend(held(statement, &first));
    found.extend(first);
    found.extend(stolen(statement));
    found.extend(kernel_work(statement));
    found.extend(short_lived(statement));
    let overbooked = overbooked(statement, processes);
    // If no thread waited for a CPU, the CPUs may be busy on purpose, so advice about full CPUs
    // comes last.
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
    let worth_reporting = statement
        .throttled
        .iter()
        .filter(move |held| held.time.share_of(wall) >= MUCH_THROTTLED);
    worth_reporting.map(|held| {
        let ended = held.pid.is_some_and(|pid| processes.has_ended(pid));
        let advice = Advice::Throttled {
            program: held.name.clone(),
            pid: held.pid,
            cgroup: None,
            time: held.time,
            count: held.intervals.count,
            exited: ended,
            burst: None,
            busiest: None,
            busiest_share: 0.0,
        };
        (held.time, advice)
    })
}

/// Returns advice on processes that kept others waiting because their threads preempt all ordinary
/// ones.
fn real_time_first(
    statement: &Statement,
    processes: &Processes<'_>,
) -> impl Iterator<Item = (Nanos, Advice)> {
    let wall = statement.cpus.iter().map(|cpu| cpu.elapsed).max();
    let wall = wall.unwrap_or_default();
    let waits = statement.waits.iter();
    waits.flat_map(move |waits| {
        let worth_reporting = waits.behind.iter();
        let worth_reporting =
            worth_reporting.filter(move |program| program.time.share_of(wall) >= MUCH_BEHIND);
        worth_reporting.filter_map(move |culprit| {
            let [pid] = *culprit.pids else {
                return None;
            };
            let policy = processes.goes_first(pid)?;
            let behind = |program: &&WaitingProgram| {
                let own = program
                    .behind
                    .iter()
                    .filter(|waited_for| waited_for.pids.contains(&pid));
                own.map(|waited_for| waited_for.time).sum::<Nanos>()
            };
            // Each program lists only the processes that it waited behind longest.
            let named = waits
                .programs
                .iter()
                .filter(|program| behind(program) > Nanos::ZERO);
            let waiter = named.max_by_key(behind)?;
            let is_present = |pid: &&i32| !waiter.exited_pids.contains(pid);
            let beat = timed_beat(statement, pid);
            let advice = Advice::RealTimePriority {
                program: culprit.name.clone(),
                pid,
                policy,
                period: beat.map(|beat| beat.rhythm.period),
                timer: beat.and_then(timer_of).cloned(),
                time: culprit.time,
                waiter: waiter.name.clone(),
                waiter_pid: waiter.pids.iter().find(is_present).copied(),
                exited: processes.has_ended(pid),
            };
            Some((culprit.time, advice))
        })
    })
}

/// Returns the costliest beat that has a known timer and comes from a thread in process `pid`.
fn timed_beat(statement: &Statement, pid: i32) -> Option<&BeatLine> {
    let mut beats = statement.beats.iter().flat_map(|beats| &beats.beats);
    beats.find(|beat| {
        beat.pid == Some(pid) && beat.kind == BeatKind::Thread && timer_of(beat).is_some()
    })
}

/// Returns advice on throttled real-time threads. `first` is the advice on real-time processes that
/// kept others waiting.
fn held(statement: &Statement, first: &[(Nanos, Advice)]) -> impl Iterator<Item = (Nanos, Advice)> {
    let wall = statement.cpus.iter().map(|cpu| cpu.elapsed).max();
    let wall = wall.unwrap_or_default();
    let all = statement.waits.iter().flat_map(|waits| &waits.real_time);
    let worth_reporting = all.filter(move |held| held.time.share_of(wall) >= MUCH_THROTTLED);
    worth_reporting.map(|held| {
        let costly = first.iter().any(|(time, advice)| match advice {
            Advice::RealTimePriority { pid, .. } => held.pids.contains(pid) && *time > held.time,
            _ => false,
        });
        let held = held.clone();
        (held.time, Advice::RealTimeLimited { held, costly })
    })
}

/// Returns advice on stolen time. The amount is the larger of two figures: the stolen time that the
/// hypervisor reports, and the time in which the kernel provably ran nothing. The latter is known
/// only if a probe ran.
pub(super) fn stolen(statement: &Statement) -> Option<(Nanos, Advice)> {
    let seen = statement.time_of(|class| class.holder() == Holder::Hypervisor);
    let time = seen.max(statement.stolen.unwrap_or_default());
    let share = time.share_of(total_time(statement));
    let virtual_machine = statement.machine.hypervisor.is_some();
    (virtual_machine && share >= MUCH_STOLEN).then_some((time, Advice::Stolen { time, share }))
}

fn kernel_work(statement: &Statement) -> impl Iterator<Item = (Nanos, Advice)> {
    let all = total_time(statement);
    let worth_reporting = statement.accounts.iter().filter(move |account| {
        account.class.is_kernel_work() && account.time.share_of(all) >= MUCH_KERNEL_WORK
    });
    worth_reporting.map(move |account: &Account| {
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

/// Returns advice on the program whose short-lived processes used the most CPU time.
fn short_lived(statement: &Statement) -> Option<(Nanos, Advice)> {
    let is_much = |time: Nanos| time.share_of(total_time(statement)) >= MUCH_STARTED;
    let all = statement.short_lived.iter();
    let advice = all.filter(|sum| is_much(sum.time)).filter_map(|sum| {
        let advice = processes_started(statement, sum.clone(), None)?;
        Some((sum.time, advice))
    });
    advice.max_by_key(|(time, _)| *time)
}

/// Returns advice to start fewer of these processes, or `None` if there are few of them or nothing
/// was recorded.
pub(super) fn processes_started(
    statement: &Statement,
    started: StartedProcesses,
    waits_share: Option<f64>,
) -> Option<Advice> {
    let wall = statement.cpus.iter().map(|cpu| cpu.elapsed).max()?;
    let rate_hz = started.count as f64 / wall.as_secs_f64();
    let is_many = rate_hz.is_finite() && rate_hz >= MANY_STARTED;
    is_many.then(|| Advice::ShortLivedProcesses {
        share: started.time.share_of(total_time(statement)),
        started,
        rate_hz,
        waits_share,
    })
}

/// Reports that threads need more CPUs than there are, and which program needs the most. A program
/// needs the time that it ran plus the time that it waited.
///
/// If waits are unknown, the need is estimated from samples of the run queue. They cover the whole
/// machine, so they count only if all its CPUs were watched. A probe's time in its spin loop does
/// not prove that a CPU was free: with autogroups, the loop gets its share of even a full CPU.
fn overbooked(statement: &Statement, processes: &Processes<'_>) -> Option<(Nanos, Advice)> {
    let all = total_time(statement);
    let cpus = statement.cpus.len() as u64;
    let used = all - statement.time_of(|class| class.holder() == Holder::Nothing);
    let waits = statement.waits.as_ref();
    let whole_machine = statement.machine.online.len() as u64 <= cpus;
    let wanted_cores = match (waits, &statement.run_queue) {
        (Some(waits), _) => (used + waits.time).share_of(all) * cpus as f64,
        (None, Some(queue)) if queue.samples >= SAMPLES && whole_machine => {
            queue.threads as f64 / queue.samples as f64
        }
        _ => return None,
    };
    let had_room = |cpu: &CpuAccounts| {
        let spare = cpu.time_where(|class| class.holder() == Holder::Nothing);
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
    let wanted = used + waits.map_or(Nanos::ZERO, |waits| waits.time);
    let waiter = waiter(statement, program, processes);
    let advice = Advice::CpusOversubscribed {
        cpus,
        demand_cores: wanted_cores,
        most: processes.crowding(
            (program, pids, time),
            waiter.as_ref().map(std::slice::from_ref),
        ),
        share: time.share_of(wanted),
        sampled: waits.is_none(),
    };
    // Rank by the time that other threads waited. If that is unknown, rank last, because the time
    // that a program needed cannot be compared with lost time.
    let weight = waits.map_or(Nanos::ZERO, |waits| waits.time);
    Some((weight, advice))
}

/// Returns a process with a known cgroup or autogroup, taken from the program that waited longest.
/// Ignores `program`.
fn waiter(statement: &Statement, program: &str, processes: &Processes<'_>) -> Option<i32> {
    let waits = statement.waits.as_ref()?;
    let others = waits
        .programs
        .iter()
        .filter(|waiting| waiting.name != program);
    let mut pids = others.flat_map(|waiting| &waiting.pids).copied();
    let is_known = |pid: i32| {
        processes.group(pid).is_some() || processes.places.is_some_and(|places| places.knows(pid))
    };
    pids.find(|&pid| is_known(pid))
}

/// Reports that the CPUs have no time to spare, and which program used most of it. A probe's time
/// in its spin loop counts as spare.
fn full(statement: &Statement, processes: &Processes<'_>) -> Option<(Nanos, Advice)> {
    let all = total_time(statement);
    let spare = statement.time_of(|class| class.holder() == Holder::Nothing);
    let spare = spare.share_of(all);
    if all == Nanos::ZERO || spare >= SPARE {
        return None;
    }
    let (program, pids, time) = programs(&statement.accounts).into_iter().next()?;
    let advice = Advice::CpusSaturated {
        busy_share: 1.0 - spare,
        most: processes.crowding((program, pids, time), None),
        share: time.share_of(all),
    };
    Some((time, advice))
}
