//! Limitations: what an observer could not see, as types. `ticktax-report` puts them into words.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hook::Hook;
use crate::policy::PolicyGrant;
use crate::{Cpu, CpuList, Nanos};

/// Something that could not be observed, or not as requested. Its `id` in recordings and JSON is
/// stable, so programs can rely on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Limitation {
    /// Level `kernel` is not available.
    KernelNotTraced {
        /// Error from the tracer.
        message: String,
        /// Whether root could trace: the user is unprivileged.
        #[serde(default)]
        needs_root: bool,
    },
    /// A hook could not be attached.
    HookMissing {
        /// Hook.
        hook: Hook,
        /// Reason.
        reason: HookMissing,
    },
    /// `/proc/kallsyms` shows no addresses, so functions have no names.
    FunctionNamesHidden,
    /// Some settings could not be read.
    SettingsUnread {
        /// Some of their files.
        paths: Vec<String>,
        /// Number of other files.
        more: u64,
        /// Reason.
        reason: Unreadable,
    },
    /// CPUs went offline during the recording. Their accounts end with the last event there.
    CpusWentOffline {
        /// CPUs.
        cpus: CpuList,
    },
    /// CPUs were plugged in during the recording. Their accounts start at their first context
    /// switch.
    CpusPluggedIn {
        /// CPUs.
        cpus: CpuList,
    },
    /// The accounts of some CPUs start at their first context switch, because a high-priority
    /// thread occupied the CPU.
    BooksBeganLate {
        /// CPUs.
        cpus: CpuList,
    },
    /// Some CPUs were not watched, so the watched program may have run there unseen.
    CpusNotWatched {
        /// CPUs.
        cpus: CpuList,
    },
    /// The probe is not allowed to run on some CPUs.
    CpusNotProbed {
        /// CPUs.
        cpus: CpuList,
    },
    /// The probe was not started on CPUs that were fully loaded. The kernel shares CPU time between
    /// sessions first, so the probe would have taken time from the load.
    CpusFull {
        /// CPUs.
        cpus: CpuList,
    },
    /// A probe runs under a different scheduling policy than it requested.
    ProbePolicyRefused {
        /// CPU.
        cpu: Cpu,
        /// Requested and granted policy.
        policy: PolicyGrant,
    },
    /// The time of the hypervisor, and of kernel entry and exit, is contained in other accounts.
    OutsideNotSeparated {
        /// Why gaps are missing, which would separate that time.
        reason: NoGaps,
    },
    /// Intervals were only summed, so a single program could not be followed.
    ProgramNotFollowed,
    /// Some threads were not followed. Their off-CPU time is derived from runs and wake-ups.
    WaitsDerived {
        /// Number of threads.
        threads: u64,
    },
    /// Some threads of the watched program did not fit into the tracer's table.
    ThreadsNotFollowed {
        /// Number of threads.
        threads: u64,
    },
    /// The observation was more than 20 ms shorter or longer than requested.
    LengthNotKept {
        /// Requested length.
        #[serde(rename = "asked_ns")]
        asked: Nanos,
        /// Actual length, on the CPU that was watched longest.
        #[serde(rename = "watched_ns")]
        watched: Nanos,
    },
    /// Part of an incident's history was overwritten in the flight recorder's ring buffer before it
    /// could be kept.
    RingTooShort {
        /// History requested before the trigger.
        #[serde(rename = "asked_ns")]
        asked: Nanos,
        /// History in the ring buffer of the busiest CPU.
        #[serde(rename = "reached_ns")]
        reached: Nanos,
    },
    /// The window of an incident ended early because its records reached the flight recorder's
    /// memory limit.
    WindowCutShort {
        /// Requested length.
        #[serde(rename = "asked_ns")]
        asked: Nanos,
        /// Actual length.
        #[serde(rename = "kept_ns")]
        kept: Nanos,
    },
    /// The machine was suspended.
    Suspended {
        /// Length of the suspension.
        #[serde(rename = "time_ns")]
        time: Nanos,
    },
    /// The time of day was set.
    ClockSet {
        /// Step; negative if the clock was set back.
        #[serde(rename = "by_ns")]
        by: Nanos,
    },
    /// The kernel counted interrupts that no tracepoint reports.
    InterruptsNotTraced {
        /// CPU.
        cpu: Cpu,
        /// Interrupt, as described in `/proc/interrupts`.
        interrupt: String,
        /// Number of interrupts.
        count: u64,
    },
    /// Context switches occurred without their `sched_switch` event.
    SwitchesMissed {
        /// Number of times that a thread was found running without a switch to it.
        count: u64,
    },
    /// According to the scheduler, a process ran that no event mentions.
    ProcessNotTraced {
        /// Process name.
        name: String,
        /// Process id.
        pid: i32,
        /// CPU time according to the scheduler.
        #[serde(rename = "ran_ns")]
        ran: Nanos,
    },
    /// According to the scheduler, a process ran longer than its events show.
    ProcessTracedInPart {
        /// Process name.
        name: String,
        /// Process id.
        pid: i32,
        /// CPU time according to the scheduler.
        #[serde(rename = "ran_ns")]
        ran: Nanos,
        /// Minimum CPU time missing from the events. It is unexplained, or charged to the threads
        /// that the process displaced.
        #[serde(rename = "missing_ns")]
        missing: Nanos,
    },
    /// The kernel counted more context switches than it reported, and not all of the resulting gaps
    /// were found.
    SwitchesUnreported {
        /// Minimum number of missing switches.
        count: u64,
    },
    /// Interrupts or softirqs were in progress when their thread was switched out.
    FramesCut {
        /// Number of interrupts and softirqs.
        count: u64,
    },
    /// Exit events without their entry, or entries nested too deeply.
    BordersMissed {
        /// Number of events.
        count: u64,
    },
    /// The table of sums had no room for the sources of some intervals.
    SourcesFolded {
        /// Number of intervals.
        intervals: u64,
    },
    /// A guest whose clock counts instructions.
    InstructionTime {
        /// Time per instruction.
        #[serde(rename = "instruction_ns")]
        instruction: Nanos,
    },
    /// A guest whose clock is the host's.
    HostTime,
    /// A paced process made more context switches than fit into memory.
    FollowingCutShort {
        /// Time after which following stopped.
        #[serde(rename = "after_ns")]
        after: Nanos,
    },
    /// Events of a paced process were lost.
    FrameEventsLost {
        /// Number of events.
        events: u64,
    },
    /// Only part of a recording is shown. Counters of the whole recording do not apply to it. The
    /// numbers in the other limitations refer to the whole.
    PartOfRecording {
        /// Start of the part, relative to the start of the recording.
        #[serde(rename = "from_ns")]
        from: Nanos,
        /// End of the part, relative to the start of the recording.
        #[serde(rename = "to_ns")]
        to: Nanos,
    },
    /// The contents of some probe gaps have no known position in time.
    GapContentsUnknown {
        /// CPUs.
        cpus: CpuList,
    },
    /// The kernel's CPU-time counters were not read at both ends.
    CountersUnread {
        /// CPUs.
        cpus: CpuList,
    },
    /// Rows that sum intervals over windows have no times in which a period could be found. When
    /// sums are kept, only long intervals and gaps have times.
    BeatTimesSummed {
        /// Number of rows.
        rows: u64,
    },
    /// In some windows even long intervals were summed, because there was no room for their times.
    BeatLongTimesSummed {
        /// Number of windows, over all sources.
        windows: u64,
        /// Sources that had too many such windows to be searched.
        sources: u64,
        /// Maximum number of such windows for a source that is searched.
        #[serde(default = "default_max_windows")]
        max_windows: u64,
    },
    /// Only gaps were recorded, so periodic sources have no names.
    BeatSourcesUnnamed,
    /// No source has enough events to find a period.
    BeatsTooFewEvents {
        /// Number of events needed.
        #[serde(default = "default_min_events")]
        min_events: u64,
    },
    /// Periods above a limit are too long for the recording.
    BeatPeriodsTooLong {
        /// Longest period that can be found.
        #[serde(rename = "over_ns")]
        over: Nanos,
    },
    /// Some sources have too few events to find a period.
    BeatSourcesQuiet {
        /// Number of sources.
        sources: u64,
        /// Number of events needed.
        min_events: u64,
    },
    /// Some sources did not fit into memory.
    BeatSourcesLeftOut {
        /// Number of sources.
        sources: u64,
        /// Number of sources that fit.
        max: u64,
    },
    /// Some sources have more events than fit into memory.
    BeatSourcesCutShort {
        /// Number of sources.
        sources: u64,
    },
    /// Some of the events in which periods are searched were lost.
    BeatEventsLost {
        /// CPU.
        cpu: Cpu,
        /// Number of events.
        events: u64,
    },
    /// There were periods in which nothing was recorded.
    RecordingHoles {
        /// CPU.
        cpu: Cpu,
        /// Minimum total length.
        #[serde(rename = "time_ns")]
        time: Nanos,
        /// Number of such periods.
        holes: u64,
    },
    /// Events of threads that move between CPUs arrived too late to be sorted.
    BeatEventsUnordered {
        /// Number of events.
        events: u64,
    },
    /// The recording's file has no checksums, so damage would go unnoticed.
    NotVerified,
    /// Another limitation, as text.
    Other {
        /// Missing observation.
        what: String,
        /// Reason.
        why: String,
    },
}

/// Default for recordings whose [`Limitation::BeatsTooFewEvents`] has no number.
fn default_min_events() -> u64 {
    5
}

/// Default for recordings whose [`Limitation::BeatLongTimesSummed`] has no maximum.
fn default_max_windows() -> u64 {
    64
}

/// Reason why a hook is not attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HookMissing {
    /// It was left out on request.
    OnRequest,
    /// This kernel does not have the tracepoint.
    NoTracepoint,
    /// This kernel does not have the function.
    NoFunction(String),
    /// This kernel does not allow attaching to the function.
    FunctionNotPermitted(String),
    /// The kernel refused to load it, with this error.
    Refused(String),
}

impl fmt::Display for HookMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnRequest => f.write_str("left out on request"),
            Self::NoTracepoint => f.write_str("this kernel has no such tracepoint"),
            Self::NoFunction(function) => write!(f, "this kernel has no function {function}"),
            Self::FunctionNotPermitted(function) => {
                write!(
                    f,
                    "this kernel lets no program watch its function {function}"
                )
            }
            Self::Refused(message) => f.write_str(message),
        }
    }
}

/// Reason why a setting could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unreadable {
    /// Only root may read it.
    NeedsRoot,
    /// Reading the kernel log needs a capability.
    NeedsSyslog,
    /// It is a directory, a device or a pipe.
    NotAFile,
    /// It exceeds the size limit.
    TooLong {
        /// Number of bytes read.
        read_bytes: u64,
    },
    /// There are more settings than ticktax examines.
    TooManySettings,
    /// There are more open files than ticktax examines.
    TooManyOpenFiles,
    /// The system returned this error.
    Failed(String),
}

/// Reason why a recording has no gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoGaps {
    /// No probe ran.
    NoProbe,
    /// A soaker ran instead, which does not read a clock.
    Soaker,
}
