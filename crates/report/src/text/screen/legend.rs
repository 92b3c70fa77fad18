//! Explanations of the terms on first screens.

use ticktax_model::statement::Statement;

use crate::text::TextStyle;
use crate::text::block::Written;
use crate::text::page::{Page, Tone};

const PROGRAM: &[(&str, &str)] = &[
    (
        "LAGGING, DELAYED, OK",
        "LAGGING: frames of its loop were late or dropped. DELAYED: it stalled for 1 % or more of \
         the time in which it had work (5 % if all frames were on time), a single stall took \
         10 ms or more, or advice names a delay. OK: none of these.",
    ),
    (
        "needed the CPU",
        "time in which its threads could have run, summed over all threads: running, waiting for a \
         CPU, throttled, interrupted, in page faults.",
    ),
    (
        "had work",
        "time in which its threads needed the CPU or were blocked, frozen or stopped.",
    ),
    (
        "STALLED",
        "time in which it did not do what it wanted to do, by kind, costliest first. % stall: \
         share of all stalls. Sleeping on a timer or on input does not count.",
    ),
    (
        "WAITED BEHIND",
        "programs and kernel activities that ran on the CPU that it waited for, grouped by name \
         (--by process, thread). % wait: share of all its waiting. count: number of times they ran \
         during its waits. late+dropped: late frames of its loop that they caused, and frames \
         dropped before those. period: its period, if it runs periodically, and a real-time \
         policy. unknown: waiting during which no running thread was recorded.",
    ),
    (
        "wake-up latency",
        "time from a wake-up until the thread runs. In the table: the part in which its CPU was \
         idle.",
    ),
    (
        "LONGEST DELAYS",
        "the longest single stalls of any kind. wake-up delayed: from a wake-up until it ran. \
         preempted: from losing its CPU until it ran again.",
    ),
    (
        "ruled out",
        "causes that took less than 1 % of the CPU time that it needed. steal: stolen across \
         all CPUs, during any work.",
    ),
];

const MACHINE: &[(&str, &str)] = &[
    (
        "programs, kernel, stolen, idle",
        "shares of the time of all CPUs. stolen: time shown by the steal clock, or gaps of a probe \
         in which the kernel provably ran nothing. at least: a lower bound, from timer interrupts \
         that came late although the kernel had not disabled interrupts.",
    ),
    (
        "CPU TIME",
        "grouped by program name (--by process, thread). % CPU: share of the time of all CPUs. \
         runs: number of times it was put on a CPU. max: longest run.",
    ),
    (
        "RUN-QUEUE WAITS",
        "time from a wake-up or preemption until the thread runs, summed over the threads of a \
         program, without ticktax. % wait: share of all such time. waits: number of waits. \
         behind: the programs that ran on that CPU during the waits, largest first.",
    ),
    (
        "KERNEL AND HYPERVISOR",
        "CPU time of interrupts, softirqs, kernel threads and the hypervisor, and of kernel entry \
         and exit around them.",
    ),
    (
        "PERIODIC",
        "periodic sources that take 0.05 % or more of their CPUs. A program counts with the time \
         that others waited behind it, or with all its time if waits are unknown and CPUs were \
         scarce. median: length of one event. % CPU: share of the time of the CPUs that it ran on.",
    ),
    (
        "`top`",
        "compares the busy share in /proc/stat, which `top` shows, with the traced share.",
    ),
];

const BOTH: &[(&str, &str)] = &[
    (
        "WHAT TO DO",
        "advice from fixed rules. The command below each item carries it out, proves it, or shows \
         more.",
    ),
    (
        "limitations",
        "what could not be observed, and why (--section limits).",
    ),
    (
        "accounts balance",
        "every nanosecond of every CPU is in exactly one account.",
    ),
];

/// Renders an empty line, followed by explanations of the first screen's terms.
pub(super) fn legend(statement: &Statement, style: &TextStyle) -> Written {
    let mut page = Page::new(*style);
    page.blank();
    let of_program = statement
        .victim
        .as_ref()
        .is_some_and(|v| v.threads.is_some());
    let own = if of_program { PROGRAM } else { MACHINE };
    for (word, meaning) in own.iter().chain(BOTH) {
        page.paragraph(Tone::Faint, "  ", &format!("{word}: {meaning}"));
    }
    page.finish()
}
