//! Advice in words. If possible, each piece comes with a command that follows the advice or proves
//! that it helps.

mod commands;
mod confined;
mod framing;
mod memory;
mod order;
mod quota;
mod real_time;
mod stalled;
mod weights;
mod without;

use ticktax_model::advice::{Advice, CompetingProgram};
use ticktax_model::kernel_words::LOCAL_TIMER;
use ticktax_model::knob::KnobProposal;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::real_time::RealTimeLimit;
use ticktax_model::recording::World;
use ticktax_model::victim::HoldUp;
use ticktax_model::{Cpu, CpuList};

use self::commands::{
    BUSIEST, Lowered, REPEATS, and_audit, audit_again, lower_all, page_faults, trial,
};
use self::weights::{WeightChange, lower, run_fewer};
use super::Screen;
use super::tables::ROOMY;
use crate::text::beats::short_period;
use crate::text::foot::loss_remedy;
use crate::text::numbers::{counted, cpu_names, grouped, percent};
use crate::text::page::{Page, Tone, columns, tied};

/// Minimum width of a page that has room to explain commands.
const WIDE: usize = 100;

/// Label in front of a command.
const COMMAND: &str = "     $ ";

/// Writes the advice, or a different text if no rule gives advice.
pub(super) fn write(page: &mut Page, screen: &Screen<'_>) {
    let statement = screen.statement;
    if statement.advice.is_empty() {
        if let Some((tone, text)) = without::text(screen) {
            page.paragraph(tone, "WHAT TO DO: ", &text);
        }
        return;
    }
    // Commands make no sense for a simulated machine, or for a lab guest, which no longer exists.
    let is_live = statement.world == World::Live;
    let untold = without::longest_wait(screen);
    let mut room = screen.room.advice;
    page.line(Tone::Strong, "WHAT TO DO");
    if let Some((sentence, command)) = &untold {
        page.paragraph(Tone::Strong, "  1. ", &format!("{sentence}."));
        if let Some(command) = command {
            page.command(COMMAND, command);
        }
        room = room.saturating_sub(1);
    }
    let first = 1 + usize::from(untold.is_some());
    for (number, advice) in (first..).zip(order::ordered(screen).into_iter().take(room)) {
        let (sentence, command) = words(advice, screen);
        // Narrow pages have no room for an explanation.
        let is_wide = page.width() >= WIDE;
        let sentence = explained(sentence, command.as_deref().filter(|_| is_live && is_wide));
        page.paragraph(Tone::Strong, &format!("  {number}. "), &sentence);
        let proof = proof(advice, screen).filter(|_| screen.names_processes());
        let command = command.filter(|line| is_live || line.starts_with('#'));
        // A trial compares the current setting with the new one, so it must come before the change.
        let (proof, command) = match (proof, command) {
            (Some(proof), Some(change)) if !change.contains('#') => (
                Some(commented(proof, "measure it", page.width())),
                Some(commented(change, "keep it", page.width())),
            ),
            (proof, command) => (proof, command),
        };
        for command in proof.into_iter().chain(command) {
            page.command(COMMAND, &command);
        }
    }
}

/// If a command contains a number that is hard to understand, appends an explanation to the
/// sentence before it.
fn explained(sentence: String, command: Option<&str>) -> String {
    match command {
        Some(command) if command.contains("echo 19 | tee") => {
            format!("{sentence} renice has no effect between sessions, so lower the sessions:")
        }
        _ => sentence,
    }
}

/// Appends a comment to a command if both fit on a line, otherwise returns the command alone.
fn commented(command: String, comment: &str, width: usize) -> String {
    let both = format!("{command}  # {comment}");
    if columns(COMMAND) + columns(&both) <= width {
        both
    } else {
        command
    }
}

/// Returns a sentence that describes a piece of advice, and its command, if any.
fn words(advice: &Advice, screen: &Screen<'_>) -> (String, Option<String>) {
    match advice {
        Advice::PeriodicProgram { .. } => periodic(advice, screen),
        Advice::CompetingPrograms {
            programs, share, ..
        } => crowding(programs, *share, screen),
        Advice::OwnThreads { share, .. } => (
            format!(
                "Use fewer threads or more CPUs: its own threads caused {} of the waiting.",
                tied(percent(*share)),
            ),
            match (screen.watched(), &screen.statement.victim) {
                (Some(pid), _) => Some(format!("ps -L -o tid,psr,pcpu,comm -p {pid}")),
                (None, Some(victim)) if victim.pid.is_none() => {
                    Some("ps -eLo tid,psr,pcpu,comm --sort -pcpu | head".to_owned())
                }
                _ => None,
            },
        ),
        Advice::ShortLivedProcesses {
            started,
            rate_hz,
            share,
            waits_share,
        } => {
            let rate = tied(format!("{rate_hz:.0} per second"));
            let used = tied(percent(*share));
            let (program, pid) = (&started.started_by, started.started_by_pid);
            let effect = match waits_share {
                Some(waits) => format!("caused {} of the waiting", tied(percent(*waits))),
                None => format!("used {used} of the CPU time"),
            };
            let sentence = format!(
                "Start fewer processes from {}: it starts {} processes ({rate}), which {effect}.",
                tied(format!("{program} ({pid})")),
                started.name,
            );
            let command = format!("pstree -asp {pid}; ps -o etime,args -p {pid}");
            (sentence, screen.names_processes().then_some(command))
        }
        Advice::CompetingKernelThread { name, share, .. } => (
            format!(
                "Find out what keeps the kernel's {name} busy: it caused {} of the waiting.",
                tied(percent(*share))
            ),
            audit_again(screen, Some(REPEATS)),
        ),
        Advice::Throttled { .. } => quota::words(advice, screen),
        Advice::ConfinedToCpus { .. } => confined::words(advice, screen),
        _ => kernel_advice(advice, screen),
    }
}

/// Returns the command for a trial that measures how much the advice helps, or `None` if no setting
/// that can be changed at run time has the advised effect.
fn proof(advice: &Advice, screen: &Screen<'_>) -> Option<String> {
    let (proposal, metric) = match advice {
        Advice::Finding { proposal, .. } => (proposal.clone(), None),
        Advice::KernelWork { name, .. } => (off_switch(name), None),
        Advice::Throttled {
            burst: Some(burst),
            cgroup: Some(_),
            ..
        } => {
            screen.watched()?;
            let micros = burst.0 / 1_000;
            let proposal = KnobProposal::new("cgroup.cpu_burst", micros);
            (proposal, Some("throttled"))
        }
        Advice::RealTimeLimited { held, .. } if held.limit == RealTimeLimit::Throttling => {
            screen.watched()?;
            let unlimited = KnobProposal::new("kernel.sched_rt_runtime_us", -1);
            (unlimited, Some("wait"))
        }
        Advice::CompetingPrograms { programs, .. } => match weight_change(programs) {
            Some(change) => (change.proposal(screen), Some("wait")),
            None if Lowered::from_programs(programs).can_be_tried(screen) => {
                // Raising the watched program to nice -19 changes the ratio of the weights as much
                // as lowering the other programs to nice 19.
                (KnobProposal::new("proc.nice", -19), Some("wait"))
            }
            None => return None,
        },
        _ => return None,
    };
    Some(trial(screen, &proposal?, metric))
}

/// Returns the setting that stops a kernel thread, or `None` unless the thread's work merely
/// improves performance.
fn off_switch(thread: &str) -> Option<KnobProposal> {
    match thread {
        "ksmd" => KnobProposal::new("ksm.run", 0),
        "khugepaged" => KnobProposal::new("thp.enabled", "never"),
        name if name.starts_with("kcompactd") => {
            KnobProposal::new("vm.compaction_proactiveness", 0)
        }
        _ => None,
    }
}

/// Returns the advice to move a periodic program to a different CPU, or to lower its priority.
fn periodic(advice: &Advice, screen: &Screen<'_>) -> (String, Option<String>) {
    let Advice::PeriodicProgram {
        program,
        pid,
        period,
        timer,
        policy,
        cpus,
        other_cpus,
        max,
        exited: ended,
        ..
    } = advice
    else {
        return (String::new(), None);
    };
    let policy_shown = policy.map_or_else(String::new, |policy| format!(", {policy}"));
    let who = format!("{program} {}", tied(format!("({pid}{policy_shown})")));
    let other_cpus = &other_cpus.as_ref().and_then(|cpus| unused(cpus, screen));
    let (remedy, command) = match (ended, other_cpus) {
        (true, Some(_)) => (
            format!("Start {who} on other CPUs next time"),
            BUSIEST.to_owned(),
        ),
        (true, None) => (
            format!("Start {who} with a lower priority next time"),
            BUSIEST.to_owned(),
        ),
        (false, Some(others)) => {
            let change = format!("taskset -acp {others} {pid}");
            let to = cpu_names(others.iter());
            (format!("Move {who} to {to}"), and_audit(change, screen))
        }
        (false, None) => {
            let is_first = policy.is_some_and(SpecialPolicy::goes_first);
            let change = is_first.then(|| Lowered::real_time_process(*pid).command(screen));
            let look = || format!("chrt -ap {pid}");
            (
                format!("Lower the priority of {who}"),
                change.flatten().unwrap_or_else(look),
            )
        }
    };
    let takes = if *ended { "ran" } else { "runs" };
    let timer = by_timer(timer.as_deref());
    // Narrow pages leave out the CPUs and the timer.
    let (place, timer) = if screen.style.width >= ROOMY {
        let place = format!(" on {} for", tied(cpu_names(cpus.iter())));
        (place, timer)
    } else {
        (String::new(), String::new())
    };
    let frames = late_frames(&[program], screen).filter(|(caused, _)| *caused > 0);
    let frames = frames.map_or_else(String::new, |(caused, all)| {
        format!(" and caused {}", of_late_frames(caused, all))
    });
    let sentence = format!(
        "{remedy}: it {takes}{place} up to {} every {}{timer}{frames}.",
        tied(max),
        tied(short_period(*period)),
    );
    (sentence, screen.names_processes().then_some(command))
}

/// Removes the CPUs on which the watched program was delayed, and returns `None` if none is left.
fn unused(cpus: &CpuList, screen: &Screen<'_>) -> Option<CpuList> {
    let victim = screen.statement.victim.as_ref();
    let threads = victim.and_then(|victim| victim.threads.as_ref());
    let delays = || threads.iter().flat_map(|threads| &threads.delays);
    let used = |cpu: Cpu| delays().any(|delay| delay.cpu == cpu || delay.waited_on == Some(cpu));
    let left: CpuList = cpus.iter().filter(|&cpu| !used(cpu)).collect();
    (!left.is_empty()).then_some(left)
}

/// Returns how many late frames the `programs` caused by using the CPU, and how many frames were
/// late in total. Returns `None` if no frame was late.
fn late_frames(programs: &[&str], screen: &Screen<'_>) -> Option<(u64, u64)> {
    let frames = screen.statement.victim.as_ref()?.frames.as_ref()?;
    let late = frames.late.as_ref().filter(|late| late.frames > 0)?;
    let caused = late.causes.iter().filter(|cause| {
        let culprit = cause.culprit.as_ref();
        cause.kind == HoldUp::Waiting && culprit.is_some_and(|by| programs.contains(&&*by.name))
    });
    Some((caused.map(|cause| cause.frames).sum(), late.frames))
}

fn of_late_frames(caused: u64, all: u64) -> String {
    tied(format!(
        "{} of {}",
        grouped(caused),
        counted(all, "late frame")
    ))
}

/// Returns a phrase that names the timer behind a period, or an empty string if the timer is
/// unknown.
fn by_timer(timer: Option<&str>) -> String {
    timer.map_or_else(String::new, |timer| format!(" (timer {timer})"))
}

/// Returns the advice about programs that ran during much of another program's waiting time.
fn crowding(
    programs: &[CompetingProgram],
    share: f64,
    screen: &Screen<'_>,
) -> (String, Option<String>) {
    let (most, more) = programs.split_at(programs.len().min(2));
    let mut names: Vec<String> = most.iter().map(|p| name(&p.program, &p.pids)).collect();
    names.extend((!more.is_empty()).then(|| format!("{} more", more.len())));
    let all: usize = programs.iter().map(|p| p.pids.len()).sum();
    let ended: usize = programs.iter().map(|p| p.standing.exited_pids.len()).sum();
    let names = listed(&names);
    let culprits: Vec<&str> = programs.iter().map(|p| &*p.program).collect();
    let frames = match late_frames(&culprits, screen) {
        None => String::new(),
        Some((0, _)) => ", but no late frames".to_owned(),
        Some((caused, all)) => format!(" and {}", of_late_frames(caused, all)),
    };
    let caused = format!("caused {} of the waiting{frames}", tied(percent(share)));
    if let (Some(change), Some(first)) = (weight_change(programs), programs.first()) {
        let sentence = format!(
            "{}: {}, and {names} {caused}. renice would not help, because they are in different \
             groups.",
            change.remedy(),
            change.reason(first),
        );
        return (sentence, change.command(screen));
    }
    let remedy = match (all, ended) {
        (all, ended) if all == ended => {
            format!("Start {names} with a lower priority next time")
        }
        (1, _) => format!("Move {names} or lower its priority"),
        _ if Lowered::from_programs(programs).by_session_alone() && screen.names_processes() => {
            format!("Lower the priority of {names}")
        }
        _ => format!("Move {names} or lower their priority"),
    };
    let subject = if all == 1 { "it" } else { "they" };
    let sentence = format!("{remedy}: {subject} {caused}.");
    (sentence, lower_all(programs, screen))
}

/// Returns the change to a cgroup's weight that helps most. The first program caused most of the
/// waiting.
fn weight_change(programs: &[CompetingProgram]) -> Option<WeightChange<'_>> {
    WeightChange::raising(programs.first()?)
}

/// Returns the advice about CPU time that the kernel or the hypervisor used.
fn kernel_advice(advice: &Advice, screen: &Screen<'_>) -> (String, Option<String>) {
    match advice {
        Advice::Interrupts {
            name,
            share,
            largest_share,
            ..
        } => {
            let (remedy, command) = interrupt_remedy(name, screen);
            let sentence = format!(
                "{remedy}: interrupts took {} of the CPU time that the program needed, {}.",
                tied(percent(*share)),
                largest(name, *largest_share),
            );
            (sentence, command)
        }
        Advice::PageFaults { count, share, .. } => (
            format!(
                "Allocate and touch memory in advance: {} took {} of the CPU time that the program \
                 needed.",
                counted(*count, "page fault"),
                tied(percent(*share))
            ),
            page_faults(screen),
        ),
        Advice::MemoryReclaim {
            time,
            limit: Some(limit),
        } => {
            let spent = format!("it spent {} reclaiming memory", tied(time));
            memory::raise(limit, &spent, screen)
        }
        Advice::MemoryReclaim { time, limit: None } => (
            format!(
                "Give the program more memory: it spent {} reclaiming memory.",
                tied(time)
            ),
            Some("cat /proc/pressure/memory; free -m".to_owned()),
        ),
        Advice::Stolen { time, share } => (
            format!(
                "Use dedicated CPUs: the hypervisor or firmware took {} ({}).",
                tied(time),
                tied(format!("{} of CPU time", percent(*share)))
            ),
            // The `st` column of vmstat shows only reported steal, and many hosts report none.
            Some("ticktax audit --section noise".to_owned()),
        ),
        Advice::KernelWork {
            name,
            part,
            share,
            largest_share,
            ..
        } => (
            format!(
                "Find out what causes the kernel's {name}: it took {} of CPU time{}.",
                tied(percent(*share)),
                part.as_ref().map_or_else(String::new, |part| {
                    format!(", {}", largest(part, *largest_share))
                }),
            ),
            audit_again(screen, Some(REPEATS)),
        ),
        Advice::Finding { title, remedy, .. } => (format!("{title}."), Some(format!("# {remedy}"))),
        Advice::EventsLost { events } => (
            format!(
                "{} were lost: {}.",
                counted(*events, "event"),
                loss_remedy(screen.statement)
            ),
            match screen.statement.victim {
                None => Some("ticktax audit --keep sums".to_owned()),
                // An audit of a single program cannot keep sums.
                Some(_) => screen
                    .watched()
                    .map(|pid| format!("taskset -acp {pid}   # shows its allowed CPUs")),
            },
        ),
        _ => machine_advice(advice, screen),
    }
}

/// Returns the name of the largest contributor, preceded by `mostly` if its share of the total
/// exceeds half.
fn largest(name: &str, share: f64) -> String {
    if share > 0.5 {
        format!("mostly {name}")
    } else {
        format!("{name} the most")
    }
}

/// Returns the advice about CPUs that have too much work, and about real-time threads.
fn machine_advice(advice: &Advice, screen: &Screen<'_>) -> (String, Option<String>) {
    match advice {
        Advice::CpusOversubscribed {
            cpus,
            demand_cores: wanted_cores,
            most,
            share,
            sampled,
        } => {
            let (remedy, program) = (run_fewer(most), &most.program);
            let share = tied(percent(*share));
            let part = if *sampled {
                format!("used {share} of the CPU time")
            } else {
                format!("needed {share} of this CPU time")
            };
            let sentence = format!(
                "{remedy}: threads needed {}, but there {}. {program} {part}.",
                tied(format!("{wanted_cores:.1} CPUs")),
                match *cpus {
                    1 => "is 1".to_owned(),
                    cpus => tied(format!("are {cpus}")),
                },
            );
            (sentence, lower(most, screen))
        }
        Advice::CpusSaturated {
            busy_share,
            most,
            share,
        } => {
            let (remedy, program) = (run_fewer(most), &most.program);
            let sentence = format!(
                "{remedy}: the CPUs were {} busy, and {program} used {}.",
                tied(percent(*busy_share)),
                tied(percent(*share)),
            );
            (sentence, lower(most, screen))
        }
        Advice::Stalled {
            stall,
            memory_limit: Some(limit),
            ..
        } => memory::raise(limit, &stalled::waited_for_memory(stall), screen),
        Advice::Stalled {
            stall,
            budget: Some(budget),
            ..
        } => real_time::larger_budget(stall, budget, screen),
        Advice::Stalled { stall, freezer, .. } => stalled::words(stall, freezer.as_deref(), screen),
        Advice::RealTimeLimited { held, costly } => real_time::words(held, *costly, screen),
        Advice::RealTimePriority { .. } => real_time_first(advice, screen),
        _ => (String::new(), None),
    }
}

/// Returns the advice about a process that preempts every ordinary thread. The command audits a
/// program that waits behind it.
fn real_time_first(advice: &Advice, screen: &Screen<'_>) -> (String, Option<String>) {
    let Advice::RealTimePriority {
        program,
        pid,
        policy,
        period,
        timer,
        time,
        waiter,
        waiter_pid,
        exited: ended,
    } = advice
    else {
        return (String::new(), None);
    };
    let timer = by_timer(timer.as_deref());
    let period = period.map_or_else(String::new, |period| {
        format!(" every {}{timer}", tied(short_period(period)))
    });
    let who = format!("{program} {}", tied(format!("({pid}, {policy})")));
    let (remedy, preempts) = if *ended {
        (format!("Start {who} on another CPU next time"), "preempted")
    } else {
        (format!("Move {who} or lower its priority"), "preempts")
    };
    let sentence = format!(
        "{remedy}: it {preempts} ordinary threads{period}; they waited {} behind it, {waiter} \
         longest.",
        tied(time),
    );
    let waiter = waiter_pid.filter(|_| screen.names_processes() && screen.statement.part.is_none());
    (
        sentence,
        waiter.map(|pid| format!("ticktax audit --pid {pid}")),
    )
}

/// Returns the advice about an interrupt. Only a device interrupt can be moved to a different CPU.
fn interrupt_remedy(name: &str, screen: &Screen<'_>) -> (&'static str, Option<String>) {
    let repeats = || audit_again(screen, Some(REPEATS));
    match name {
        LOCAL_TIMER => ("Find out whose timers run", repeats()),
        "call_function" | "call_function_single" | "reschedule" | "irq_work" => {
            ("Find out what causes inter-processor interrupts", repeats())
        }
        "NET_RX" | "NET_TX" => (
            "Receive packets on another CPU",
            Some(
                "grep . /proc/irq/*/smp_affinity_list; grep . /sys/class/net/*/queues/rx-*/rps_cpus"
                    .to_owned(),
            ),
        ),
        _ => (
            "Move interrupts to another CPU",
            Some("grep . /proc/irq/*/smp_affinity_list; cat /proc/interrupts".to_owned()),
        ),
    }
}

/// Returns the name of a program with its pid or its number of processes.
fn name(program: &str, pids: &[i32]) -> String {
    match pids {
        [] => program.to_owned(),
        [pid] => format!("{program} ({pid})"),
        pids => format!(
            "{program} {}",
            tied(format!("x{}", grouped(pids.len() as u64)))
        ),
    }
}

/// Joins names, as in `a, b and c`.
fn listed(names: &[String]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        names => names.join(""),
    }
}
