//! Describes the limitations of a measurement in words.

use ticktax_model::Nanos;
use ticktax_model::hook::Hook;
use ticktax_model::limitation::{Limitation, NoGaps, Unreadable};

/// A limitation in words: what could not be seen, and why. Both are clauses without a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitationWords {
    /// The thing not seen: an account, an event, a CPU.
    pub what: String,
    /// The reason, and the remedy if there is one.
    pub why: String,
}

impl LimitationWords {
    /// Both clauses as one sentence.
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.what, self.why)
    }
}

/// Describes a limitation in words.
pub fn words(limitation: &Limitation) -> LimitationWords {
    // All variants are listed by name, so that a new one does not compile until it is assigned to a
    // function.
    let worded = match limitation {
        Limitation::KernelNotTraced { .. }
        | Limitation::HookMissing { .. }
        | Limitation::FunctionNamesHidden
        | Limitation::SettingsUnread { .. }
        | Limitation::CpusWentOffline { .. }
        | Limitation::CpusPluggedIn { .. }
        | Limitation::BooksBeganLate { .. }
        | Limitation::CpusNotWatched { .. }
        | Limitation::ProgramNotFollowed
        | Limitation::PartOfRecording { .. }
        | Limitation::NotVerified
        | Limitation::CountersUnread { .. } => machine(limitation),
        Limitation::CpusNotProbed { .. }
        | Limitation::CpusFull { .. }
        | Limitation::ProbePolicyRefused { .. }
        | Limitation::OutsideNotSeparated { .. } => probes(limitation),
        Limitation::ThreadsNotFollowed { .. }
        | Limitation::WaitsDerived { .. }
        | Limitation::InterruptsNotTraced { .. }
        | Limitation::SwitchesMissed { .. }
        | Limitation::ProcessNotTraced { .. }
        | Limitation::ProcessTracedInPart { .. }
        | Limitation::SwitchesUnreported { .. }
        | Limitation::FramesCut { .. }
        | Limitation::BordersMissed { .. }
        | Limitation::FollowingCutShort { .. }
        | Limitation::FrameEventsLost { .. }
        | Limitation::GapContentsUnknown { .. }
        | Limitation::Other { .. } => events(limitation),
        Limitation::LengthNotKept { .. }
        | Limitation::RingTooShort { .. }
        | Limitation::WindowCutShort { .. }
        | Limitation::Suspended { .. }
        | Limitation::ClockSet { .. }
        | Limitation::InstructionTime { .. }
        | Limitation::HostTime => clock(limitation),
        Limitation::SourcesFolded { .. }
        | Limitation::BeatTimesSummed { .. }
        | Limitation::BeatLongTimesSummed { .. } => summed(limitation),
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
    let (what, why) = worded.unwrap_or_else(|| (format!("{limitation:?}"), UNWORDED.to_owned()));
    LimitationWords { what, why }
}

/// The reason of a variant that its function does not handle. A test finds these.
const UNWORDED: &str = "this version has no words for it";

/// The clauses of [`LimitationWords`]: the thing not seen, and the reason.
type Words = Option<(String, String)>;

#[expect(
    clippy::unnecessary_wraps,
    reason = "the functions below return it from match arms next to `None`"
)]
fn clauses(what: impl Into<String>, why: impl Into<String>) -> Words {
    Some((what.into(), why.into()))
}

/// Formats a count with the singular or plural noun.
fn several(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Limitations of the machine, the kernel, or the caller's rights.
fn machine(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::KernelNotTraced { message, .. } => clauses(
            "which interrupt, softirq or thread took the time",
            message.as_str(),
        ),
        Limitation::HookMissing { hook, reason } => {
            clauses(needed_for(*hook), format!("{reason} ({hook})"))
        }
        Limitation::NotVerified => clauses(
            "changes to the recording's file",
            "not verified: it has no checksums, because another program or an early ticktax wrote it",
        ),
        Limitation::FunctionNamesHidden => clauses(
            "names of kernel functions",
            "/proc/kallsyms hides them; run as root or with CAP_SYSLOG, and set \
             kernel.kptr_restrict to 1 or 0",
        ),
        Limitation::SettingsUnread {
            paths,
            more,
            reason,
        } => {
            let more = match more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            clauses(
                format!("settings in {}{more}", paths.join(", ")),
                unreadable(reason),
            )
        }
        Limitation::CpusWentOffline { cpus } => clauses(
            format!("the end of {}", cpus.named()),
            "taken offline: the books end with the last event seen there",
        ),
        Limitation::CpusPluggedIn { cpus } => clauses(
            format!("{} before being plugged in", cpus.named()),
            "the books begin with the first context switch",
        ),
        Limitation::BooksBeganLate { cpus } => clauses(
            format!("the beginning of {}", cpus.named()),
            "held by a thread of high priority: the books begin with the first context switch",
        ),
        Limitation::CpusNotWatched { cpus } => clauses(
            format!("what ran on {}", cpus.named()),
            "not among the watched CPUs",
        ),
        Limitation::ProgramNotFollowed => clauses(
            "what happened to the program",
            "it needs every span: leave out --keep sums",
        ),
        Limitation::PartOfRecording { from, to } => clauses(
            "what the kernel's own counters show",
            format!(
                "they were read when the recording began and when it ended, and this is {from} to {to} of \
                 it; numbers of events in this list are of all of it"
            ),
        ),
        Limitation::CountersUnread { cpus } => clauses(
            format!("every account on {}", cpus.named()),
            "the kernel's counters in /proc/stat were not read at both ends",
        ),
        _ => None,
    }
}

/// Limitations of a probe.
fn probes(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::CpusNotProbed { cpus } => clauses(
            format!("gaps on {}", cpus.named()),
            "this process may not run there: its cpuset or container does not allow it",
        ),
        Limitation::CpusFull { cpus } => clauses(
            format!("gaps on {}", cpus.named()),
            "no time to spare there as the audit began, and the kernel shares CPU time by session first: the \
             probe would have had half of it; --probe spin runs it all the same",
        ),
        Limitation::ProbePolicyRefused { cpu, policy } => {
            clauses("the probe as asked for", format!("CPU {cpu}: {policy}"))
        }
        Limitation::OutsideNotSeparated { reason } => clauses(
            "the hypervisor's time, and getting into and out of the kernel",
            format!(
                "{}, so both are in the time of what had the CPU; --probe spin tells them apart",
                match reason {
                    NoGaps::NoProbe => "no probe ran",
                    NoGaps::Soaker => "a soaker reads no clock",
                }
            ),
        ),
        _ => None,
    }
}

/// A program whose run time `ran` was traced except for `missing`.
fn in_part(who: &str, ran: Nanos, missing: Nanos) -> Words {
    clauses(
        format!("{missing} of the {ran} that {who} ran for, by the scheduler's own account"),
        "the kernel did not report all of its context switches: this time is unexplained, or in \
         that of the threads that it displaced",
    )
}

/// Events lost between the kernel and the recording.
fn events(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::ThreadsNotFollowed { threads } => clauses(
            format!("{threads} of its threads"),
            "there was no room to follow them",
        ),
        Limitation::WaitsDerived { threads } => clauses(
            format!("why {threads} of its threads slept, and how long quotas throttled them"),
            "the tracer did not follow them: sleep, disk, locks and stops are one state, throttled time \
             counts as waiting, and waits that cross either end of the recording are missing",
        ),
        Limitation::InterruptsNotTraced {
            cpu,
            interrupt,
            count,
        } => clauses(
            format!("{count} of CPU {cpu}'s {}", interrupt.to_lowercase()),
            "no tracepoint shows them: their time is with what they interrupted, or outside",
        ),
        Limitation::SwitchesMissed { count } => clauses(
            format!(
                "which thread ran in {}",
                several(*count, "stretch of time", "stretches of time")
            ),
            "the kernel did not report the context switch (no sched_switch event): their time is \
             unexplained",
        ),
        Limitation::ProcessNotTraced { name, pid, ran } => clauses(
            format!("when {name} ({pid}) ran: {ran} by the scheduler's own account"),
            "the kernel reported none of its context switches: its time is unexplained, or in the \
             time of the threads that it displaced",
        ),
        Limitation::ProcessTracedInPart {
            name,
            pid,
            ran,
            missing,
        } => in_part(&format!("{name} ({pid})"), *ran, *missing),
        Limitation::SwitchesUnreported { count } => clauses(
            format!(
                "at least {}",
                several(*count, "context switch", "context switches")
            ),
            "counted by the kernel (ctxt in /proc/stat) and not reported (no sched_switch event); where two in \
             a row are missing, the thread between them is not seen",
        ),
        Limitation::FramesCut { count } => clauses(
            format!(
                "the rest of {}",
                several(*count, "interrupt or softirq", "interrupts or softirqs")
            ),
            "their thread was switched away from in the middle: what followed counts as the \
             thread's",
        ),
        Limitation::BordersMissed { count } => clauses(
            several(
                *count,
                "entry or exit of an interrupt or a function",
                "entries or exits of interrupts or functions",
            ),
            "their events are missing: their time is counted with what is around them",
        ),
        Limitation::FollowingCutShort { after } => clauses(
            format!("what came after {after}"),
            "the process switches too often for the memory set aside; watch for a shorter time",
        ),
        Limitation::FrameEventsLost { events } => clauses(
            several(*events, "event of the kernel", "events of the kernel"),
            "overran the buffer, so that frames may be missing or seem late",
        ),
        Limitation::GapContentsUnknown { cpus } => clauses(
            format!("what was in the probe's gaps on {}", cpus.named()),
            "the recording sums intervals over windows, or some arrived too late, so that they \
             cannot be placed in time; these gaps are unexplained, and their time stays with the \
             probe as \
             far as those intervals may account for it",
        ),
        Limitation::Other { what, why } => clauses(what.as_str(), why.as_str()),
        _ => None,
    }
}

/// Limitations of this machine's clock.
fn clock(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::LengthNotKept { asked, watched } => clauses(
            if watched > asked {
                format!("a length of {asked}: it was {} longer", *watched - *asked)
            } else {
                format!("a length of {asked}: it was {} shorter", *asked - *watched)
            },
            "CPUs were too busy: the books of one began late, a loop's last frame came late, or the kernel's \
             counters were read late",
        ),
        Limitation::RingTooShort { asked, reached } => clauses(
            format!(
                "the first {} of {asked} before the trigger",
                *asked - *reached
            ),
            "the ring of a CPU at least had come round: with fewer CPUs (--cpus) each has more room",
        ),
        Limitation::WindowCutShort { asked, kept } => clauses(
            format!("the last {} of a window of {asked}", *asked - *kept),
            "its records took all the memory that a window may have; what triggered later is in a \
             recording of its own",
        ),
        Limitation::Suspended { time } => clauses(
            format!("{time} in which the machine was suspended"),
            "no CPU ran, and CLOCK_MONOTONIC was stopped",
        ),
        Limitation::ClockSet { by } => {
            let (by, way) = if *by > Nanos::ZERO {
                (*by, "forward")
            } else {
                (-*by, "back")
            };
            clauses(
                format!("what follows the time of day, which was set {by} {way}"),
                "times here are on another clock; what starts at times of day changed its phase",
            )
        }
        Limitation::InstructionTime { instruction } => clauses(
            "what caches, pipelines and a hypervisor cost",
            format!(
                "time in this guest is its number of instructions, {} ns each; nothing else takes \
                 any",
                instruction.0
            ),
        ),
        Limitation::HostTime => clauses(
            "what is the guest's and what QEMU's",
            "time in this guest is the host's",
        ),
        _ => None,
    }
}

/// Limitations of recordings that only keep sums.
fn summed(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::SourcesFolded { intervals } => clauses(
            format!(
                "the sources of {}",
                several(*intervals, "interval", "intervals")
            ),
            "there were more than the table of sums holds: they are counted as others",
        ),
        Limitation::BeatTimesSummed { rows } => clauses(
            format!(
                "the times of what is shorter than 1 ms, in {}",
                several(*rows, "row", "rows")
            ),
            "they sum intervals over windows; beats are found in gaps and in what lasts longer: record \
             with --keep spans for all",
        ),
        Limitation::BeatLongTimesSummed {
            windows,
            sources: 0,
            ..
        } => clauses(
            format!(
                "the times of longer intervals in {}",
                several(*windows, "window", "windows")
            ),
            "they were summed, because there was no room for their times; such a window counts as not \
             observed",
        ),
        Limitation::BeatLongTimesSummed {
            windows,
            sources,
            max_windows,
        } => clauses(
            format!(
                "the times of longer intervals in {} (sources left out: {sources})",
                several(*windows, "window", "windows")
            ),
            format!(
                "they were summed, because there was no room for their times; a source is left out that \
                 lost more than {max_windows} windows so"
            ),
        ),
        _ => None,
    }
}

/// Limitations of the search for periodic sources.
fn beats(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::BeatSourcesUnnamed => clauses(
            "the sources of beats",
            "only the probes' gaps were recorded: the kernel was not traced",
        ),
        Limitation::BeatsTooFewEvents { min_events } => clauses(
            "any beat",
            format!("no source has the {min_events} events that a period needs"),
        ),
        Limitation::BeatPeriodsTooLong { over } => clauses(
            format!("periods over {over}"),
            "a period must fit four times into the recording",
        ),
        Limitation::BeatSourcesQuiet {
            sources,
            min_events,
        } => clauses(
            several(*sources, "source", "sources"),
            format!("with fewer than {min_events} events each"),
        ),
        Limitation::BeatSourcesLeftOut { sources, max } => clauses(
            several(*sources, "source", "sources"),
            format!("beyond the {max} that there is memory for"),
        ),
        Limitation::BeatSourcesCutShort { sources } => clauses(
            several(*sources, "busy source", "busy sources"),
            "the events need more memory than is set aside",
        ),
        Limitation::BeatEventsLost { cpu, events } => clauses(
            format!("{} on CPU {cpu}", several(*events, "event", "events")),
            "lost, so that beats may be missing, and counted beats are too few",
        ),
        Limitation::RecordingHoles { cpu, time, holes } => clauses(
            format!(
                "{time} or more on CPU {cpu} in {}",
                several(*holes, "part", "parts")
            ),
            "nothing at all was recorded then: lost events, a halted machine, a clock that \
             stepped; periods are counted on both sides apart",
        ),
        Limitation::BeatEventsUnordered { events } => clauses(
            format!(
                "{} of threads that move",
                several(*events, "event", "events")
            ),
            "arrived too late to be sorted",
        ),
        _ => None,
    }
}

/// The information that only `hook` provides.
fn needed_for(hook: Hook) -> &'static str {
    match hook {
        Hook::IrqHandler => "device interrupts",
        Hook::Softirq => "softirqs",
        Hook::LocalTimer => "the local timer's interrupts",
        Hook::Reschedule => "reschedule interrupts from other CPUs",
        Hook::CallFunction => "function calls from other CPUs (to several)",
        Hook::CallFunctionSingle => "function calls from other CPUs (to one)",
        Hook::IrqWork => "irq_work interrupts that the kernel sends itself",
        Hook::ThermalApic => "thermal interrupts",
        Hook::ThresholdApic => "machine-check threshold interrupts",
        Hook::DeferredErrorApic => "deferred-error interrupts",
        Hook::ErrorApic => "APIC error interrupts",
        Hook::SpuriousApic => "spurious interrupts",
        Hook::X86PlatformIpi => "platform interrupts",
        Hook::NmiHandler => "non-maskable interrupts",
        Hook::HrtimerExpire => "which function a high-resolution timer ran",
        Hook::TimerExpire => "which function a timer of the wheel ran",
        Hook::TickStop => "how often the kernel stopped the tick",
        Hook::CsdFunction => "which function another CPU requested",
        Hook::WorkqueueExecute => "which function a kernel worker ran",
        Hook::PageFault => "page faults as separate from the program's own time",
        Hook::DirectReclaim => "direct reclaim as separate from the program's own time",
        Hook::MemcgReclaim => "memory-cgroup reclaim as separate from the program's own time",
        Hook::SchedWaking => "what woke a thread: its beat is shown without a cause",
        Hook::WorkqueueQueueWork => "what queued a work item: its beat is shown without a cause",
        Hook::SoftirqRaise => "what raised a softirq: its beat is shown without a cause",
        Hook::SchedWakeup => "when a thread was woken: its wait for a CPU counts as blocked",
        Hook::SchedProcessFork => "threads and processes that the program starts meanwhile",
        Hook::SchedProcessExec => "exec by a thread other than the first",
        Hook::SchedSwitch => "threads",
    }
}

fn unreadable(reason: &Unreadable) -> String {
    let words = match reason {
        Unreadable::NeedsRoot => "permission denied; this needs root, with all its rights",
        Unreadable::NeedsSyslog => "the kernel log needs root or CAP_SYSLOG",
        Unreadable::NotAFile => "it is not a regular file",
        Unreadable::TooLong { read_bytes } => {
            let mebibytes = read_bytes >> 20;
            return format!("it is longer than {mebibytes} MiB: only that much of it was read");
        }
        Unreadable::TooManySettings => "there are more settings than are looked at",
        Unreadable::TooManyOpenFiles => "there are too many open files to look at all of them",
        Unreadable::Failed(message) => message,
    };
    words.to_owned()
}

#[cfg(test)]
mod tests;
