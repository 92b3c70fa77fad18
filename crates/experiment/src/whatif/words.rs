//! Describes the basis and the assumptions of a prediction.

use ticktax_analysis::workload::SMALL;
use ticktax_model::Nanos;
use ticktax_model::workload::{InterruptLoad, PacedLoad, ThreadLoad, Workload};
use ticktax_sim::{Machine, Setup, settings};

/// Maximum number of threads and interrupts that are named.
const NAMED: usize = 4;

/// Effects that the model ignores, although they can matter.
pub(super) const LEFT_OUT: [&str; 5] = [
    "getting into and out of the kernel around a handler, which in a virtual machine can take \
     longer than the handler",
    "what it costs to wake a task on another CPU, and balancing beyond taking from the longest queue",
    "ticks that a kernel lets go on in short idling, because stopping them would not pay",
    "caches, frequencies and idle states: a burst takes as long as it did",
    "ticktax's own threads",
];

/// Describes what was taken from a scenario.
pub(super) fn of_scenario(setup: &Setup) -> String {
    format!(
        "{} tasks and {} interrupts, as the scenario says; each run has another seed",
        setup.tasks.len(),
        setup.sources.len()
    )
}

/// Describes what was taken from a recording, and the modelled machine.
pub(super) fn taken(work: &Workload, machine: &Machine) -> Vec<String> {
    let mut taken: Vec<String> = work.paced.iter().map(frames).collect();
    taken.push(threads(work));
    taken.push(interrupts(work));
    taken.push(format!(
        "what a tick costs, {} and {} of softirqs behind it in the mean of {}; {} for another \
         interrupt of the timer",
        work.tick.interrupt, work.tick.softirqs, work.tick.count, work.timer
    ));
    taken.push(format!(
        "a machine with {}",
        settings::told(machine).join(" ")
    ));
    taken
}

fn frames(paced: &PacedLoad) -> String {
    let mut lates: Vec<Nanos> = paced.frames.iter().filter_map(|frame| frame.late).collect();
    lates.sort_unstable();
    let works: Nanos = paced.frames.iter().map(|frame| frame.work).sum();
    let count = i64::try_from(paced.frames.len()).unwrap_or(i64::MAX).max(1);
    format!(
        "{} frames of {} ({}, {}): due every {} by the rule {}, with {} of work in the mean, \
         and woken {} late in the middle",
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
        "the bursts and waits of {} other threads, {ran} of work in {}: {}, …; those with less \
         than {} % of a CPU are one a CPU",
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
        "{count} interrupts but for the timer's, {time} with their softirqs: {}, …",
        names.join(", ")
    )
}

/// Assumptions that apply to every recording.
pub(super) fn standing(work: &Workload) -> Vec<String> {
    let mut assumed = vec![
        "every program would have the same work to do, and wait as long for what is outside"
            .to_owned(),
        "of a thread that was not followed: it slept until it was woken (in a recording without \
         wake-ups: where its CPU idled between two of its runs), and was ready to run otherwise"
            .to_owned(),
        "a wait that a timer ended was asked for as long as it took; every other is as long, \
         whatever the kernel"
            .to_owned(),
        "interrupts come at the recorded rate and at any time; each tick costs the same, its \
         softirqs included, however many there are"
            .to_owned(),
    ];
    if work.paced.is_some() {
        assumed.insert(
            1,
            "of the loop: its earliest tenth of wakeups was in time, and what the others were \
             later, as by a hypervisor, comes on top of any timer (--asked says better when its \
             frames were due)"
                .to_owned(),
        );
    }
    assumed
}
