//! Explains the terms of the first screens.

use ticktax_model::statement::Statement;

use crate::text::TextStyle;
use crate::text::block::Written;
use crate::text::page::{Page, Tone};

const PROGRAM: &[(&str, &str)] = &[
    (
        "wanted a CPU",
        "the time for which its threads could run, added up: running, waiting for a CPU, throttled, interrupted, in page faults.",
    ),
    (
        "who made it wait",
        "who was on the CPU that it waited for, all processes of one name together (--by process, thread). % wait: of all its waiting. times: how often they ran meanwhile. pattern: the period of a process that runs at regular times.",
    ),
    (
        "worst delays",
        "the longest single waits: woken late, from a wake-up until it ran; preempted, from giving way to another until it ran again.",
    ),
    (
        "not the cause",
        "what took less than 1 % of the time that it wanted. steal: from all CPUs, whatever ran there.",
    ),
];

const MACHINE: &[(&str, &str)] = &[
    (
        "programs, kernel, hypervisor",
        "shares of the time of all CPUs. hypervisor: what its own clock says, and gaps of a probe in which the kernel provably ran nothing.",
    ),
    (
        "top CPU time",
        "all processes of one name together (--by process, thread). % CPUs: of the time of all CPUs. times: how often they were put on a CPU.",
    ),
    (
        "who waited for a CPU",
        "threads that were woken, or had to give way, until they ran: of all programs, added up, but for ticktax. % wait: of all that waiting. behind: who ran meanwhile on the CPU that it then got, the one with the most first.",
    ),
    (
        "taken from programs by",
        "interrupts, softirqs, kernel threads, the hypervisor, and entering and leaving the kernel around them.",
    ),
    (
        "repeats",
        "sources with a period that take 0.05 % of their CPUs or more; of programs only the time for which others waited, or, where that is not known, their own where CPUs were scarce. each: half of them took less. % CPU: of the time of the CPUs that it ran on.",
    ),
    (
        "where top is wrong",
        "the busy share of /proc/stat beside the one that was traced.",
    ),
];

const BOTH: &[(&str, &str)] = &[
    (
        "SO",
        "what to do, by rules; the line below it is a command that does it or shows more.",
    ),
    (
        "not seen",
        "what could not be observed, and why, is in --section limits.",
    ),
    (
        "the books balance",
        "every nanosecond of every CPU is in exactly one account.",
    ),
];

/// The legend of the first screen, after an empty line.
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
