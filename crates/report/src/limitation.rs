//! Describes the limitations of a measurement in words.

use ticktax_model::Nanos;
use ticktax_model::hook::Hook;
use ticktax_model::limitation::{GroupsUnnamed, Limitation, NoGaps, NoLateTimers, Unreadable};

use crate::text::numbers::grouped;

/// A limitation in words: what is missing and why. Both are clauses that end without a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitationWords {
    /// The missing information, such as an account, an event or a CPU.
    pub what: String,
    /// The reason why it is missing, and the remedy if there is one.
    pub why: String,
}

impl LimitationWords {
    /// Returns both clauses as one sentence, separated by a colon.
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.what, self.why)
    }
}

/// Describes a limitation in words.
pub fn words(limitation: &Limitation) -> LimitationWords {
    // List every variant by name. A new variant then causes a compile error until it is assigned to
    // a function.
    let worded = match limitation {
        Limitation::KernelNotTraced { .. }
        | Limitation::HookMissing { .. }
        | Limitation::FunctionNamesHidden
        | Limitation::GroupsUnnamed { .. }
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
        Limitation::SourcesMerged { .. }
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

/// Fallback reason for a variant that its function does not describe. A test finds such variants.
const UNWORDED: &str = "this version has no description for it";

/// The two clauses of [`LimitationWords`]: what is missing and why.
type Words = Option<(String, String)>;

#[expect(
    clippy::unnecessary_wraps,
    reason = "the functions below return it from match arms next to `None`"
)]
fn clauses(what: impl Into<String>, why: impl Into<String>) -> Words {
    Some((what.into(), why.into()))
}

/// Formats a count with its noun. `one` is the singular of the noun, and `more` is its plural.
fn several(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn unnamed(groups: u64, reason: GroupsUnnamed) -> Words {
    let why = match reason {
        GroupsUnnamed::NoState => "no known container runtime has files about them",
        GroupsUnnamed::UnknownFormat => "the files of the container runtime contain no valid name",
        GroupsUnnamed::Denied => {
            "permission to read the files of the container runtime was denied; run as root"
        }
    };
    let groups = several(groups, "container or pod", "containers or pods");
    clauses(format!("names of {groups}"), why)
}

/// Describes limitations that are due to the machine, the kernel or the caller's rights.
fn machine(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::KernelNotTraced { message, .. } => {
            clauses("interrupts, softirqs and threads by name", message.as_str())
        }
        Limitation::HookMissing { hook, reason } => {
            clauses(needed_for(*hook), format!("{reason} ({hook})"))
        }
        Limitation::NotVerified => clauses(
            "integrity of the recording's file",
            "not verified, because another program or an early version of ticktax wrote it without \
             checksums",
        ),
        Limitation::FunctionNamesHidden => clauses(
            "names of kernel functions",
            "/proc/kallsyms hides them; run as root or with CAP_SYSLOG, and set \
             kernel.kptr_restrict to 1 or 0",
        ),
        Limitation::GroupsUnnamed { groups, reason } => unnamed(*groups, *reason),
        Limitation::SystemCallsUnwatched { calls_per_s } => clauses(
            "the program's system calls after some time",
            format!(
                "a CPU ran {} of them per second, and watching would have slowed them down",
                grouped(*calls_per_s)
            ),
        ),
        Limitation::SettingsUnread {
            paths,
            paths_left_out: more,
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
            format!("{} after it went offline", cpus.named()),
            "accounts end with the last event traced there",
        ),
        Limitation::CpusPluggedIn { cpus } => clauses(
            format!("{} before it came online", cpus.named()),
            "accounts start with the first context switch",
        ),
        Limitation::AccountsBeganLate { cpus } => clauses(
            format!("the first moments on {}", cpus.named()),
            "a thread of high priority ran; accounts start with the first context switch",
        ),
        Limitation::CpusNotWatched { cpus } => clauses(
            format!("activity on {}", cpus.named()),
            "not among the watched CPUs",
        ),
        Limitation::PriorityRefused { reason } => clauses(
            "events that overflow the buffers while ticktax waits for a CPU",
            format!(
                "ticktax read them late, and the kernel refused it a real-time priority \
                 ({reason}); grant CAP_SYS_NICE, or run ticktax in the root control group"
            ),
        ),
        Limitation::ProgramNotFollowed => clauses(
            "the states of the program's threads",
            "--keep sums records no single intervals; leave it out",
        ),
        Limitation::PartOfRecording { from, to } => clauses(
            "the kernel's own counters",
            format!(
                "they cover the whole recording, but this page covers only {from} to {to}; event \
                 counts in this list cover the whole recording, too"
            ),
        ),
        Limitation::CountersUnread { cpus } => clauses(
            format!("all CPU time of {}", cpus.named()),
            "the counters in /proc/stat were not read at both ends of the recording",
        ),
        _ => None,
    }
}

/// Describes limitations that concern probes and stolen time.
fn probes(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::CpusNotProbed { cpus } => clauses(
            format!("gaps on {}", cpus.named()),
            "excluded by the cpuset or container of this process",
        ),
        Limitation::ProbePolicyRefused { cpu, policy } => clauses(
            "the requested probe policy",
            format!("CPU {cpu} used {policy}"),
        ),
        Limitation::HypervisorTimeNotSeparated { reason } => clauses(
            "hypervisor time and kernel entry and exit",
            format!(
                "{}, so both count as time of the running task; --probe spin separates them",
                match reason {
                    NoGaps::NoProbe => "no probe ran",
                    NoGaps::Soaker => "a soaker ran, which reads no clock",
                }
            ),
        ),
        Limitation::LateTimersNotSeen { reason } => clauses(
            "late timer interrupts, which reveal stolen time",
            match reason {
                NoLateTimers::Sums => "--keep sums records no times of single interrupts",
                NoLateTimers::NoTick => {
                    "the kernel does not use high-resolution timers, or their tracepoint is missing"
                }
            },
        ),
        _ => None,
    }
}

/// Describes a program whose CPU time is only partly in the trace. According to the scheduler, the
/// program ran for `ran`, but the trace lacks `missing` of that time.
fn in_part(who: &str, ran: Nanos, missing: Nanos) -> Words {
    clauses(
        format!("{missing} of the {ran} that {who} ran, according to the scheduler"),
        "the kernel did not report all of its context switches; this time is unexplained, or \
         counts for the threads that it displaced",
    )
}

/// Describes limitations that are due to events lost between the kernel and the recording.
fn events(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::ThreadsNotFollowed { threads } => clauses(
            format!("{threads} of its threads"),
            "too many threads to follow",
        ),
        Limitation::WaitsDerived { threads } => clauses(
            format!("reasons for sleeping and throttling of {threads} of its threads"),
            "the tracer did not follow them, so sleep, disk, locks and stops are one state, \
             throttled time counts as waiting, and waits at the recording's ends are missing",
        ),
        Limitation::InterruptsNotTraced {
            cpu,
            interrupt,
            count,
        } => clauses(
            format!("{count} {interrupt} on CPU {cpu}"),
            "no tracepoint reports them; their time counts for what they interrupted, or as \
             hypervisor or firmware",
        ),
        Limitation::SwitchesMissed { count } => clauses(
            format!(
                "the running thread in {}",
                several(*count, "interval", "intervals")
            ),
            "the kernel did not report the context switch (no sched_switch event); their time is \
             unexplained",
        ),
        Limitation::ProcessNotTraced { name, pid, ran } => clauses(
            format!("all {ran} that {name} ({pid}) ran, according to the scheduler"),
            "the kernel reported none of its context switches; this time is unexplained, or counts \
             for the threads that it displaced",
        ),
        Limitation::ProcessPartlyTraced {
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
            "the kernel counted them (ctxt in /proc/stat) but did not report them (no sched_switch \
             event); if two in a row are missing, the thread between them is missing, too",
        ),
        Limitation::InterruptsSwitchedOut { count } => clauses(
            format!(
                "the rest of {}",
                several(*count, "interrupt or softirq", "interrupts or softirqs")
            ),
            "a context switch interrupted them; the rest counts for the thread",
        ),
        Limitation::EntriesMissed { count } => clauses(
            several(
                *count,
                "entry or exit of an interrupt or a function",
                "entries or exits of interrupts or functions",
            ),
            "their events are missing; their time counts for the activity around them",
        ),
        Limitation::FollowingCutShort { after } => clauses(
            format!("everything after {after}"),
            "the process switches too often for the reserved memory; record for a shorter time",
        ),
        Limitation::FrameEventsLost { events } => clauses(
            several(*events, "kernel event", "kernel events"),
            "lost because a buffer was full, so frames may be missing or seem late",
        ),
        Limitation::GapContentsUnknown { cpus } => clauses(
            format!("contents of the probe's gaps on {}", cpus.named()),
            "the recording sums intervals over windows, or some arrived too late to be placed in \
             time; these gaps are unexplained, as far as those intervals do not account for them",
        ),
        Limitation::Other {
            topic: what,
            reason: why,
        } => clauses(what.as_str(), why.as_str()),
        _ => None,
    }
}

/// Describes limitations that are due to this machine's clock.
fn clock(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::EndedAtMemoryLimit { limit_bytes } => clauses(
            "the rest of the requested time",
            format!(
                "the recording ended early, because ticktax's control group may use only {} MiB \
                 of memory; use --keep sums, or a higher limit",
                limit_bytes >> 20
            ),
        ),
        Limitation::LengthDiffers {
            requested: asked,
            watched,
        } => clauses(
            format!("the requested length of {asked}"),
            format!(
                "the recording is {}, because busy CPUs delayed the start of an account, a loop's \
                 last frame, or the reading of counters",
                if watched > asked {
                    format!("{} longer", *watched - *asked)
                } else {
                    format!("{} shorter", *asked - *watched)
                }
            ),
        ),
        Limitation::RingTooShort {
            requested: asked,
            reached,
        } => clauses(
            format!(
                "the first {} of {asked} before the trigger",
                *asked - *reached
            ),
            "the buffer of at least one CPU was full; watch fewer CPUs (--cpus) for more room on \
             each",
        ),
        Limitation::WindowCutShort {
            requested: asked,
            kept,
        } => clauses(
            format!("the last {} of a window of {asked}", *asked - *kept),
            "the memory for one window was full; later triggers have their own recording",
        ),
        Limitation::Suspended { time } => clauses(
            format!("{time} during which the machine was suspended"),
            "no CPU ran, and CLOCK_MONOTONIC stood still",
        ),
        Limitation::ClockSet { step: by } => {
            let (by, way) = if *by > Nanos::ZERO {
                (*by, "forward")
            } else {
                (-*by, "back")
            };
            clauses(
                "start times of jobs that run at a time of day",
                format!(
                    "the clock was set {by} {way}, but times on this page come from another clock"
                ),
            )
        }
        Limitation::InstructionTime { instruction } => clauses(
            "the cost of caches, pipelines and a hypervisor",
            format!(
                "this guest's clock counts instructions, {} ns each, so nothing else takes time",
                instruction.0
            ),
        ),
        Limitation::HostTime => clauses(
            "the guest's time without QEMU's own",
            "this guest uses the host's clock",
        ),
        _ => None,
    }
}

/// Describes limitations that are due to recordings that keep only sums.
fn summed(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::SourcesMerged { intervals } => clauses(
            format!(
                "the sources of {}",
                several(*intervals, "interval", "intervals")
            ),
            "the table of sums was full; these intervals count as others",
        ),
        Limitation::BeatTimesSummed { rows } => clauses(
            format!(
                "times of intervals shorter than 1 ms, in {}",
                several(*rows, "row", "rows")
            ),
            "these rows are sums over time windows, so only gaps and longer intervals were \
             searched for periods; record with --keep spans to search all",
        ),
        Limitation::BeatLongTimesSummed {
            windows,
            sources: 0,
            ..
        } => clauses(
            format!(
                "times of longer intervals in {}",
                several(*windows, "window", "windows")
            ),
            "they were summed up because memory was full; these time windows count as not observed",
        ),
        Limitation::BeatLongTimesSummed {
            windows,
            sources,
            max_windows,
        } => clauses(
            format!(
                "times of longer intervals in {} (sources left out: {sources})",
                several(*windows, "window", "windows")
            ),
            format!(
                "they were summed up because memory was full; a source with more than \
                 {max_windows} such time windows is left out"
            ),
        ),
        _ => None,
    }
}

/// Describes limitations that concern the search for periodic sources.
fn beats(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::BeatSourcesUnnamed => clauses(
            "names of periodic sources",
            "only the probes' gaps were recorded; the kernel was not traced",
        ),
        Limitation::BeatsTooFewEvents { min_events } => clauses(
            "all periodic sources",
            format!("no source has the {min_events} events that a period needs"),
        ),
        Limitation::BeatPeriodsTooLong { max_period: over } => clauses(
            format!("periods over {over}"),
            "a period must fit four times into the recording",
        ),
        Limitation::BeatSourcesQuiet {
            sources,
            min_events,
        } => clauses(
            several(*sources, "source", "sources"),
            format!("they have fewer than {min_events} events each"),
        ),
        Limitation::BeatSourcesLeftOut { sources, max } => clauses(
            several(*sources, "source", "sources"),
            format!("the memory holds the events of only {max} sources"),
        ),
        Limitation::BeatSourcesCutShort { sources } => clauses(
            several(*sources, "busy source", "busy sources"),
            "their events need more memory than reserved",
        ),
        Limitation::BeatEventsLost { cpu, events } => clauses(
            format!("{} on CPU {cpu}", several(*events, "event", "events")),
            "they were lost, so periodic sources may be missing and their counts too low",
        ),
        Limitation::RecordingHoles { cpu, time, holes } => clauses(
            format!(
                "at least {time} on CPU {cpu}, in {}",
                several(*holes, "hole", "holes")
            ),
            "nothing was recorded then (lost events, a halted machine, or a clock step); periods \
             are counted separately on both sides",
        ),
        Limitation::BeatEventsUnordered { events } => clauses(
            format!(
                "{} of migrating threads",
                several(*events, "event", "events")
            ),
            "they arrived too late to be sorted",
        ),
        _ => None,
    }
}

/// Returns a description of the information that only `hook` provides.
fn needed_for(hook: Hook) -> &'static str {
    match hook {
        Hook::IrqHandler => "device interrupts",
        Hook::Softirq => "softirqs",
        Hook::LocalTimer => "local timer interrupts",
        Hook::Reschedule => "reschedule interrupts from other CPUs",
        Hook::CallFunction => "function calls from other CPUs (to several CPUs)",
        Hook::CallFunctionSingle => "function calls from other CPUs (to one CPU)",
        Hook::IrqWork => "irq_work interrupts",
        Hook::ThermalApic => "thermal interrupts",
        Hook::ThresholdApic => "machine-check threshold interrupts",
        Hook::DeferredErrorApic => "deferred-error interrupts",
        Hook::ErrorApic => "APIC error interrupts",
        Hook::SpuriousApic => "spurious interrupts",
        Hook::X86PlatformIpi => "platform interrupts",
        Hook::NmiHandler => "non-maskable interrupts",
        Hook::HrtimerExpire => "functions of high-resolution timers",
        Hook::TimerExpire => "functions of timer-wheel timers",
        Hook::TickStop => "the number of tick stops",
        Hook::CsdFunction => "functions that other CPUs requested",
        Hook::WorkqueueExecute => "functions of kernel workers",
        Hook::PageFault => "page faults, which count as the program's own time",
        Hook::DirectReclaim => "direct reclaim, which counts as the program's own time",
        Hook::MemcgReclaim => "memory-cgroup reclaim, which counts as the program's own time",
        Hook::SchedWaking => "wakers of threads, so periodic threads have no cause",
        Hook::WorkqueueQueueWork => "callers that queue work items, so periodic work has no cause",
        Hook::SoftirqRaise => "activities that raise softirqs, so periodic softirqs have no cause",
        Hook::SchedWakeup => "wake-ups, so the wait of a woken thread counts as blocked",
        Hook::SchedProcessFork => {
            "threads and processes that the program starts during the recording"
        }
        Hook::SchedProcessExec => "exec by a thread other than the main thread",
        Hook::SystemCalls => "long system calls, which count as the program's own code",
        Hook::HrtimerStart => "the times until which the program wanted to sleep",
        Hook::FreezeTask => "the time at which a freezer stopped a sleeping thread",
        Hook::SchedSwitch => "threads",
    }
}

fn unreadable(reason: &Unreadable) -> String {
    let words = match reason {
        Unreadable::NeedsRoot => "permission denied; run as root with all capabilities",
        Unreadable::NeedsSyslog => "reading the kernel log needs root or CAP_SYSLOG",
        Unreadable::NotAFile => "not a regular file",
        Unreadable::TooLong { read_bytes } => {
            let mebibytes = read_bytes >> 20;
            return format!("longer than {mebibytes} MiB; only this much was read");
        }
        Unreadable::TooManySettings => "too many settings to check all of them",
        Unreadable::TooManyOpenFiles => "too many open files to check all of them",
        Unreadable::Failed(message) => message,
    };
    words.to_owned()
}

#[cfg(test)]
mod tests;
