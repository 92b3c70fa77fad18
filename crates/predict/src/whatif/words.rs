//! Describes the data that a prediction is based on, and the assumptions that it makes.

use ticktax_analysis::workload::SMALL;
use ticktax_model::Nanos;
use ticktax_model::workload::{InterruptLoad, PacedLoad, ThreadLoad, Workload};
use ticktax_sim::{Machine, Setup, settings};

/// Maximum number of threads to list by name, and also of interrupts.
const NAMED: usize = 4;

/// Effects that the model ignores even though they can matter.
pub(super) const LEFT_OUT: [&str; 5] = [
    "kernel entry and exit around handlers, which in a virtual machine can take longer than the \
     handler",
    "the cost of waking a task on another CPU, and load balancing other than pulling from the \
     longest queue",
    "ticks that the kernel keeps during short idle periods, when stopping them does not pay",
    "caches, frequencies and idle states: each burst takes as long as recorded",
    "ticktax's own threads",
];

/// Describes what a prediction takes from a scenario.
pub(super) fn of_scenario(setup: &Setup) -> String {
    format!(
        "{} and {} from the scenario; each run uses a different seed",
        counted(setup.tasks.len(), "task"),
        counted(setup.sources.len(), "interrupt")
    )
}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Describes what a prediction takes from a recording, and the modelled machine.
pub(super) fn taken(work: &Workload, machine: &Machine) -> Vec<String> {
    let mut taken: Vec<String> = work.paced.iter().map(frames).collect();
    taken.push(threads(work));
    taken.push(interrupts(work));
    taken.push(format!(
        "cost of a tick: {} plus {} of softirqs, average of {}; {} for other timer interrupts",
        work.tick.interrupt, work.tick.softirqs, work.tick.count, work.timer
    ));
    taken.push(format!(
        "machine settings: {}",
        settings::list(machine).join(" ")
    ));
    taken
}

fn frames(paced: &PacedLoad) -> String {
    let mut lates: Vec<Nanos> = paced.frames.iter().filter_map(|frame| frame.late).collect();
    lates.sort_unstable();
    let works: Nanos = paced.frames.iter().map(|frame| frame.work).sum();
    let count = i64::try_from(paced.frames.len()).unwrap_or(i64::MAX).max(1);
    format!(
        "{} frames of {} ({}, {}): due every {} by the rule {}, average work {}, median lateness \
         {}",
        paced.frames.len(),
        paced.thread,
        paced.program,
        paced.pid,
        paced.period,
        paced.rule,
        Nanos(works.0 / count),
        lates.get(lates.len() / 2).copied().unwrap_or_default(),
    )
}

fn threads(work: &Workload) -> String {
    let ran: Nanos = work.threads.iter().map(ThreadLoad::work).sum();
    let names = work.threads.iter().take(NAMED);
    let names: Vec<&str> = names.map(|thread| &*thread.name).collect();
    format!(
        "bursts and waits of {} other threads, which ran {ran} in {}: {}, …; threads below {} % of \
         a CPU are combined into one per CPU",
        work.threads.len(),
        work.elapsed,
        names.join(", "),
        SMALL * 100.0,
    )
}

fn interrupts(work: &Workload) -> String {
    let count: usize = work.interrupts.iter().map(|load| load.costs.len()).sum();
    let time: Nanos = work.interrupts.iter().map(InterruptLoad::time).sum();
    let mut names: Vec<&str> = Vec::new();
    for load in &work.interrupts {
        if !names.contains(&&*load.name) && names.len() < NAMED {
            names.push(&load.name);
        }
    }
    format!(
        "{count} interrupts other than the timer's, {time} including their softirqs: {}, …",
        names.join(", ")
    )
}

/// Returns the assumptions that apply to every recording.
pub(super) fn standing(work: &Workload) -> Vec<String> {
    let mut assumed = vec![
        "every program does the same work and waits equally long for external events"
            .to_owned(),
        "a thread that was not followed slept until it was woken, and was runnable otherwise; \
         without wake-ups in the recording, it slept if its CPU was idle between two of its runs"
            .to_owned(),
        "a wait ended by a timer had its full requested length; all other waits take equally long \
         under any kernel"
            .to_owned(),
        "interrupts arrive at the recorded rate at random times; all ticks cost the same, softirqs \
         included, at any tick rate"
            .to_owned(),
    ];
    if work.paced.is_some() {
        assumed.insert(
            1,
            "the earliest tenth of the loop's wake-ups was on time; any additional lateness of the \
             others, for example from a hypervisor, is added to any timer (use --asked to set \
             when frames were due)"
                .to_owned(),
        );
    }
    assumed
}
