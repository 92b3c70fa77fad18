//! The header of a converted recording.

use ticktax_model::hook::Hook;
use ticktax_model::limitation::{ImportLimit, Limitation, NoGaps};
use ticktax_model::machine::{Counters, Machine};
use ticktax_model::recording::{Coverage, CpuInterval, Header, Level, Loss, World};
use ticktax_model::{CpuList, Nanos};

use super::Counts;
use super::cpu::CpuState;
use crate::event::Facts;
use crate::kind::TraceKind;
use crate::threads::Threads;

/// Events whose absence is reported, with the hooks that watch the same activities.
const EXPECTED: &[(Hook, &str)] = &[
    (Hook::IrqHandler, "irq_handler_entry"),
    (Hook::LocalTimer, "local_timer_entry"),
    (Hook::Softirq, "softirq_entry"),
    (Hook::SoftirqRaise, "softirq_raise"),
    (Hook::HrtimerExpire, "hrtimer_expire_entry"),
    (Hook::TimerExpire, "timer_expire_entry"),
    (Hook::WorkqueueExecute, "workqueue_execute_start"),
    (Hook::WorkqueueQueueWork, "workqueue_queue_work"),
    (Hook::TaskNewtask, "sched_process_fork"),
];

pub(super) fn header(
    states: &[CpuState],
    end: i64,
    counts: &Counts,
    threads: &Threads,
    kind: TraceKind,
    facts: &Facts,
) -> Header {
    let version = env!("CARGO_PKG_VERSION");
    let mut header = Header::new(World::Live, Level::Kernel, version);
    let begin = states.iter().map(|state| state.begin).min();
    let at = |at| Counters {
        at: Nanos(at),
        ..Counters::default()
    };
    header.before = at(begin.unwrap_or(end));
    header.after = at(end);
    header.began_unix = facts.began_unix.unwrap_or_default();
    header.cpus = states
        .iter()
        .map(|state| CpuInterval {
            cpu: state.cpu,
            begin: Nanos(state.begin),
            end: Nanos(end),
        })
        .collect();
    let seen: CpuList = states.iter().map(|state| state.cpu).collect();
    let all = CpuList::first(facts.cpus.unwrap_or_default().min(CpuList::MAX_CPU + 1));
    let silent: CpuList = all.iter().filter(|&cpu| !seen.contains(cpu)).collect();
    header.machine = Machine {
        host: facts.host.clone(),
        kernel: facts.kernel.clone(),
        arch: facts.arch.clone(),
        online: seen.iter().chain(silent.iter()).collect(),
        ..Machine::default()
    };
    header.cost.events = counts.events;
    header.coverage = Coverage {
        attached: attached(counts),
        limitations: limitations(counts, threads, silent, kind, facts),
        lost: states
            .iter()
            .filter_map(|state| loss(state, counts))
            .collect(),
        every_entry_watched: false,
    };
    header
}

/// Returns the hooks that saw the same events as the trace.
fn attached(counts: &Counts) -> Vec<Hook> {
    let mut hooks = counts.hooks.clone();
    // Switches show whether a thread left its CPU to sleep, so preemptions are known even without
    // wake-ups. `WakeupsNotRecorded` reports that the other waits are not.
    hooks.insert(Hook::SchedWaking);
    hooks.into_iter().collect()
}

fn loss(state: &CpuState, counts: &Counts) -> Option<Loss> {
    let early = counts.lost_early.get(&state.cpu.0).copied();
    let events = state.lost.saturating_add(early.unwrap_or_default());
    let lost = Loss {
        events,
        ..Loss::none(state.cpu)
    };
    (events > 0).then_some(lost)
}

fn limitations(
    counts: &Counts,
    threads: &Threads,
    silent: CpuList,
    kind: TraceKind,
    facts: &Facts,
) -> Vec<Limitation> {
    let mut limits = vec![ImportLimit::NoCounters {
        format: kind.name().to_owned(),
    }];
    if counts.wakings + counts.wakeups == 0 {
        limits.push(ImportLimit::WakeupsNotRecorded);
    } else {
        if counts.wakings == 0 {
            limits.push(ImportLimit::WakersUncertain);
        }
        if counts.wakeups_missed > 0 {
            let runs = counts.wakeups_missed;
            limits.push(ImportLimit::WakeupsMissed { runs });
        }
    }
    let missing = EXPECTED
        .iter()
        .filter(|(hook, _)| !counts.hooks.contains(hook));
    let events: Vec<String> = missing.map(|&(_, name)| name.to_owned()).collect();
    if !events.is_empty() {
        limits.push(ImportLimit::EventsNotRecorded { events });
    }
    if threads.without_process() > 0 {
        let threads = threads.without_process();
        limits.push(ImportLimit::ProcessesUnknown { threads });
    }
    if threads.unnamed() > 0 {
        let threads = threads.unnamed();
        limits.push(ImportLimit::ThreadsUnnamed { threads });
    }
    if !silent.is_empty() {
        limits.push(ImportLimit::SilentCpus { cpus: silent });
    }
    if counts.switches_inferred > 0 {
        let switches = counts.switches_inferred;
        limits.push(ImportLimit::SwitchesInferred { switches });
    }
    if counts.unordered > 0 {
        limits.push(ImportLimit::EventsUnordered {
            events: counts.unordered,
            max_step: Nanos(counts.max_step),
        });
    }
    limits.extend(of_file(counts, facts));
    let imported = limits.into_iter();
    let mut limitations: Vec<Limitation> = imported
        .map(|limit| Limitation::Imported { limit })
        .collect();
    limitations.extend(of_events(counts));
    limitations.push(Limitation::HypervisorTimeNotSeparated {
        reason: NoGaps::NoProbe,
    });
    limitations
}

/// Returns the limitations of the file itself: its clock, and damage.
fn of_file<'a>(counts: &'a Counts, facts: &'a Facts) -> impl Iterator<Item = ImportLimit> + 'a {
    let unit = facts
        .unit
        .map(|unit| ImportLimit::CoarseTimes { unit: Nanos(unit) });
    let clock = facts.local_clock.as_ref();
    let clock = clock.map(|clock| ImportLimit::LocalClock {
        clock: clock.to_string(),
    });
    let truncated = facts.truncated.then_some(ImportLimit::Truncated {
        events: counts.events,
    });
    let undecoded = (facts.undecoded > 0).then_some(ImportLimit::EventsUndecoded {
        events: facts.undecoded,
    });
    unit.into_iter()
        .chain(clock)
        .chain(truncated)
        .chain(undecoded)
}

/// Returns the limitations that a recording of ticktax can have too.
fn of_events(counts: &Counts) -> impl Iterator<Item = Limitation> {
    let missed = |count| Limitation::SwitchesMissed { count };
    let switched_out = |count| Limitation::InterruptsSwitchedOut { count };
    let entries = |count| Limitation::EntriesMissed { count };
    let some = |count: u64| (count > 0).then_some(count);
    [
        some(counts.switches_missed).map(missed),
        some(counts.switched_out).map(switched_out),
        some(counts.entries_missed).map(entries),
    ]
    .into_iter()
    .flatten()
}
