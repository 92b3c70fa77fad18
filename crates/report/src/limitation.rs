//! Describes the limitations of a measurement in words.

mod clock;
mod guests;
mod hooks;
mod imported;
mod periods;
mod settings;

use std::fmt::Display;

use ticktax_model::limitation::{
    GroupChangesUnseen, GroupsUnnamed, Limitation, NoGaps, NoLateTimers,
};

use crate::text::numbers::{counted, grouped};
use crate::text::page::tied;

use self::clock::clock;
use self::guests::guests;
use self::hooks::hook_missing;
use self::imported::imported;
use self::periods::{beats, summed};
use self::settings::unread;

/// A limitation in words. Both fields contain complete sentences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitationWords {
    /// Says what information is missing, and why.
    pub problem: String,
    /// Says how this affects the figures, or how to avoid the limitation. Can be empty.
    pub effect: String,
}

impl LimitationWords {
    /// Returns all sentences.
    pub fn text(&self) -> String {
        let text = format!("{} {}", self.problem, self.effect);
        text.trim_end().to_owned()
    }
}

/// Describes a limitation in words.
pub fn words(limitation: &Limitation) -> LimitationWords {
    // List every variant by name, so that a new one causes a compile error until it is assigned to
    // a function.
    let worded = match limitation {
        Limitation::KernelNotTraced { .. }
        | Limitation::HookMissing { .. }
        | Limitation::FunctionNamesHidden
        | Limitation::GroupsUnnamed { .. }
        | Limitation::GroupChangesUnseen { .. }
        | Limitation::GroupsChanged { .. }
        | Limitation::SystemCallsUnwatched { .. }
        | Limitation::SettingsUnread { .. }
        | Limitation::CpusWentOffline { .. }
        | Limitation::CpusPluggedIn { .. }
        | Limitation::AccountsBeganLate { .. }
        | Limitation::CpusNotWatched { .. }
        | Limitation::PriorityRefused { .. }
        | Limitation::ProgramNotFollowed
        | Limitation::PartOfRecording { .. }
        | Limitation::NotVerified
        | Limitation::CountersUnread { .. } => machine(limitation),
        Limitation::CpusNotProbed { .. }
        | Limitation::ProbePolicyRefused { .. }
        | Limitation::HypervisorTimeNotSeparated { .. }
        | Limitation::LateTimersNotSeen { .. } => probes(limitation),
        Limitation::ThreadsNotFollowed { .. }
        | Limitation::WaitsDerived { .. }
        | Limitation::InterruptsNotTraced { .. }
        | Limitation::SwitchesMissed { .. }
        | Limitation::ProcessNotTraced { .. }
        | Limitation::ProcessPartlyTraced { .. }
        | Limitation::SwitchesUnreported { .. }
        | Limitation::InterruptsSwitchedOut { .. }
        | Limitation::EntriesMissed { .. }
        | Limitation::FollowingCutShort { .. }
        | Limitation::FrameEventsLost { .. }
        | Limitation::GapContentsUnknown { .. }
        | Limitation::Other { .. } => events(limitation),
        Limitation::LengthDiffers { .. }
        | Limitation::EndedAtMemoryLimit { .. }
        | Limitation::RingTooShort { .. }
        | Limitation::WindowCutShort { .. }
        | Limitation::Suspended { .. }
        | Limitation::ClockSet { .. }
        | Limitation::InstructionTime { .. }
        | Limitation::HostTime => clock(limitation),
        Limitation::StacksLost { .. }
        | Limitation::FunctionsUnnamed { .. }
        | Limitation::SourcesMerged { .. }
        | Limitation::BeatTimesSummed { .. }
        | Limitation::BeatLongTimesSummed { .. } => summed(limitation),
        Limitation::Imported { limit } => imported(limit),
        Limitation::GuestsNotTraced { .. }
        | Limitation::GuestsNeedRights { .. }
        | Limitation::VcpusNotCounted { .. } => guests(limitation),
        Limitation::BeatSourcesUnnamed
        | Limitation::BeatsTooFewEvents { .. }
        | Limitation::BeatPeriodsTooLong { .. }
        | Limitation::BeatSourcesQuiet { .. }
        | Limitation::BeatSourcesLeftOut { .. }
        | Limitation::BeatSourcesCutShort { .. }
        | Limitation::BeatEventsLost { .. }
        | Limitation::RecordingHoles { .. }
        | Limitation::BeatEventsUnordered { .. } => beats(limitation),
    };
    worded.unwrap_or_else(|| LimitationWords {
        problem: format!("{limitation:?}."),
        effect: UNWORDED.to_owned(),
    })
}

/// Fallback for a variant that its function does not describe. A test finds such variants.
const UNWORDED: &str = "This version has no description for it.";

type Words = Option<LimitationWords>;

#[expect(
    clippy::unnecessary_wraps,
    reason = "the functions below return it from match arms next to `None`"
)]
fn sentences(problem: impl Into<String>, effect: impl Into<String>) -> Words {
    Some(LimitationWords {
        problem: problem.into(),
        effect: effect.into(),
    })
}

/// Formats a count with its noun. `one` is the singular of the noun, and `more` is its plural.
fn several(count: u64, one: &str, more: &str) -> String {
    tied(grouped(count)) + " " + if count == 1 { one } else { more }
}

/// Returns the past tense of "to be" for a subject with this count.
fn were(count: u64) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

/// Removes the full stop at the end of a message from elsewhere.
fn unstopped(message: &str) -> &str {
    message.trim_end().trim_end_matches('.')
}

/// Describes groups without a name.
fn unnamed(groups: u64, reason: GroupsUnnamed) -> Words {
    let why = match reason {
        GroupsUnnamed::NoState => "no known container runtime has matching files",
        GroupsUnnamed::UnknownFormat => "the files of the container runtime contain no valid name",
        GroupsUnnamed::Denied => "permission to read the files of the container runtime was denied",
    };
    let groups = several(groups, "container or pod has", "containers or pods have");
    let effect = match reason {
        GroupsUnnamed::Denied => "To see the names, run as root.",
        _ => "The report shows control-group paths instead.",
    };
    sentences(format!("{groups} no name, because {why}."), effect)
}

/// Describes changes to cgroups that were not seen.
fn unseen(reason: &GroupChangesUnseen) -> Words {
    let problem = match reason {
        GroupChangesUnseen::Namespace => {
            "Control-group changes were missed, because ticktax ran in a cgroup namespace."
                .to_owned()
        }
        GroupChangesUnseen::Refused { message } => format!(
            "Control-group changes were missed, because the kernel did not allow it: {}.",
            unstopped(message)
        ),
        GroupChangesUnseen::TooMany { changes } => {
            let changes = several(*changes, "control-group change", "control-group changes");
            format!("{changes} did not fit into memory.")
        }
    };
    sentences(
        problem,
        "Groups and processes that existed only during the recording may be missing.",
    )
}

/// Describes processes and threads that moved to another group.
fn changed(processes: u64, threads: u64) -> Words {
    let processes = (processes > 0).then(|| several(processes, "process", "processes"));
    let threads =
        (threads > 0).then(|| several(threads, "individual thread", "individual threads"));
    let moved: Vec<String> = [processes, threads].into_iter().flatten().collect();
    sentences(
        format!(
            "{} moved to another control group during the recording.",
            moved.join(" and ")
        ),
        "All of a process's time is charged to its last group.",
    )
}

/// Describes limitations that come from the machine, the kernel or the caller's rights.
fn machine(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::KernelNotTraced { message, .. } => sentences(
            format!(
                "ticktax could not trace the kernel: {}.",
                unstopped(message)
            ),
            "The figures come from counters in /proc, which do not show individual interrupts, \
             softirqs, context switches or waits.",
        ),
        Limitation::HookMissing { hook, reason } => hook_missing(*hook, reason),
        Limitation::NotVerified => sentences(
            "The recording file has no checksums, because another program or an early version of \
             ticktax wrote it.",
            "Damage to the file would go unnoticed.",
        ),
        Limitation::FunctionNamesHidden => sentences(
            "Kernel functions have no names, because /proc/kallsyms hides their addresses.",
            "To see the names, run as root or with CAP_SYSLOG, and set kernel.kptr_restrict to 1 \
             or 0.",
        ),
        Limitation::GroupsUnnamed { groups, reason } => unnamed(*groups, *reason),
        Limitation::GroupChangesUnseen { reason } => unseen(reason),
        Limitation::GroupsChanged { processes, threads } => changed(*processes, *threads),
        Limitation::SystemCallsUnwatched { calls_per_s } => sentences(
            format!(
                "ticktax stopped tracing system calls during the recording, because a CPU made {} \
                 of them per second and tracing would have slowed them down.",
                grouped(*calls_per_s)
            ),
            "After that, time in system calls counts as the program's own code.",
        ),
        Limitation::SettingsUnread {
            paths,
            paths_left_out: more,
            reason,
        } => {
            let more = match more {
                0 => String::new(),
                more => format!(" and {} more", grouped(*more)),
            };
            unread(&format!("{}{more}", paths.join(", ")), reason)
        }
        Limitation::CountersUnread { cpus } => sentences(
            format!(
                "The CPU time of {} is unknown, because the counters in /proc/stat were not read \
                 at both ends of the recording.",
                tied(cpus.named())
            ),
            "",
        ),
        Limitation::PriorityRefused { reason } => sentences(
            format!(
                "ticktax read its event buffers late, because the kernel refused it a real-time \
                 priority ({}).",
                unstopped(reason)
            ),
            "Events that do not fit into the buffers are lost. Grant CAP_SYS_NICE, or run ticktax \
             in the root control group.",
        ),
        Limitation::ProgramNotFollowed => sentences(
            "The states of the program's threads are unknown, because --keep sums does not record \
             individual intervals.",
            "To see them, omit --keep sums.",
        ),
        Limitation::PartOfRecording { from, to } => sentences(
            format!(
                "This report covers only {} to {} of the recording, so it omits the kernel's own \
                 counters, which cover the whole recording.",
                tied(from),
                tied(to)
            ),
            "The event counts in the other limitations also cover the whole recording.",
        ),
        _ => cpus(limitation),
    }
}

/// Describes limitations of individual CPUs.
fn cpus(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::CpusWentOffline { cpus } => sentences(
            format!("{} went offline during the recording.", tied(cpus.named())),
            "Accounting there ends with the last traced event.",
        ),
        Limitation::CpusPluggedIn { cpus } => sentences(
            format!("{} came online during the recording.", tied(cpus.named())),
            "Accounting there starts with the first context switch.",
        ),
        Limitation::AccountsBeganLate { cpus } => sentences(
            format!(
                "The accounts of {} start late, because high-priority threads ran there when the \
                 recording started.",
                tied(cpus.named())
            ),
            "They start with the first context switch.",
        ),
        Limitation::CpusNotWatched { cpus } => sentences(
            format!("The recording does not cover {}.", tied(cpus.named())),
            "Activity there is missing from all figures.",
        ),
        _ => None,
    }
}

/// Describes limitations of probes and of stolen time.
fn probes(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::CpusNotProbed { cpus } => sentences(
            format!(
                "No probe ran on {}, because this process's cpuset or container does not allow it.",
                tied(cpus.named())
            ),
            "Gaps there are unknown.",
        ),
        Limitation::ProbePolicyRefused { cpu, policy } => sentences(
            format!("The probe on CPU {cpu} ran under {policy}."),
            "Other threads can preempt it, so its gaps are more frequent and longer.",
        ),
        Limitation::HypervisorTimeNotSeparated { reason } => sentences(
            format!(
                "{}, so time spent in the hypervisor and in kernel entry and exit counts as the \
                 running task's time.",
                match reason {
                    NoGaps::NoProbe => "No probe ran",
                    NoGaps::Soaker => "The soak probe reads no clock",
                }
            ),
            "--probe spin measures this time separately.",
        ),
        Limitation::LateTimersNotSeen { reason } => sentences(
            format!(
                "ticktax could not check whether timer interrupts were late, because {}.",
                match reason {
                    NoLateTimers::Sums => "--keep sums does not record individual interrupts",
                    NoLateTimers::NoTick => {
                        "the kernel does not use high-resolution timers or has no tracepoint for \
                         them"
                    }
                }
            ),
            "Stolen time that the hypervisor does not report may go unnoticed.",
        ),
        _ => None,
    }
}

/// Describes how the accounts treat the time of an untraced thread.
const DISPLACED: &str = "This time is unexplained, or charged to the threads that ran before it.";

/// Describes limitations caused by context switches that the kernel did not report.
fn switches(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::SwitchesMissed { count } => sentences(
            format!(
                "The running thread is unknown in {}, because the kernel did not report the \
                 context switch (no sched_switch event).",
                counted(*count, "interval")
            ),
            "This time is unexplained.",
        ),
        Limitation::ProcessNotTraced { name, pid, ran } => sentences(
            format!(
                "The kernel reported no context switch of {name} ({pid}), although the scheduler \
                 counted {} of run time.",
                tied(ran)
            ),
            DISPLACED,
        ),
        Limitation::ProcessPartlyTraced {
            name,
            pid,
            ran,
            missing,
        } => sentences(
            format!(
                "The kernel did not report all context switches of {name} ({pid}): {} of its {} \
                 are missing.",
                tied(missing),
                tied(format!("{ran} of CPU time"))
            ),
            DISPLACED,
        ),
        Limitation::SwitchesUnreported { count } => sentences(
            format!(
                "The kernel counted at least {} (ctxt in /proc/stat) that it did not report (no \
                 sched_switch event).",
                several(*count, "context switch", "context switches")
            ),
            "A thread that ran between two unreported switches is missing from the accounts.",
        ),
        Limitation::InterruptsSwitchedOut { count } => sentences(
            format!(
                "{} ended with a context switch instead of an exit event.",
                several(*count, "interrupt or softirq", "interrupts or softirqs")
            ),
            "The rest of their time is charged to the interrupted thread.",
        ),
        _ => None,
    }
}

/// Describes limitations caused by events lost between the kernel and the recording.
fn events(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::ThreadsNotFollowed { threads } => sentences(
            format!(
                "{} of the program's threads {} not followed, because the tracer's table was full.",
                grouped(*threads),
                were(*threads)
            ),
            "Their waits and sleeps are missing.",
        ),
        Limitation::WaitsDerived { threads } => sentences(
            format!(
                "The tracer did not follow {} of the program's threads, so their states were \
                 derived from their run times and wake-ups.",
                grouped(*threads)
            ),
            "Sleep, disk I/O, locks and stops count as one state, throttled time counts as \
             waiting, and waits that cross either end of the recording are missing.",
        ),
        Limitation::InterruptsNotTraced {
            cpu,
            interrupt,
            count,
        } => sentences(
            format!(
                "The kernel counted {} {interrupt} on CPU {cpu}, but no tracepoint reported them.",
                grouped(*count)
            ),
            "Their time is charged to the interrupted activity, or to the hypervisor or firmware.",
        ),
        Limitation::EntriesMissed { count } => sentences(
            format!(
                "{} missing.",
                several(
                    *count,
                    "entry or exit event of an interrupt or a function is",
                    "entry or exit events of interrupts or functions are",
                )
            ),
            "The time of these interrupts or functions is charged to the activity around them.",
        ),
        Limitation::FollowingCutShort { after } => sentences(
            format!(
                "ticktax followed the process only for the first {}, because the process's context \
                 switches filled the reserved memory.",
                tied(after)
            ),
            "Later frames are missing. Record for a shorter time.",
        ),
        Limitation::FrameEventsLost { events } => sentences(
            format!(
                "{} {} lost, because a buffer was full.",
                counted(*events, "kernel event"),
                were(*events)
            ),
            "Frames may be missing or seem late.",
        ),
        Limitation::GapContentsUnknown { cpus } => sentences(
            format!(
                "The contents of some of the probe's gaps on {} are unknown, because the recording \
                 sums intervals over windows, or some intervals arrived too late to be sorted.",
                tied(cpus.named())
            ),
            "The part of these gaps that other intervals do not account for is unexplained.",
        ),
        Limitation::Other { topic, reason } => sentences(
            format!("Not observed: {topic} ({}).", unstopped(reason)),
            "",
        ),
        _ => switches(limitation),
    }
}

/// Describes several programs whose CPU time the kernel reported only in part.
pub(crate) fn others_partly_traced(programs: u64, most: impl Display) -> String {
    format!(
        "The kernel did not report all context switches of {}. Up to {} of the CPU time of each is \
         missing (--format json lists them).",
        counted(programs, "other program"),
        tied(most)
    )
}

#[cfg(test)]
mod tests;
