//! Describes what another tool's trace lacks.

use ticktax_model::limitation::ImportLimit;

use super::{Words, sentences, several};
use crate::text::numbers::counted;

pub(super) fn imported(limit: &ImportLimit) -> Words {
    match limit {
        ImportLimit::ProcessesUnknown { threads } => threads_without(
            "does not show the processes of",
            *threads,
            "Each of these threads is listed as a separate process.",
        ),
        ImportLimit::ThreadsUnnamed { threads } => threads_without(
            "has no names for",
            *threads,
            "Their ids are listed instead.",
        ),
        ImportLimit::SilentCpus { cpus } => sentences(
            format!("The trace has no events from {}.", cpus.named()),
            "These CPUs may have been idle, or a single thread may have run on them.",
        ),
        ImportLimit::NoCounters { format } => sentences(
            format!("Converted from a trace ({format}), which has no kernel counters or settings."),
            "Stolen time, quotas, page faults and groups are unknown, and there are no findings \
             about settings.",
        ),
        ImportLimit::EventsNotRecorded { events } => sentences(
            format!("The trace has none of these events: {}.", events.join(", ")),
            "The time of the activities that they report counts as the running thread's, or \
             their causes are unknown.",
        ),
        ImportLimit::WakeupsNotRecorded => sentences(
            "The trace has no wake-ups (sched_waking or sched_wakeup).",
            "Waits after a preemption are known. Waits after sleep are unknown and count as sleep.",
        ),
        ImportLimit::WakersUncertain => sentences(
            "The trace has sched_wakeup events but no sched_waking events.",
            "A wake-up can be reported by the CPU of the woken thread, so the waker may be wrong.",
        ),
        ImportLimit::WakeupsMissed { runs } => sentences(
            format!(
                "The trace lacks the wake-ups before {}.",
                counted(*runs, "run")
            ),
            "The waits before these runs are unknown and count as sleep.",
        ),
        ImportLimit::SwitchesInferred { switches } => sentences(
            format!(
                "The trace lacks {} from idle time to a thread, as traces of perf often do.",
                several(*switches, "switch", "switches")
            ),
            "The start of each of these runs was inferred from the thread's CPU time \
             (sched_stat_runtime).",
        ),
        ImportLimit::EventsUnordered { events, max_step } => sentences(
            format!(
                "The trace has {} out of order, by up to {max_step}.",
                counted(*events, "event")
            ),
            "The time of the previous event on the CPU was used instead.",
        ),
        ImportLimit::CoarseTimes { unit } => sentences(
            format!("The times in the trace are rounded to {unit}."),
            "Each interval can be that much too short or too long.",
        ),
        ImportLimit::LocalClock { clock } => sentences(
            format!("The clock of the trace ({clock}) is not synchronised between CPUs."),
            "Waits for a thread that another CPU woke can be too short or too long.",
        ),
        ImportLimit::Truncated { events } => sentences(
            format!(
                "The trace is truncated after {}.",
                counted(*events, "event")
            ),
            "The report covers the part before that. Copy the file again if it should be longer.",
        ),
        ImportLimit::EventsUndecoded { events } => sentences(
            format!(
                "The trace has {} that could not be decoded.",
                counted(*events, "event")
            ),
            "Anything that these events would show is missing.",
        ),
    }
}

/// Describes that the trace lacks something about some threads.
fn threads_without(lack: &str, threads: u64, effect: &'static str) -> Words {
    let threads = counted(threads, "thread");
    sentences(format!("The trace {lack} {threads}."), effect)
}
